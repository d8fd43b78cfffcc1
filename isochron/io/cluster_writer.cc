#include "isochron/io/cluster_writer.h"

#include <cmath>
#include <vector>

#include "isochron/core/trace/json.h"

namespace isochron::io {
namespace {

// A JSON string is a TOML basic string, except that TOML wants DEL escaped as well.
std::string toml_string(std::string_view text) {
  std::string result;
  for (const char c : json_string(text)) {
    result += c == '\x7F' ? std::string("\\u007f") : std::string(1, c);
  }
  return result;
}

/// A large number that happens to be whole must not look like an integer of TOML, which has 64 bits.
std::string toml_number(double value) {
  const std::string text = json_number(value);
  return text.find_first_of(".e") == std::string::npos && std::abs(value) > 1e15 ? text + ".0" : text;
}

/// `key = value` pairs, one a line or inside braces; pairs that equal their default are skipped.
class Pairs {
 public:
  Pairs& text(std::string_view key, const std::string& value, const std::string& standard) {
    return value == standard ? *this : raw(key, toml_string(value));
  }
  Pairs& number(std::string_view key, double value, double standard) {
    return value == standard ? *this : raw(key, toml_number(value));
  }
  Pairs& integer(std::string_view key, std::int64_t value, std::int64_t standard) {
    return value == standard ? *this : raw(key, std::to_string(value));
  }
  Pairs& raw(std::string_view key, const std::string& value) {
    pairs_.push_back(std::string(key) + " = " + value);
    return *this;
  }
  /// A table in braces; skipped if it is empty.
  Pairs& table(std::string_view key, const Pairs& inner) {
    return inner.pairs_.empty() ? *this : raw(key, "{ " + inner.joined(", ") + " }");
  }
  [[nodiscard]] std::string joined(std::string_view separator) const {
    std::string result;
    for (const std::string& pair : pairs_) {
      result.append(result.empty() ? "" : separator).append(pair);
    }
    return result;
  }
  [[nodiscard]] std::string lines() const { return pairs_.empty() ? "" : joined("\n") + '\n'; }

 private:
  std::vector<std::string> pairs_;
};

Pairs noise_pairs(const sim::Noise& noise) {
  const sim::Noise standard;
  return Pairs()
      .number("sigma", noise.sigma, standard.sigma)
      .number("autocorrelation", noise.autocorrelation, standard.autocorrelation)
      .number("spike_probability", noise.spike_probability, standard.spike_probability)
      .number("spike_low", noise.spike_low, standard.spike_low)
      .number("spike_high", noise.spike_high, standard.spike_high)
      .number("drift", noise.drift, standard.drift);
}

Pairs interference_pairs(const sim::Interference& interference) {
  const sim::Interference standard;
  return Pairs()
      .number("slowdown", interference.slowdown, standard.slowdown)
      .integer("on", interference.on, standard.on)
      .integer("off", interference.off, standard.off)
      .integer("phase", interference.phase, standard.phase);
}

Pairs network_pairs(const sim::Link& link) {
  Pairs pairs;
  if (link.bytes_per_second > 0.0) {
    pairs.raw("rate", '"' + json_number(link.bytes_per_second) + "byte\"");
  }
  if (link.delay_seconds > 0.0) {
    pairs.raw("delay", '"' + json_number(link.delay_seconds) + "s\"");
  }
  return pairs;
}

std::string worker_text(const sim::WorkerSpec& worker) {
  const sim::WorkerSpec standard;
  Pairs pairs;
  pairs.raw("name", toml_string(worker.name))
      .text("kind", worker.kind, standard.kind)
      .raw("cores", toml_number(worker.cores))
      .number("overhead", worker.overhead, standard.overhead)
      .number("plateau", worker.plateau, standard.plateau)
      .number("cold_seconds", worker.cold_seconds, standard.cold_seconds)
      .table("noise", noise_pairs(worker.noise))
      .table("interference", interference_pairs(worker.interference))
      .table("network", network_pairs(worker.link))
      .number("gpu_share", worker.gpu_share, standard.gpu_share)
      .integer("min_batch", worker.min_batch, standard.min_batch)
      .integer("max_batch", worker.max_batch, standard.max_batch)
      .integer("granularity", worker.granularity, standard.granularity);
  if (worker.absent) {
    pairs.raw("absent", "true");
  }
  return "\n[[worker]]\n" + pairs.lines();
}

std::string change_text(const sim::Change& change) {
  Pairs pairs;
  if (change.at_step) {
    pairs.raw("at_step", std::to_string(*change.at_step));
  }
  if (change.at_seconds) {
    pairs.raw("at_seconds", toml_number(*change.at_seconds));
  }
  pairs.raw("worker", toml_string(change.worker));
  if (change.cores) {
    pairs.raw("cores", toml_number(*change.cores));
  }
  if (change.event != Event::kSpeed) {
    pairs.raw("event", toml_string(to_string(change.event)));
  }
  return "\n[[change]]\n" + pairs.lines();
}

}  // namespace

std::string to_toml(const sim::ClusterSpec& cluster) {
  const sim::ClusterSpec standard;
  std::string text = Pairs()
                         .raw("name", toml_string(cluster.name))
                         .text("description", cluster.description, standard.description)
                         .number("sample_seconds", cluster.sample_seconds, standard.sample_seconds)
                         .number("common_noise", cluster.common_noise, standard.common_noise)
                         .lines();
  for (const sim::WorkerSpec& worker : cluster.workers) {
    text += worker_text(worker);
  }
  for (const sim::Change& change : cluster.changes) {
    text += change_text(change);
  }
  return text;
}

}  // namespace isochron::io
