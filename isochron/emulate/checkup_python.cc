#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "isochron/emulate/checkup.h"
#include "isochron/emulate/process.h"

namespace isochron::emulate {
namespace {

/// Prints "NAME VERSION" for what is installed; imports none of it, which would take seconds. What lies in the current
/// folder is not looked at, and a folder that is merely called isochron, as in a clone, has no origin.
constexpr const char* kScript = R"(
import sys
if sys.path[0] == "":
    del sys.path[0]
import importlib.metadata, importlib.util
print("python", "%d.%d.%d" % sys.version_info[:3])
print("supported", sys.version_info >= (3, 10))
for name in ("isochron", "torch", "tensorflow", "tensorflow-cpu"):
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
spec = importlib.util.find_spec("isochron")
print("package", spec is not None and spec.origin is not None)
)";

struct Framework {
  const char* package;
  const char* title;
  const char* extra;
  std::pair<int, int> oldest;  // that is supported; pyproject.toml asks for it
};

constexpr std::array<Framework, 3> kFrameworks = {{
    {"torch", "PyTorch", "torch", {2, 6}},
    {"tensorflow", "TensorFlow", "tensorflow", {2, 21}},
    {"tensorflow-cpu", "TensorFlow", "tensorflow", {2, 21}},
}};

/// Major and minor number of "2.13.0+cpu".
std::pair<int, int> release_of(std::string_view version) {
  std::pair<int, int> release;
  const char* const end = version.data() + version.size();
  const char* const point = std::from_chars(version.data(), end, release.first).ptr;
  if (point != end) {
    std::from_chars(point + 1, end, release.second);
  }
  return release;
}

/// The one that runs `python -m isochron`, else the one beside this program, as in an environment that holds the wheel,
/// else that of the active environment, else the first on the PATH; empty if there is none.
std::string find_python() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path environment = variable("VIRTUAL_ENV");
  for (const std::filesystem::path& place :
       {variable("ISOCHRON_INTERPRETER"),
        self.parent_path() / "python3",
        environment.empty() ? environment : environment / "bin" / "python3"}) {
    if (place.is_absolute() && !find_program(place.string()).empty()) {
      return place.string();
    }
  }
  return find_program("python3");
}

Finding check_frameworks(const std::map<std::string, std::string>& found) {
  Finding finding{.check = "frameworks"};
  for (const Framework& framework : kFrameworks) {
    const auto version = found.find(framework.package);
    if (version == found.end()) {
      continue;
    }
    finding.text += (finding.text.empty() ? "" : ", ") + std::string(framework.title) + " " + version->second;
    if (release_of(version->second) < framework.oldest) {
      finding.health = Health::kWarn;
      finding.remedy += (finding.remedy.empty() ? "" : "; ") + std::string(framework.title) + " " +
                        std::to_string(framework.oldest.first) + "." + std::to_string(framework.oldest.second) +
                        " or later is supported: pip install --upgrade isochron[" + framework.extra + "]";
    }
  }
  if (finding.text.empty()) {
    finding.health = Health::kWarn;
    finding.text = "this Python has neither PyTorch nor TensorFlow";
    finding.remedy = "pip install isochron[torch], or isochron[tensorflow]";
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_python() {
  Finding python{.check = "Python"};
  const std::string program = find_python();
  const Outcome outcome = program.empty() ? Outcome{.status = kCannotStart} : run({program, "-c", kScript});
  if (outcome.status != 0) {
    python.health = Health::kWarn;
    python.text = program.empty() ? "there is no python3 on the PATH" : program + " does not work";
    python.remedy = "install Python 3.10 or later; the native engine needs none";
    return {python};
  }
  std::map<std::string, std::string> found;
  std::istringstream lines(outcome.output);
  for (std::string name, version; lines >> name >> version;) {
    found.emplace(name, version);
  }
  python.text = found["python"] + " at " + program;
  if (found["supported"] != "True") {
    python.health = Health::kWarn;
    python.remedy = "use Python 3.10 or later";
  }
  Finding package{.check = "isochron in Python", .text = "the package is there"};
  if (found["package"] != "True") {
    package.health = Health::kWarn;
    package.text = program + " has no package isochron";
    package.remedy =
        "pip install isochron[torch] into the environment that you use, or, from a clone, `make wheel` and "
        "pip install dist/isochron-*.whl";
  } else if (found.contains("isochron")) {
    package.text += ", version " + found["isochron"];
  }
  return {python, package, check_frameworks(found)};
}

}  // namespace isochron::emulate
