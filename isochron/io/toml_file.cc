#include "isochron/io/toml_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "isochron/core/error.h"
#include "isochron/io/toml_fields.h"

namespace isochron::io {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20U;
constexpr std::ptrdiff_t kMaxDots = 64;

void check_size(std::size_t bytes, const std::string& file) {
  if (bytes > kMaxBytes) {
    throw std::invalid_argument(
        file + ": the file has more than " + std::to_string(kMaxBytes) + " bytes; permitted: at most that many");
  }
}

/// A dotted key nests one table per dot, and the TOML library does not limit it.
void check_dots(std::string_view text, const std::string& file) {
  for (int line = 1; !text.empty(); ++line) {
    const std::string_view content = text.substr(0, text.find('\n'));
    if (std::ranges::count(content, '.') > kMaxDots) {
      throw std::invalid_argument(
          file + ":" + std::to_string(line) + ": more than " + std::to_string(kMaxDots) +
          " dots in a line; permitted: at most that many");
    }
    text.remove_prefix(std::min(content.size() + 1, text.size()));
  }
}

}  // namespace

std::string read_toml_text(const std::filesystem::path& path, std::string_view kind) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || (stream.fail() && !stream.eof())) {
    throw Error("cannot read " + std::string(kind) + " " + path.string() + ": " + std::strerror(errno));
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

toml::table parse_toml(std::string_view text, const std::string& file) {
  check_size(text.size(), file);
  check_dots(text, file);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw std::invalid_argument(
        file + ":" + std::to_string(error.source().begin.line) + ": " + one_line(error.description()));
  }
}

}  // namespace isochron::io
