// Writes one simulated run to a run log and to a Chrome trace, each if wanted.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "isochron/core/trace/chrome_trace.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/io/output_file.h"
#include "isochron/io/run_log_writer.h"

namespace isochron::cli {

class Recorder {
 public:
  /// Opens the files; an empty name means none. Throws std::invalid_argument if one cannot be written.
  Recorder(const RunHeader& header, const std::string& log, const std::string& trace);

  /// A StepRecord, an UpdateRecord or an EventRecord.
  template <class Record>
  void record(const Record& record) {
    if (log_) {
      log_->write(record);
    }
    if (trace_file_) {
      trace_file_->stream() << trace_.add(record);
    }
  }

  /// Without it, no file appears. Throws isochron::Error if not everything could be written.
  void commit();

 private:
  std::unique_ptr<io::OutputFile> log_file_;
  std::optional<io::RunLogWriter> log_;
  std::unique_ptr<io::OutputFile> trace_file_;
  ChromeTrace trace_;
};

/// "run.jsonl" for one of several policies: "run.omnilearn-dead-band=0.1.jsonl".
[[nodiscard]] std::string name_for_policy(const std::string& file, const std::string& policy);

}  // namespace isochron::cli
