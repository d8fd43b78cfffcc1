#include "isochron/worker/live_log.h"

#include <stdexcept>
#include <variant>

#include "isochron/core/error.h"

namespace isochron::worker {
namespace {

using Start = io::RunLogFile::Start;

io::RunLogFile open(const std::string& path, const RunHeader& header, Start start) {
  try {
    return {path, header, start};
  } catch (const Error& error) {
    throw std::invalid_argument(
        "--log is '" + path + "'; permitted: a file that can be written, and goes on where the run does (" +
        error.what() + ")");
  }
}

}  // namespace

LiveLog::LiveLog(const std::string& path, const RunHeader& header, std::int64_t first_step, Begin begin)
    : file_(open(path, header, begin == Begin::kTakeOver || first_step > 0 ? Start::kContinue : Start::kAnew)) {
  if (begin == Begin::kTakeOver) {
    next_step_ = file_.next_step();
  } else if (file_.continued()) {
    file_.write(EventRecord{.step = first_step, .event = std::string(to_string(Event::kResume))});
  }
}

void LiveLog::write(const io::RunLogLine& line) {
  std::visit(
      [this](const auto& record) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(record)>, RunHeader>) {
          if (record.step >= next_step_) {
            file_.write(record);
          }
        }
      },
      line);
}

}  // namespace isochron::worker
