// A run log on disk, whole after every line, so that it can be followed and survives whatever ends the process; another
// process can go on with it.
//
// Each line is one write to the system. If that fails (a full disk), what there is of the line is taken back, and a
// later line may succeed. One process writes at a time: two at once would break the chain, which the reader tells.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "isochron/core/trace/run_log.h"

namespace isochron::io {

class RunLogFile {
 public:
  enum class Start : std::uint8_t {
    kAnew,      // a log that is there already is set aside, under the next free name: run.jsonl as run.1.jsonl
    kContinue,  // goes on after its last whole line; a file that is missing or empty is begun
  };

  /// A file that is begun gets `header`; one that goes on keeps its own, which must be of the same run: its seed,
  /// global batch and, if known, samples per epoch. Throws isochron::Error naming the file if it cannot be written, or
  /// if it is to go on but is no run log, or another run's.
  RunLogFile(std::filesystem::path path, const RunHeader& header, Start start);
  RunLogFile(const RunLogFile&) = delete;
  RunLogFile& operator=(const RunLogFile&) = delete;
  ~RunLogFile();

  /// Where a log of before is now; empty: there was none with a step.
  [[nodiscard]] const std::filesystem::path& set_aside() const { return set_aside_; }
  /// Whether the file had a header already.
  [[nodiscard]] bool continued() const { return continued_; }
  /// The number of the next step, by what a file that goes on held when it was opened: one more than its last step's,
  /// or that of a later "rollback" or "resume". A run that goes on elsewhere has to write such an event first.
  [[nodiscard]] std::int64_t next_step() const { return next_step_; }

  /// Throws isochron::Error naming the file and the reason.
  void write(const StepRecord& record) { write_line(to_json(record)); }
  void write(const UpdateRecord& record) { write_line(to_json(record)); }
  void write(const EventRecord& record) { write_line(to_json(record)); }
  void write(const EvaluationRecord& record) { write_line(to_json(record)); }

 private:
  void set_aside_what_is_there();
  void begin(const RunHeader& header);
  void go_on(const RunHeader& header);
  void open(int flags);
  void write_line(const std::string& line);

  std::filesystem::path path_;
  std::filesystem::path set_aside_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;             // of whole lines
  std::optional<std::uint64_t> link_;  // of the last line; nothing: the log has no chain
  bool continued_ = false;
  std::int64_t next_step_ = 0;
};

}  // namespace isochron::io
