// What went wrong, as text, for tests of what is refused by the environment.
#pragma once

#include <string>

#include "isochron/core/error.h"

namespace isochron {

/// The text of the isochron::Error that `action` throws.
template <class Action>
std::string failure(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace isochron
