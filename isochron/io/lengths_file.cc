#include "isochron/io/lengths_file.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include "isochron/core/error.h"

namespace isochron::io {

std::vector<double> read_lengths(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw Error("lengths file " + path.string() + ": " + std::strerror(errno));
  }
  std::vector<double> lengths;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    if (const auto last = line.find_last_not_of(" \t\r"); last != std::string::npos) {
      line.resize(last + 1);
    } else {
      continue;
    }
    double length = -1.0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), length);
    if (error != std::errc{} || end != line.data() + line.size() || !(length >= 0.0 && length <= 1e9)) {
      throw std::invalid_argument(
          path.string() + ":" + std::to_string(number) + ": the length is " + in_quotes(line.substr(0, 40)) +
          "; permitted: a number from 0 to a thousand million");
    }
    lengths.push_back(length);
  }
  if (file.bad()) {
    throw Error("lengths file " + path.string() + ": " + std::strerror(errno));
  }
  require(!lengths.empty(), "lengths file " + path.string(), std::string_view("empty"), "one number a line");
  return lengths;
}

}  // namespace isochron::io
