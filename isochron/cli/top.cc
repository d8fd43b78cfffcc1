#include <algorithm>
#include <csignal>
#include <cstddef>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "isochron/cli/commands.h"
#include "isochron/cli/json_output.h"
#include "isochron/cli/run_option.h"
#include "isochron/cli/signals.h"
#include "isochron/cli/terminal.h"
#include "isochron/view/frame.h"
#include "isochron/view/page_data.h"
#include "isochron/view/run_file.h"

namespace isochron::cli {
namespace {

constexpr int kInterruptedBase = 128;  // a shell's status for a program that a signal ended

struct TopRequest {
  std::string run;
  JsonOutput output;
};

/// Follows the log until q, Ctrl-C or another signal; the signal, or 0.
int follow(view::RunFile& file) {
  const SignalGuard signals({SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP});
  Terminal terminal;
  const int keyboard = isatty(STDIN_FILENO) == 1 ? STDIN_FILENO : -1;
  std::size_t first_worker = 0;
  while (true) {
    file.poll();
    const auto [columns, rows] = Terminal::size();
    const std::vector<std::string> waiting{"waiting for the run log to begin"};
    terminal.show(
        file.view() ? view::frame(
                          *file.view(),
                          {.columns = columns,
                           .rows = rows,
                           .first_worker = first_worker,
                           .colour = true,
                           .unicode = terminal_is_utf8()})
                    : waiting);
    const auto caught = signals.wait(0.5, keyboard);
    if (caught == SIGTSTP) {
      terminal.suspend();
    } else if (caught && caught != SIGWINCH) {
      return *caught;
    }
    for (const char key : terminal.keys()) {
      if (key == 'q') {
        return 0;
      }
      const std::size_t most = file.view() ? file.view()->workers().size() : 0;
      first_worker = key == 'D'   ? std::min(first_worker + 1, most)
                     : key == 'U' ? first_worker - std::min<std::size_t>(first_worker, 1)
                                  : first_worker;
    }
  }
}

void print_once(const view::RunFile& file) {
  for (const std::string& line :
       view::frame(*file.view(), {.columns = 120, .rows = 0, .first_worker = 0, .colour = false, .unicode = false})) {
    std::cout << line << '\n';
  }
}

void run_top(TopRequest& request) {
  request.output.open();
  view::RunFile file(run_log_of(request.run));
  file.poll();
  const bool live = request.output.target().empty() && isatty(STDOUT_FILENO) == 1;
  if (live) {
    if (const int ended_by = follow(file); ended_by != 0) {
      throw CLI::RuntimeError(kInterruptedBase + ended_by);
    }
    return;
  }
  if (!file.view()) {
    throw std::invalid_argument("RUN is '" + request.run + "'; permitted: a run log, which begins with a header");
  }
  if (!request.output.takes_standard_output()) {
    print_once(file);
  }
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  results.push_back(nlohmann::ordered_json::parse(view::to_json(file.view()->summary(), file.view()->header())));
  request.output.write("top", {}, results);
}

}  // namespace

void add_top(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("top", "Watch a run log in the terminal while it grows");
  const auto request = std::make_shared<TopRequest>();
  command->add_option("RUN", request->run, "Run log, which may still be growing, or the process of a launcher")
      ->required();
  request->output.add_option(*command);
  command->footer("Keys: up and down scroll the workers, q ends. Piped, or with --json, it prints once and ends.");
  command->final_callback([request] { run_top(*request); });
}

}  // namespace isochron::cli
