#include "isochron/cli/terminal.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

namespace isochron::cli {
namespace {

// The alternate screen, no cursor, no wrapping of long lines; and back.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l\033[?7l";
constexpr std::string_view kLeave = "\033[?7h\033[?25h\033[?1049l";

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count <= 0) {
      return;  // the terminal is gone; a signal will say so
    }
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

Terminal::Terminal() : has_input_(isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before_) == 0) {
  enter();
}

Terminal::~Terminal() {
  leave();
}

void Terminal::enter() {
  if (has_input_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  write_all(kEnter);
}

void Terminal::leave() const {
  write_all(kLeave);
  if (has_input_) {
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
}

Terminal::Size Terminal::size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {.columns = size.ws_col, .rows = size.ws_row};
}

void Terminal::show(const std::vector<std::string>& lines) const {
  // What was there is erased before a line is written: after one as wide as the terminal, the cursor still stands on
  // its last character, which would go, too.
  std::string text = "\033[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool is_last = i + 1 == lines.size();
    text += (is_last ? "\033[J" : "\033[K") + lines[i] + (is_last ? "" : "\r\n");
  }
  write_all(text);
}

std::string Terminal::keys() const {
  std::array<char, 64> bytes{};
  const ssize_t count = has_input_ ? ::read(STDIN_FILENO, bytes.data(), bytes.size()) : 0;
  const std::string_view text(bytes.data(), static_cast<std::size_t>(count > 0 ? count : 0));
  std::string keys;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("\033[") && i + 2 < text.size()) {
      i += 2;
      keys += text[i] == 'A' || text[i] == '5' ? "U" : text[i] == 'B' || text[i] == '6' ? "D" : "";
    } else {
      keys += text[i] == 'k' ? 'U' : text[i] == 'j' ? 'D' : text[i];
    }
  }
  return keys;
}

void Terminal::suspend() {
  leave();
  std::raise(SIGSTOP);
  enter();
}

bool terminal_is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const char* const value = std::getenv(name); value != nullptr && *value != '\0') {
      const std::string_view text(value);
      return text.find("UTF-8") != std::string_view::npos || text.find("utf8") != std::string_view::npos;
    }
  }
  return false;
}

}  // namespace isochron::cli
