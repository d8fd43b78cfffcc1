#include "isochron/io/run_log_writer.h"

#include "isochron/core/error.h"

namespace isochron::io {

void RunLogWriter::write_line(const std::string& line) {
  if (link_) {
    link_ = next_link(*link_, line);
  }
  stream_ << (link_ ? with_link(line, *link_) : line) << '\n';
  if (!stream_) {
    throw Error("cannot write run log " + name_ + ": the stream refused a line");
  }
}

}  // namespace isochron::io
