#include "isochron/emulate/owner.h"

#include <fstream>
#include <regex>
#include <sstream>

#include <unistd.h>

namespace isochron::emulate {
namespace {

/// In clock ticks after the boot; empty if there is no such process.
std::string start_of(const std::string& pid) {
  std::ostringstream content;
  content << std::ifstream("/proc/" + pid + "/stat").rdbuf();
  std::string text = content.str();
  // The name of the program comes second, in brackets, and may hold anything; the start is the 20th field after it.
  text.erase(0, text.rfind(')') + 1);
  std::istringstream fields(text);
  std::string field;
  for (int i = 0; i < 20; ++i) {
    fields >> field;
  }
  return fields ? field : "";
}

}  // namespace

std::string owner_name() {
  const std::string pid = std::to_string(getpid());
  return "isochron-" + pid + "-" + start_of(pid);
}

bool is_orphan(std::string_view name) {
  static const std::regex pattern("isochron-([0-9]+)-([0-9]+)(-.*)?|isochron-mpi-([0-9]+)-.*");
  std::match_results<std::string_view::const_iterator> parts;
  if (!std::regex_match(name.begin(), name.end(), parts, pattern)) {
    return false;
  }
  return parts[4].matched ? start_of(parts[4]).empty() : start_of(parts[1]) != parts[2].str();
}

}  // namespace isochron::emulate
