#include "isochron/worker/live_log.h"

#include <stdexcept>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/trace/event.h"

namespace isochron::worker {
namespace {

using Start = io::RunLogFile::Start;

io::LastingLog open(const std::string& path, const RunHeader& header, Start start, LiveLog::Warn warn) {
  try {
    return {path, header, start, std::move(warn)};
  } catch (const Error& error) {
    throw std::invalid_argument(
        "--log is '" + path + "'; permitted: a file that can be written, and goes on where the run does (" +
        error.what() + ")");
  }
}

}  // namespace

LiveLog::LiveLog(const std::string& path, const RunHeader& header, std::int64_t first_step, Begin begin, Warn warn)
    : log_(open(
          path,
          header,
          begin == Begin::kTakeOver || first_step > 0 ? Start::kContinue : Start::kAnew,
          std::move(warn))) {
  if (begin == Begin::kTakeOver) {
    next_step_ = log_.next_step();
    is_taken_over_ = true;
  } else if (log_.continued()) {
    log_.write(EventRecord{.step = first_step, .event = std::string(to_string(Event::kResume))});
  }
}

void LiveLog::write(const io::RunLogLine& line) {
  if (io::step_of(line) < next_step_) {
    return;
  }
  if (is_taken_over_) {
    is_taken_over_ = false;
    log_.note_gap(io::step_of(line));
  }
  log_.write(line);
}

}  // namespace isochron::worker
