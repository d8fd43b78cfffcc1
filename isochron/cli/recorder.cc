#include "isochron/cli/recorder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "isochron/cli/json_output.h"

namespace isochron::cli {

Recorder::Recorder(const RunHeader& header, const std::string& log, const std::string& trace) : trace_(header) {
  if (!log.empty()) {
    log_file_ = open_output("--log", log);
    log_.emplace(log_file_->stream(), log);
    log_->write(header);
  }
  if (!trace.empty()) {
    trace_file_ = open_output("--trace", trace);
    trace_file_->stream() << trace_.begin();
  }
}

void Recorder::commit() {
  if (log_file_) {
    log_file_->commit();
  }
  if (trace_file_) {
    trace_file_->stream() << trace_.end();
    trace_file_->commit();
  }
}

std::string name_for_policy(const std::string& file, const std::string& policy) {
  std::string suffix = policy;
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '='; };
  std::ranges::replace_if(suffix, [&](unsigned char c) { return !is_plain(c); }, '-');
  std::filesystem::path path(file);
  const std::string extension = path.extension().string();
  path.replace_extension();
  path += "." + suffix + extension;
  return path.string();
}

}  // namespace isochron::cli
