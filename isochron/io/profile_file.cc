#include "isochron/io/profile_file.h"

#include <stdexcept>

#include "isochron/core/trace/utf8.h"
#include "isochron/io/bounded_json.h"
#include "isochron/io/toml_fields.h"
#include "isochron/io/toml_file.h"

namespace isochron::io {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMaxProfileBytes = std::size_t{1} << 20U;
constexpr int kMaxProfileDepth = 3;  // the root is 0, its points 1, one of them 2, its seconds 3

json parse_json(std::string_view text) {
  if (text.size() > kMaxProfileBytes) {
    refuse("the file has more than " + std::to_string(kMaxProfileBytes) + " bytes; permitted: at most that many");
  }
  return parse_bounded_json(text, kMaxProfileDepth, "the file is not JSON; permitted: what 'isochron profile' wrote");
}

/// A name that is fit to be printed.
void read_name(const json& object, const char* key, std::string& name) {
  read_optional(object, key, name);
  name = one_line(to_utf8(name));
}

plan::ProfilePoint read_point(const json& object) {
  if (!object.is_object()) {
    refuse_type("points", "objects");
  }
  plan::ProfilePoint point;
  read_required(object, "batch", point.batch);
  const json& seconds = object_member(object, "seconds");
  read_required(seconds, "p50", point.p50_seconds);
  read_required(seconds, "p90", point.p90_seconds);
  read_optional(object, "bytes", point.bytes);
  read_optional(object, "readings", point.readings);
  return point;
}

plan::Profile read_profile(const json& root) {
  if (!root.is_object()) {
    refuse("the file is not a JSON object; permitted: what 'isochron profile' wrote");
  }
  std::int64_t schema = 0;
  read_required(root, "schema", schema);
  if (schema != kProfileSchema) {
    refuse("schema is " + std::to_string(schema) + "; permitted: " + std::to_string(kProfileSchema));
  }
  plan::Profile profile;
  read_name(root, "model", profile.model);
  read_name(root, "dataset", profile.dataset);
  read_optional(root, "dataset_size", profile.dataset_size);
  read_name(root, "device", profile.device);
  read_name(root, "machine", profile.machine);
  read_optional(root, "cores", profile.cores);
  read_optional(root, "threads", profile.threads);
  read_required(root, "parameter_bytes", profile.parameter_bytes);
  read_optional(root, "prepare_seconds", profile.prepare_seconds);
  read_optional(root, "update_seconds", profile.update_seconds);
  read_optional(root, "copy_seconds", profile.copy_seconds);
  for (const json& point : array_member(root, "points")) {
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
