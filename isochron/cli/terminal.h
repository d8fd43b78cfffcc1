// The terminal while a full-screen view has it: the alternate screen, no echo, no cursor; all put back at the end.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <termios.h>

namespace isochron::cli {

class Terminal {
 public:
  struct Size {
    std::size_t columns = 80;
    std::size_t rows = 24;
  };

  Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  [[nodiscard]] static Size size();
  /// Shows the lines in one write, so that no half frame is ever seen.
  void show(const std::vector<std::string>& lines) const;
  /// Keys pressed since the last call: letters, or U and D for the arrows and the page keys up and down.
  [[nodiscard]] std::string keys() const;
  /// Gives the terminal back, stops the process as Ctrl-Z asks for, and takes the terminal again.
  void suspend();

 private:
  void enter();
  void leave() const;

  termios before_{};
  bool has_input_ = false;  // standard input is the terminal too
};

/// Whether the locale's characters are UTF-8.
[[nodiscard]] bool terminal_is_utf8();

}  // namespace isochron::cli
