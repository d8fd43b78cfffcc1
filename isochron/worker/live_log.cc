#include "isochron/worker/live_log.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace isochron::worker {

LiveLog::LiveLog(const std::string& path, const RunHeader& header, std::int64_t first_step) : writer_(stream_, path) {
  std::error_code none;
  const bool append = first_step > 0 && std::filesystem::file_size(path, none) > 0 && !none;
  errno = 0;
  stream_.open(path, std::ios::binary | (append ? std::ios::app : std::ios::trunc));
  if (!stream_) {
    throw std::invalid_argument(
        "--log is '" + path + "'; permitted: a file that can be written (" + std::strerror(errno) + ")");
  }
  if (append) {
    writer_.write(EventRecord{.step = first_step, .event = "resume"});
  } else {
    writer_.write(header);
  }
  stream_.flush();
}

void LiveLog::write(const StepRecord& record) {
  writer_.write(record);
  stream_.flush();
}

}  // namespace isochron::worker
