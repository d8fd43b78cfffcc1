#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

#include "isochron/cli/commands.h"
#include "isochron/cli/json_output.h"
#include "isochron/core/trace/chrome_trace.h"
#include "isochron/view/headline.h"
#include "isochron/view/page.h"
#include "isochron/view/page_data.h"
#include "isochron/view/run_file.h"
#include "isochron/view/tensorboard.h"

namespace isochron::cli {
namespace {

namespace fs = std::filesystem;

struct ReportRequest {
  std::vector<std::string> runs;
  std::string html;         // empty: report.html, unless something else is asked for
  std::string perfetto;     // empty: none
  std::string tensorboard;  // empty: none
  JsonOutput output;
};

/// The cells that all runs together may take, so that the page stays small whatever their number.
std::size_t cells_per_run(std::size_t runs) {
  return view::RunView::kDefaultCells / runs;
}

/// Writes a Chrome trace while a log is read.
class TraceWriter {
 public:
  explicit TraceWriter(const std::string& path) : file_(open_output("--perfetto", path)) {}

  void write(const io::RunLogLine& line) {
    std::visit([this](const auto& record) { add(record); }, line);
  }
  void commit() {
    file_->stream() << trace_->end();
    file_->commit();
  }

 private:
  void add(const RunHeader& header) {
    trace_.emplace(header);
    file_->stream() << trace_->begin();
  }
  void add(const StepRecord& record) { file_->stream() << trace_->add(record); }
  void add(const UpdateRecord& record) { file_->stream() << trace_->add(record); }
  void add(const EventRecord& record) { file_->stream() << trace_->add(record); }
  void add(const EvaluationRecord&) {}  // has no place in time of its own

  std::unique_ptr<io::OutputFile> file_;
  std::optional<ChromeTrace> trace_;
};

std::vector<std::unique_ptr<view::RunFile>> read_runs(const ReportRequest& request, TraceWriter* trace) {
  std::vector<std::unique_ptr<view::RunFile>> files;
  for (const std::string& path : request.runs) {
    files.push_back(std::make_unique<view::RunFile>(path, cells_per_run(request.runs.size())));
    if (trace != nullptr) {
      files.back()->poll([trace](const io::RunLogLine& line) { trace->write(line); });
    } else {
      files.back()->poll();
    }
    if (!files.back()->view()) {
      throw std::invalid_argument("RUN is '" + path + "'; permitted: a run log, which begins with a header");
    }
  }
  return files;
}

std::vector<view::NamedRun> named(
    const ReportRequest& request, const std::vector<std::unique_ptr<view::RunFile>>& files) {
  std::vector<std::string> policies;
  policies.reserve(files.size());
  for (const auto& file : files) {
    policies.push_back(file->view()->header().policy);
  }
  const std::vector<fs::path> paths(request.runs.begin(), request.runs.end());
  const std::vector<std::string> names = view::run_names(paths, policies);
  std::vector<view::NamedRun> runs;
  runs.reserve(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    runs.push_back({.name = names[i], .view = &*files[i]->view()});
  }
  return runs;
}

/// One folder per run if there are several, since TensorBoard takes a folder for a run.
void write_tensorboard(const fs::path& folder, const std::vector<view::NamedRun>& runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const fs::path place = runs.size() == 1 ? folder : folder / ("run-" + std::to_string(i));
    fs::create_directories(place);
    io::OutputFile file(place / view::kEventFileName);
    view::write_event_file(file.stream(), *runs[i].view);
    file.commit();
  }
}

/// A folder that cannot be made is bad input, known before the logs are read.
void prepare_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw std::invalid_argument(
        "--tensorboard is '" + folder + "'; permitted: a folder that can be written (" + error.message() + ")");
  }
}

/// A log must not be written over, by whatever name.
void check_not_log(const std::string& option, const std::string& file, const std::string& log) {
  std::error_code error;  // a file that is not there is no log
  if (!file.empty() && fs::equivalent(file, log, error)) {
    throw std::invalid_argument(option + " is '" + file + "'; permitted: another file than the run log");
  }
}

void run_report(ReportRequest& request) {
  if (!request.perfetto.empty() && request.runs.size() > 1) {
    throw std::invalid_argument(
        "--perfetto is given with " + std::to_string(request.runs.size()) + " RUNs; permitted: with one");
  }
  if (request.html.empty() && request.perfetto.empty() && request.tensorboard.empty()) {
    request.html = "report.html";
  }
  check_distinct_outputs({request.output.target(), request.html, request.perfetto});
  for (const std::string& path : request.runs) {
    (void)io::RunLogFollower(path);
    check_not_log("--output", request.html, path);
    check_not_log("--perfetto", request.perfetto, path);
    check_not_log("--json", request.output.target(), path);
  }
  request.output.open();
  const auto html = request.html.empty() ? nullptr : open_output("--output", request.html);
  const auto trace = request.perfetto.empty() ? nullptr : std::make_unique<TraceWriter>(request.perfetto);
  if (!request.tensorboard.empty()) {
    prepare_folder(request.tensorboard);
  }

  const auto files = read_runs(request, trace.get());
  const std::vector<view::NamedRun> runs = named(request, files);
  std::vector<std::string> written;
  if (html) {
    html->stream() << view::page(runs);
    html->commit();
    written.push_back(request.html);
  }
  if (trace) {
    trace->commit();
    written.push_back(request.perfetto + " (open in ui.perfetto.dev)");
  }
  if (!request.tensorboard.empty()) {
    write_tensorboard(request.tensorboard, runs);
    written.push_back(request.tensorboard + " (tensorboard --logdir " + request.tensorboard + ")");
  }
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const view::NamedRun& named_run : runs) {
    results.push_back(
        nlohmann::ordered_json::parse(view::to_json(named_run.view->summary(), named_run.view->header())));
    results.back()["name"] = named_run.name;
  }
  request.output.write("report", {{"headline", view::headline(runs)}}, results);
  if (!request.output.takes_standard_output()) {
    std::cout << view::headline(runs) << '\n';
    for (const std::string& what : written) {
      std::cout << "wrote " << what << '\n';
    }
  }
}

}  // namespace

void add_report(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("report", "Draw run logs as a web page in one file");
  const auto request = std::make_shared<ReportRequest>();
  command->add_option("RUN", request->runs, "Run logs, which --log and --logs write; several are overlaid")->required();
  command->add_option("-o,--output", request->html, "The page [report.html, unless another output is asked for]")
      ->type_name("FILE")
      ->group("Output");
  command->add_option("--perfetto", request->perfetto, "Write a trace for ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE")
      ->group("Output");
  command->add_option("--tensorboard", request->tensorboard, "Write scalars for TensorBoard")
      ->type_name("FOLDER")
      ->group("Output");
  request->output.add_option(*command);
  command->footer(
      "Example:\n"
      "  isochron simulate --cluster dynamic --policy uniform,isochron --log run.jsonl\n"
      "  isochron report run.uniform.jsonl run.isochron.jsonl -o report.html");
  command->final_callback([request] { run_report(*request); });
}

}  // namespace isochron::cli
