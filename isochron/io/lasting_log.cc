#include "isochron/io/lasting_log.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "isochron/core/error.h"
#include "isochron/core/trace/event.h"

namespace isochron::io {
namespace {

EventRecord unlogged(std::int64_t step, std::string words) {
  return {.step = step, .event = std::string(to_string(Event::kUnlogged)), .words = std::move(words)};
}

}  // namespace

std::int64_t step_of(const RunLogLine& line) {
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

LastingLog::LastingLog(const std::filesystem::path& path, const RunHeader& header, RunLogFile::Start start, Warn warn)
    : file_(path, header, start), warn_(std::move(warn)) {
  if (!file_.set_aside().empty()) {
    warn_(path.string() + " is of an earlier run, and is " + file_.set_aside().string() + " now");
  }
}

void LastingLog::write(const RunLogLine& line) {
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

void LastingLog::note_gap(std::int64_t step) {
  if (step <= next_step()) {
    return;
  }
  const std::string words = "the lines of steps " + std::to_string(next_step()) + " to " + std::to_string(step - 1) +
                            " are missing: who wrote the log was lost before it could write them";
  warn_("the log goes on: " + words);
  write(unlogged(step, words));
}

void LastingLog::end() {
  if (trouble_.empty()) {
    return;
  }
  try {
    write_waiting();
  } catch (const Error& error) {
    const auto missing = missing_ + static_cast<std::int64_t>(waiting_.size());
    warn_(std::to_string(missing) + " lines of the log are missing: " + error.what());
  }
}

/// What is said about the trouble comes after a line that has waited: shorter than that, it would fit where none does,
/// again and again.
void LastingLog::write_waiting() {
  while (!waiting_.empty()) {
    std::visit(
        [this](const auto& record) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(record)>, RunHeader>) {
            file_.write(record);
          }
        },
        waiting_.front());
    const std::int64_t step = step_of(waiting_.front());
    waiting_.pop_front();
    if (!trouble_.empty()) {
      note_trouble(step);
    }
  }
}

void LastingLog::note_trouble(std::int64_t step) {
  const std::string words = std::to_string(late_) + " lines could not be written at once, and " +
                            std::to_string(missing_) + " of them are missing here: " + trouble_;
  file_.write(unlogged(step, words));
  warn_("the log goes on: " + words);
  trouble_.clear();
  late_ = 0;
  missing_ = 0;
}

}  // namespace isochron::io
