#include "isochron/io/profile_file.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

#include "isochron/core/trace/utf8.h"
#include "isochron/io/toml_fields.h"
#include "isochron/io/toml_file.h"

namespace isochron::io {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 20U;
constexpr int kMaxDepth = 3;  // the root is 0, its points 1, one of them 2, its seconds 3
constexpr std::int64_t kMaxInteger = std::int64_t{1} << 53U;

[[noreturn]] void refuse(const std::string& message) {
  throw std::invalid_argument(message);
}

json parse_json(std::string_view text) {
  if (text.size() > kMaxBytes) {
    refuse("the file has more than " + std::to_string(kMaxBytes) + " bytes; permitted: at most that many");
  }
  const auto limit_depth = [](int depth, json::parse_event_t event, const json&) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth > kMaxDepth) {
      refuse("values are nested too deeply; permitted: " + std::to_string(kMaxDepth + 1) + " levels");
    }
    return true;
  };
  try {
    return json::parse(text, limit_depth);
  } catch (const json::exception&) {
    refuse("the file is not JSON; permitted: what 'isochron profile' wrote");
  }
}

const json* find(const json& object, const char* key, bool required) {
  const auto found = object.find(key);
  if (found == object.end() && required) {
    refuse(std::string(key) + " is missing");
  }
  return found == object.end() ? nullptr : &*found;
}

void read_text(const json& object, const char* key, std::string& value) {
  if (const json* const found = find(object, key, /*required=*/false)) {
    if (!found->is_string()) {
      refuse(std::string(key) + " is of another type; permitted: text");
    }
    value = one_line(to_utf8(found->get<std::string>()));
  }
}

void read_number(const json& object, const char* key, double& value, bool required = false) {
  if (const json* const found = find(object, key, required)) {
    if (!found->is_number()) {
      refuse(std::string(key) + " is of another type; permitted: a number");
    }
    value = found->get<double>();
  }
}

void read_whole(const json& object, const char* key, std::int64_t& value, bool required = false) {
  if (const json* const found = find(object, key, required)) {
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxInteger)) {
      refuse(std::string(key) + " is of another type or out of range; permitted: a whole number from 0 to 2^53");
    }
    value = found->get<std::int64_t>();
  }
}

const json& object_at(const json& object, const char* key) {
  const json& found = *find(object, key, /*required=*/true);
  if (!found.is_object()) {
    refuse(std::string(key) + " is of another type; permitted: an object");
  }
  return found;
}

plan::ProfilePoint read_point(const json& object) {
  if (!object.is_object()) {
    refuse("points holds something else; permitted: objects");
  }
  plan::ProfilePoint point;
  read_whole(object, "batch", point.batch, /*required=*/true);
  const json& seconds = object_at(object, "seconds");
  read_number(seconds, "p50", point.p50_seconds, /*required=*/true);
  read_number(seconds, "p90", point.p90_seconds, /*required=*/true);
  read_number(object, "bytes", point.bytes);
  read_whole(object, "readings", point.readings);
  return point;
}

plan::Profile read_profile(const json& root) {
  if (!root.is_object()) {
    refuse("the file is not a JSON object; permitted: what 'isochron profile' wrote");
  }
  std::int64_t schema = 0;
  read_whole(root, "schema", schema, /*required=*/true);
  if (schema != kProfileSchema) {
    refuse("schema is " + std::to_string(schema) + "; permitted: " + std::to_string(kProfileSchema));
  }
  plan::Profile profile;
  read_text(root, "model", profile.model);
  read_text(root, "dataset", profile.dataset);
  read_whole(root, "dataset_size", profile.dataset_size);
  read_text(root, "device", profile.device);
  read_text(root, "machine", profile.machine);
  read_number(root, "cores", profile.cores);
  read_whole(root, "threads", profile.threads);
  read_number(root, "parameter_bytes", profile.parameter_bytes, /*required=*/true);
  read_number(root, "prepare_seconds", profile.prepare_seconds);
  read_number(root, "update_seconds", profile.update_seconds);
  read_number(root, "copy_seconds", profile.copy_seconds);
  const json& points = *find(root, "points", /*required=*/true);
  if (!points.is_array()) {
    refuse("points is of another type; permitted: an array");
  }
  for (const json& point : points) {
    profile.points.push_back(read_point(point));
  }
  profile.validate();
  return profile;
}

}  // namespace

std::string to_json(const plan::Profile& profile, std::string_view version) {
  ordered_json points = ordered_json::array();
  for (const plan::ProfilePoint& point : profile.points) {
    points.push_back(
        {{"batch", point.batch},
         {"seconds", {{"p50", point.p50_seconds}, {"p90", point.p90_seconds}}},
         {"bytes", point.bytes},
         {"readings", point.readings}});
  }
  const BentFit fit = profile.fit();
  const ordered_json document{
      {"schema", kProfileSchema},
      {"program", "profile"},
      {"version", version},
      {"model", profile.model},
      {"dataset", profile.dataset},
      {"dataset_size", profile.dataset_size},
      {"device", profile.device},
      {"machine", profile.machine},
      {"cores", profile.cores},
      {"threads", profile.threads},
      {"parameter_bytes", profile.parameter_bytes},
      {"prepare_seconds", profile.prepare_seconds},
      {"update_seconds", profile.update_seconds},
      {"copy_seconds", profile.copy_seconds},
      {"points", std::move(points)},
      {"curve",
       {{"floor", fit.line.floor}, {"fixed", fit.line.fixed}, {"slope", fit.line.slope}, {"misfit", fit.misfit}}}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

plan::Profile parse_profile(std::string_view text, const std::string& file) {
  try {
    return read_profile(parse_json(text));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(file + ": " + error.what());
  }
}

plan::Profile read_profile_file(const std::filesystem::path& path) {
  return parse_profile(read_toml_text(path, "profile"), path.string());
}

}  // namespace isochron::io
