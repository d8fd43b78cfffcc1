#include "isochron/io/machines_file.h"

#include <set>
#include <stdexcept>

#include "isochron/core/error.h"
#include "isochron/io/profile_file.h"
#include "isochron/io/toml_fields.h"
#include "isochron/io/toml_file.h"
#include "isochron/io/units.h"
#include "isochron/sim/cluster.h"

namespace isochron::io {
namespace {

using plan::Group;
using plan::Machine;
using plan::Profile;

constexpr std::int64_t kMaxMachines = 10'000;
constexpr double kLeastSpeed = 1e-6;

/// The profile that a machine is planned by.
Profile choose_profile(TomlFields& fields, const Profile& common, const FindProfile& find_profile) {
  if (fields.node("profile") == nullptr) {
    return common;
  }
  std::string name;
  fields.text("profile", name);
  Profile own;
  try {
    own = find_profile(name);
  } catch (const std::invalid_argument& error) {
    fields.fail("profile", "profile: " + std::string(error.what()));
  }
  if (own.model != common.model || own.dataset != common.dataset) {
    fields.fail(
        "profile",
        "profile is of " + own.model + " on " + own.dataset + "; permitted: of " + common.model + " on " +
            common.dataset);
  }
  return own;
}

void read_link(TomlFields& machine, const std::string& file, sim::Link& link) {
  if (const toml::table* const found = machine.table("network")) {
    TomlFields fields(file, *found);
    fields.parsed("rate", parse_rate, link.bytes_per_second);
    fields.parsed("delay", parse_duration, link.delay_seconds);
    fields.finish();
  }
}

void read_bounds(TomlFields& fields, const Profile& profile, Machine& machine) {
  fields.integer("min_batch", machine.min_batch);
  fields.integer("max_batch", machine.max_batch);
  fields.integer("granularity", machine.granularity);
  if (fields.node("memory") != nullptr) {
    if (fields.node("max_batch") != nullptr) {
      fields.fail("memory", "memory is given with max_batch; permitted: one of the two");
    }
    double bytes = 0.0;
    fields.parsed("memory", parse_size, bytes);
    machine.max_batch = profile.batch_for_memory(bytes);
    if (machine.max_batch < 1) {
      fields.refuse("memory", "what the model takes for a batch of 1, or more");
    }
  }
  const auto require = [&](bool holds, const char* key, std::int64_t value, const char* permitted) {
    if (!holds) {
      fields.fail(key, std::string(key) + " is " + std::to_string(value) + "; permitted: " + permitted);
    }
  };
  require(machine.min_batch >= 0, "min_batch", machine.min_batch, "0 or more");
  require(machine.max_batch >= machine.min_batch, "max_batch", machine.max_batch, "min_batch or more");
  require(machine.granularity >= 1, "granularity", machine.granularity, "1 or more");
}

Group read_machine(
    const std::string& file,
    const toml::table& table,
    std::size_t number,
    const Profile& common,
    const FindProfile& find_profile) {
  TomlFields fields(file, table);
  std::string name = "machine-" + std::to_string(number);
  fields.text("name", name);
  double speed = 1.0;
  fields.number("speed", speed);
  if (speed < kLeastSpeed || speed > 1.0 / kLeastSpeed) {
    fields.refuse("speed", "0.000001 to 1000000");
  }
  const Profile profile = choose_profile(fields, common, find_profile);
  Group group;
  try {
    group.machine = make_machine(profile, speed, has_spare_core(profile));
  } catch (const std::invalid_argument& error) {  // times that are no longer numbers
    fields.fail("speed", error.what());
  }
  group.machine.name = one_line(name);
  fields.integer("count", group.count);
  if (group.count < 1 || group.count > kMaxMachines) {
    fields.refuse("count", "1 to " + std::to_string(kMaxMachines));
  }
  read_bounds(fields, profile, group.machine);
  fields.number("noise", group.machine.noise);
  if (!(group.machine.noise >= 0.0 && group.machine.noise <= sim::kMostNoise)) {
    fields.refuse("noise", "0 to 3");
  }
  fields.number("price_per_hour", group.machine.price_per_hour);
  if (group.machine.price_per_hour < 0.0) {
    fields.refuse("price_per_hour", "a finite number, 0 or more");
  }
  read_link(fields, file, group.machine.link);
  fields.finish();
  return group;
}

}  // namespace

std::vector<Group> parse_machines(
    std::string_view text, const std::string& file, const Profile& common, const FindProfile& find_profile) {
  const toml::table root = parse_toml(text, file);
  TomlFields fields(file, root);
  if (root.contains("worker")) {
    fields.fail("worker", "this is a cluster file; permitted: tables that start with [[machine]], or --cluster");
  }
  std::vector<Group> groups;
  std::set<std::string> names;
  for (const toml::table* const table : fields.tables("machine")) {
    groups.push_back(read_machine(file, *table, groups.size(), common, find_profile));
    const TomlFields place(file, *table);
    if (!names.insert(groups.back().machine.name).second) {
      place.fail("name", "name is \"" + groups.back().machine.name + "\" again; permitted: distinct names");
    }
    if (plan::count_machines(groups) > kMaxMachines) {
      place.fail("count", "more than " + std::to_string(kMaxMachines) + " machines; permitted: at most that many");
    }
  }
  fields.finish();
  if (groups.empty()) {
    fields.fail({}, "no machine; permitted: one or more tables that start with [[machine]]");
  }
  return groups;
}

std::vector<Group> read_machines_file(const std::filesystem::path& path, const Profile& common) {
  const auto find_profile = [&path](const std::string& name) {
    try {
      return read_profile_file(path.parent_path() / name);
    } catch (const Error& error) {
      throw std::invalid_argument(error.what());
    }
  };
  return parse_machines(read_toml_text(path, "machines file"), path.string(), common, find_profile);
}

}  // namespace isochron::io
