#include <iostream>
#include <memory>
#include <stdexcept>

#include "isochron/cli/commands.h"
#include "isochron/cli/json_output.h"
#include "isochron/cli/options.h"
#include "isochron/cli/table.h"
#include "isochron/io/cluster_writer.h"
#include "isochron/sim/builtin.h"

namespace isochron::cli {
namespace {

struct ClustersRequest {
  std::string name;  // empty: list all
  std::int64_t steps = 500;
  JsonOutput output;
};

void list(JsonOutput& output) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  std::size_t width = 0;
  for (const sim::BuiltinHelp& cluster : sim::builtin_clusters()) {
    results.push_back({{"cluster", cluster.name}, {"description", cluster.description}});
    width = std::max(width, cluster.name.size());
  }
  if (!output.takes_standard_output()) {
    for (const sim::BuiltinHelp& cluster : sim::builtin_clusters()) {
      std::cout << cluster.name << std::string(width - cluster.name.size() + 2, ' ')
                << wrapped(cluster.description, 100 - width, width + 2) << '\n';
    }
    std::cout << "\n'isochron clusters NAME' writes one as a cluster file, to start your own from.\n";
  }
  output.write("clusters", {}, results);
}

void run_clusters(ClustersRequest& request) {
  if (!request.name.empty() && !request.output.target().empty()) {
    throw std::invalid_argument("--json is given with a NAME; permitted: one of the two, since a cluster file is TOML");
  }
  request.output.open();
  if (request.name.empty()) {
    list(request.output);
  } else {
    std::cout << io::to_toml(sim::builtin_cluster(request.name, request.steps));
  }
}

}  // namespace

void add_clusters(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("clusters", "List the built-in clusters, or write one as a file");
  const auto request = std::make_shared<ClustersRequest>();
  command->add_option("NAME", request->name, "Write this cluster as a cluster file to standard output");
  add_whole(*command, "--steps", request->steps, 1, 1'000'000'000, "Length of the run that its changes spread over");
  request->output.add_option(*command);
  command->footer("Example:\n  isochron clusters dynamic > mine.toml && isochron simulate --cluster mine.toml");
  command->final_callback([request] { run_clusters(*request); });
}

}  // namespace isochron::cli
