#include "isochron/worker/live_log.h"

#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

#include "isochron/core/error.h"
#include "isochron/core/trace/event.h"

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

std::int64_t step_of(const io::RunLogLine& line) {
  return std::visit(
      [](const auto& record) -> std::int64_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(record)>, RunHeader>) {
          return 0;
        } else {
          return record.step;
        }
      },
      line);
}

}  // namespace

LiveLog::LiveLog(const std::string& path, const RunHeader& header, std::int64_t first_step, Begin begin, Warn warn)
    : file_(open(path, header, begin == Begin::kTakeOver || first_step > 0 ? Start::kContinue : Start::kAnew)),
      warn_(std::move(warn)) {
  if (begin == Begin::kTakeOver) {
    next_step_ = file_.next_step();
  } else if (file_.continued()) {
    file_.write(EventRecord{.step = first_step, .event = std::string(to_string(Event::kResume))});
  }
}

void LiveLog::write(const io::RunLogLine& line) {
  if (step_of(line) < next_step_) {
    return;
  }
  waiting_.push_back(line);
  try {
    write_waiting();
  } catch (const Error& error) {
    if (trouble_.empty()) {
      warn_(std::string(error.what()) + "; the run goes on, and the log when it can be written again");
    }
    trouble_ = error.what();
    ++late_;
    if (waiting_.size() > kMostWaiting) {
      waiting_.pop_front();
      ++missing_;
    }
  }
}

void LiveLog::write_waiting() {
  if (!trouble_.empty()) {
    const std::string words = std::to_string(late_) + " lines could not be written at once, and " +
                              std::to_string(missing_) + " of them are missing here: " + trouble_;
    file_.write(EventRecord{
        .step = step_of(waiting_.front()), .event = std::string(to_string(Event::kUnlogged)), .words = words});
    warn_("the log goes on: " + words);
    trouble_.clear();
    late_ = 0;
    missing_ = 0;
  }
  for (; !waiting_.empty(); waiting_.pop_front()) {
    std::visit(
        [this](const auto& record) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(record)>, RunHeader>) {
            file_.write(record);
          }
        },
        waiting_.front());
  }
}

}  // namespace isochron::worker
