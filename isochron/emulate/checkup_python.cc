#include <map>
#include <sstream>

#include "isochron/emulate/checkup.h"
#include "isochron/emulate/process.h"

namespace isochron::emulate {
namespace {

/// Prints "NAME VERSION" for what is installed; imports none of it, which would take seconds.
constexpr const char* kScript = R"(
import importlib.metadata, sys
print("python", "%d.%d.%d" % sys.version_info[:3])
print("supported", sys.version_info >= (3, 10))
for name in ("isochron", "torch", "tensorflow", "tensorflow-cpu"):
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
import importlib.util
print("package", importlib.util.find_spec("isochron") is not None)
)";

Finding check_frameworks(const std::map<std::string, std::string>& found) {
  Finding finding{.check = "frameworks"};
  for (const auto& [name, title] :
       {std::pair{"torch", "PyTorch"},
        std::pair{"tensorflow", "TensorFlow"},
        std::pair{"tensorflow-cpu", "TensorFlow"}}) {
    if (const auto version = found.find(name); version != found.end()) {
      finding.text += (finding.text.empty() ? "" : ", ") + std::string(title) + " " + version->second;
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
  const std::string program = find_program("python3");
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
    package.remedy = "pip install isochron[torch], or `pip install .` in a clone, into the environment that you use";
  } else if (found.contains("isochron")) {
    package.text += ", version " + found["isochron"];
  }
  return {python, package, check_frameworks(found)};
}

}  // namespace isochron::emulate
