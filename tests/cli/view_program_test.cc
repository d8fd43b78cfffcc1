// Runs `report`, `serve` and `top` on logs of the simulator.
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <thread>

#include "tests/shell_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace isochron::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ViewProgramTest : public ShellTest {
 protected:
  [[nodiscard]] Outcome run(const std::string& arguments) const { return shell("'" ISOCHRON_PROGRAM "' " + arguments); }

  /// run.uniform.jsonl and run.isochron.jsonl.
  void simulate() const {
    const Outcome outcome =
        run("simulate --cluster dynamic --policy uniform,isochron --steps 80 --noise 0.02 --log run.jsonl");
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  }
  void expect_refusal(const std::string& arguments, const std::string& message) const {
    SCOPED_TRACE(arguments);
    expect_refused(run(arguments), message);
  }
};

TEST_F(ViewProgramTest, ReportsSeveralRunsInOneFile) {
  simulate();
  const Outcome outcome = run("report run.uniform.jsonl run.isochron.jsonl -o out.html --json out.json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr("isochron does "), HasSubstr(" of equal batches on dynamic"), HasSubstr("wrote out.html")));
  const std::string html = content(folder_ / "out.html");
  EXPECT_THAT(
      html,
      AllOf(StartsWith("<!doctype html>"), HasSubstr("\"name\":\"uniform\""), HasSubstr("\"name\":\"isochron\"")));
  const json document = json::parse(content(folder_ / "out.json"));
  EXPECT_EQ(document.at("results").at(1).at("policy"), "isochron");
  EXPECT_EQ(document.at("results").at(1).at("steps"), 80);
}

TEST_F(ViewProgramTest, ShowsNoEscapeSequencesOfALog) {
  std::ofstream(folder_ / "hostile.jsonl")
      << R"({"type":"run","schema":1,"program":"train","version":"0.1.0","policy":"\u001b]0;owned\u0007\u001b[2J","cluster":"\u009b31m",)"
      << R"("global_batch":1,"seed":0,"workers":[{"id":0,"name":"\u001b[1m","kind":"cpu"}]})" << "\n"
      << R"({"type":"step","step":0,"start":0,"seconds":1,"workers":[0],"batch_sizes":[1],"starts":[0],)"
      << R"("compute_seconds":[1],"wait_seconds":[0],"exchange_seconds":[0],"learning_rate_factor":1,)"
      << R"("changed":false,"reason":"kept"})" << "\n";
  const Outcome outcome = run("report hostile.jsonl");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(
      outcome.output + outcome.errors,
      AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\x07")), Not(HasSubstr("\xc2\x9b"))));
  EXPECT_THAT(outcome.output, HasSubstr("owned"));  // its letters are shown
}

TEST_F(ViewProgramTest, PlansWithoutTheEscapeSequencesOfALog) {
  simulate();
  std::string log = content(folder_ / "run.uniform.jsonl");
  log = std::regex_replace(log, std::regex(R"re("name":")re"), R"("name":"\u001b]0;owned\u0007)");
  log = std::regex_replace(log, std::regex(R"re("model":")re"), R"("model":"\u001b[2J)");
  std::ofstream(folder_ / "hostile.jsonl") << log;
  const Outcome outcome = run("plan --run hostile.jsonl");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output + outcome.errors, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\x07"))));
  EXPECT_THAT(outcome.output, HasSubstr("owned"));
}

TEST_F(ViewProgramTest, WritesReportHtmlUnlessSomethingElseIsAskedFor) {
  simulate();
  EXPECT_EQ(run("report run.uniform.jsonl").status, 0);
  EXPECT_TRUE(fs::remove(folder_ / "report.html"));
  const Outcome outcome = run("report run.isochron.jsonl --perfetto trace.json --tensorboard board");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_FALSE(fs::exists(folder_ / "report.html"));
  EXPECT_GT(fs::file_size(folder_ / "board/events.out.tfevents.0000000000.isochron"), 1000U);
}

TEST_F(ViewProgramTest, WritesTheTraceThatTheSimulatorWrites) {
  ASSERT_EQ(run("simulate --cluster spot --policy isochron --steps 60 --log run.jsonl --trace direct.json").status, 0);
  ASSERT_EQ(run("report run.jsonl --perfetto trace.json").status, 0);
  EXPECT_EQ(content(folder_ / "trace.json"), content(folder_ / "direct.json"));
}

TEST_F(ViewProgramTest, RefusesWhatItCannotDraw) {
  simulate();
  expect_refusal("report", "RUN is required");
  expect_refusal("report none.jsonl", "cannot read 'none.jsonl': ");
  expect_refusal("report .", "cannot read '.': Is a directory");
  std::ofstream(folder_ / "empty.jsonl") << "";
  expect_refusal("report empty.jsonl", "RUN is 'empty.jsonl'; permitted: a run log, which begins with a header");
  std::ofstream(folder_ / "text.jsonl") << "hello\n";
  expect_refusal("report text.jsonl", "text.jsonl:1: the line is not JSON");
  expect_refusal("report run.uniform.jsonl -o none/x.html", "--output is 'none/x.html'; permitted: ");
  expect_refusal("report run.uniform.jsonl run.isochron.jsonl --perfetto t.json", "--perfetto is given with 2 RUNs");
  expect_refusal("report run.uniform.jsonl --tensorboard run.uniform.jsonl", "--tensorboard is 'run.uniform.jsonl'; ");
  expect_refusal("report run.uniform.jsonl -o same --json same", "'same' is given for two outputs");
  const std::string log = content(folder_ / "run.uniform.jsonl");
  for (const std::string option : {"--output", "--perfetto", "--json"}) {
    expect_refusal(
        "report run.uniform.jsonl " + option + " ./run.uniform.jsonl",
        option + " is './run.uniform.jsonl'; permitted: another file than the run log");
  }
  EXPECT_EQ(content(folder_ / "run.uniform.jsonl"), log);
  expect_refusal("top none.jsonl", "cannot read 'none.jsonl': ");
  expect_refusal("serve none.jsonl", "cannot read 'none.jsonl': ");
  expect_refusal("serve run.uniform.jsonl --port 70000", "--port is '70000'; permitted: ");
  expect_refusal("serve run.uniform.jsonl --host 0.0.0.0", "--token is ''; permitted: at least 16 ");
  setenv("ISOCHRON_PAGE_TOKEN", "too-short", 1);  // one may come where others cannot read it
  expect_refusal("serve run.uniform.jsonl --host 0.0.0.0", "--token is 'too-short'; permitted: at least 16 ");
  unsetenv("ISOCHRON_PAGE_TOKEN");
  EXPECT_FALSE(fs::exists(folder_ / "report.html"));
}

TEST_F(ViewProgramTest, PrintsOnceWhenPiped) {
  simulate();
  const Outcome outcome = run("top run.isochron.jsonl");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(
      outcome.output, AllOf(StartsWith("isochron simulate: isochron on dynamic\nstep 80"), HasSubstr("\nworker")));
  EXPECT_THAT(outcome.output, AllOf(Not(HasSubstr("\033")), HasSubstr(" rebalanced: ")));
  EXPECT_EQ(json::parse(run("top run.isochron.jsonl --json -").output).at("results").at(0).at("policy"), "isochron");
}

/// `isochron top` in a terminal of its own.
class TerminalSession {
 public:
  explicit TerminalSession(const std::string& log) {
    winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      setenv("LANG", "C.UTF-8", 1);
      unsetenv("LC_ALL");
      execl(ISOCHRON_PROGRAM, "isochron", "top", log.c_str(), nullptr);
      _exit(127);
    }
  }
  TerminalSession(const TerminalSession&) = delete;
  TerminalSession& operator=(const TerminalSession&) = delete;
  ~TerminalSession() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(terminal_);
  }

  /// What has been shown once `text` was; everything after ten seconds without it.
  std::string await(const std::string& text) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (shown_.find(text) == std::string::npos && std::chrono::steady_clock::now() < until) {
      pollfd waiting{.fd = terminal_, .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, 100) <= 0) {
        continue;
      }
      std::array<char, 65536> bytes{};
      const ssize_t count = read(terminal_, bytes.data(), bytes.size());
      if (count <= 0) {
        break;  // it has ended
      }
      shown_.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return shown_;
  }
  void press(const std::string& keys) const {
    EXPECT_EQ(write(terminal_, keys.data(), keys.size()), ssize_t(keys.size()));
  }
  void resize(unsigned short columns, unsigned short rows) const {
    const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }
  void send(int signal) const { kill(child_, signal); }
  /// The status it ended with.
  int end() {
    (void)await("\033[?1049l");
    int status = 0;
    waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  int terminal_ = -1;
  pid_t child_ = -1;
  std::string shown_;
};

TEST_F(ViewProgramTest, FollowsALogInATerminal) {
  simulate();
  const std::string log = content(folder_ / "run.isochron.jsonl");
  const std::size_t half = log.find('\n', log.size() / 2) + 1;
  const fs::path growing = folder_ / "growing.jsonl";
  std::ofstream(growing, std::ios::binary) << log.substr(0, half);
  TerminalSession session(growing.string());
  const std::string shown = session.await("last events");
  EXPECT_THAT(shown, AllOf(StartsWith("\033[?1049h"), HasSubstr("isochron on dynamic")));
  EXPECT_THAT(shown, HasSubstr("comm\033[0m\r"));  // in the 80th column: what erases behind it would erase the m
  std::ofstream(growing, std::ios::binary | std::ios::app) << log.substr(half);
  EXPECT_THAT(session.await("step 80"), HasSubstr("step 80"));
  session.resize(30, 10);
  const std::string narrow = "isochron simulate: isochron on\033[0m";  // cut after 30 columns
  EXPECT_THAT(session.await(narrow), HasSubstr(narrow));
  session.press("q");
  EXPECT_EQ(session.end(), 0);
}

TEST_F(ViewProgramTest, GivesTheTerminalBackWhenASignalEndsIt) {
  simulate();
  for (const int signal : {SIGINT, SIGTERM}) {
    TerminalSession session((folder_ / "run.uniform.jsonl").string());
    (void)session.await("last events");
    session.send(signal);
    EXPECT_EQ(session.end(), 128 + signal);
    EXPECT_THAT(session.await(""), HasSubstr("\033[?7h\033[?25h\033[?1049l"));
  }
}

TEST_F(ViewProgramTest, ServesUntilInterrupted) {
  simulate();
  const Outcome outcome = shell(
      "{ '" ISOCHRON_PROGRAM
      "' serve run.isochron.jsonl --port 0 > said & server=$!; "
      "until grep -q until said; do sleep 0.05; done; "
      "url=$(sed -n 's/.* at \\(http[^ ]*\\) until.*/\\1/p' said); "
      "python3 -c \"import sys, urllib.request as u; print(u.urlopen(sys.argv[1] + 'metrics').read().decode())\" $url; "
      "kill -INT $server; wait $server; echo ended with $?; }");
  EXPECT_THAT(outcome.output, HasSubstr("ended with 0"));
  EXPECT_THAT(outcome.output, HasSubstr("isochron_steps_total 80\n")) << outcome.errors;
}

}  // namespace
}  // namespace isochron::cli
