#include "isochron/core/error.h"

namespace isochron::detail {

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw InvariantError(
      std::string("internal error: ") + message + " (" + condition + " does not hold at " + file + ":" +
      std::to_string(line) + "); please report it");
}

}  // namespace isochron::detail
