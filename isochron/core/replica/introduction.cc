#include "isochron/core/replica/introduction.h"

#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "isochron/core/replica/progress.h"

namespace isochron {
namespace {

constexpr std::string_view kWorker = "worker.";  // before the fields of the worker; options have no such names

// Nothing if there is none.
std::string difference(const Introduction& theirs, const Introduction& first, const std::string& whose) {
  for (const auto& [name, value] : theirs.shared) {
    const auto expected = first.shared.find(name);
    if (expected == first.shared.end() || value != expected->second) {
      return name + " is " + value + " on " + whose + "; permitted: what rank 0 has, " +
             (expected == first.shared.end() ? "nothing" : expected->second);
    }
  }
  for (const auto& [name, value] : first.shared) {
    if (!theirs.shared.contains(name)) {
      return name + " is nothing on " + whose + "; permitted: what rank 0 has, " + value;
    }
  }
  return {};
}

// Nothing if it is not there.
std::string value_of(const Introduction& introduction, std::string_view option) {
  const auto found = introduction.shared.find(option);
  return found == introduction.shared.end() ? std::string() : found->second;
}

struct Described {
  WorkerState worker;
  std::string host;
  std::vector<FormerSpeed> former;
  std::string trouble;
  void exchange(StateExchange& state) {
    state.part("worker", worker);
    state.field("worker.host", host);
    state.parts("worker.former", former);
    state.field("worker.trouble", trouble);
  }
};

std::string_view without_domain(std::string_view host) {
  return host.substr(0, host.find('.'));
}

/// Names for the ranks in order: node7-0, node7-1, node8-0; with domains if hosts of several have one name. Nothing
/// where the host is not known.
std::vector<std::string> names_by_host(std::span<const Introduction> introductions) {
  std::set<std::string_view> hosts;
  std::set<std::string_view> short_hosts;
  for (const Introduction& introduction : introductions) {
    hosts.insert(introduction.host);
    short_hosts.insert(without_domain(introduction.host));
  }
  std::vector<std::string> names(introductions.size());
  std::map<std::string_view, std::size_t> ranks;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    if (const std::string_view host = introductions[rank].host; !host.empty()) {
      names[rank] = short_hosts.size() == hosts.size() ? without_domain(host) : host;
      names[rank] += "-" + std::to_string(ranks[host]++);
    }
  }
  return names;
}

}  // namespace

Introduction Introduction::of(
    const JobSettings& settings, std::string_view version, std::string_view device, std::string host) {
  Introduction introduction{
      .shared = option_texts(settings, kAgreed),
      .worker = describe(settings, device),
      .host = std::move(host),
      .former = {},
      .trouble = {}};
  introduction.shared.emplace("version", version);
  return introduction;
}

std::string Introduction::encode() const {
  Described described{{worker}, host, former, trouble};
  State state = save_state(described);
  state.words.insert(shared.begin(), shared.end());
  return state.serialize();
}

Introduction Introduction::decode(const std::string& text) {
  const State state = State::parse(text);
  Described described;
  restore_state(described, state);
  Introduction introduction{
      .shared = {},
      .worker = described.worker.worker,
      .host = described.host,
      .former = described.former,
      .trouble = described.trouble};
  for (const auto& [name, value] : state.words) {
    if (!name.starts_with(kWorker)) {
      introduction.shared.emplace(name, value);
    }
  }
  return introduction;
}

std::vector<Worker> agree(std::span<const Introduction> introductions) {
  std::vector<Worker> workers;
  const std::vector<std::string> names = names_by_host(introductions);
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    const std::string trouble = difference(introductions[rank], introductions[0], "rank " + std::to_string(rank));
    if (!trouble.empty()) {
      throw std::invalid_argument(trouble);
    }
    Worker worker = introductions[rank].worker;
    worker.id = rank;
    worker.name = worker.name.empty() ? names[rank] : worker.name;
    worker.name = name_of(worker);
    workers.push_back(std::move(worker));
  }
  if (!introductions.empty() && !introductions[0].trouble.empty()) {
    throw std::invalid_argument(introductions[0].trouble);
  }
  const auto asked = introductions.empty() ? std::string() : value_of(introductions[0], "start_from");
  if (!asked.empty()) {
    take_over(introductions[0].former, workers);
  }
  return workers;
}

std::string objection(const Introduction& newcomer, const Introduction& own) {
  return difference(newcomer, own, "the newcomer");
}

}  // namespace isochron
