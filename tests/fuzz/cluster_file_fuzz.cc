// Any bytes are a cluster that validates, survives a round trip and can be simulated, or one line of
// std::invalid_argument.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "isochron/core/error.h"
#include "isochron/io/cluster_file.h"
#include "isochron/io/cluster_writer.h"
#include "isochron/sim/simulate.h"

namespace {

using isochron::io::parse_cluster;
using isochron::io::to_toml;

/// Bounds that cannot hold the batch, or a worker that is stopped for ever, are refused here.
void simulate(const isochron::sim::ClusterSpec& cluster) {
  for (const auto sync : {isochron::Sync::kBsp, isochron::Sync::kAsp}) {
    try {
      (void)isochron::sim::simulate(cluster, {.global_batch = 64, .steps = 3, .sync = sync}, "uniform");
    } catch (const std::invalid_argument&) {
      continue;
    }
  }
}

void check(std::string_view bytes) {
  isochron::sim::ClusterSpec cluster;
  try {
    cluster = parse_cluster(bytes, "fuzz.toml");
  } catch (const std::invalid_argument& refusal) {
    const std::string_view words = refusal.what();
    ISO_CHECK(words.starts_with("fuzz.toml:"), "a refusal without its file");
    ISO_CHECK(words.find('\n') == std::string_view::npos, "a refusal of several lines");
    return;
  }
  cluster.validate();
  if (cluster.workers.size() > 100) {
    return;  // a count can make the text below longer than a cluster file may be
  }
  const std::string text = to_toml(cluster);
  ISO_CHECK(to_toml(parse_cluster(text, "again.toml")) == text, "the round trip changed the cluster");
  simulate(cluster);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check({reinterpret_cast<const char*>(data), size});
  return 0;
}
