// Any text is a policy and quantities that can be used, or std::invalid_argument of one line's worth.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "hostile_state.h"

#include "isochron/core/error.h"
#include "isochron/core/options.h"
#include "isochron/core/policy/registry.h"
#include "isochron/io/units.h"

namespace {

/// Whether `read` takes the text.
template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

void check_policy(const std::string& text) {
  isochron::Specification specification;
  const bool parsed = accepts([&] { specification = isochron::Specification::parse("policy", text); });
  if (!accepts([&] { (void)isochron::make_policy(text); })) {
    return;
  }
  ISO_CHECK(parsed, "a policy of a text that is no specification");
  // Options must also fit the workers: `static` wants as many weights as there are.
  (void)accepts([&] {
    isochron::Controller controller = isochron::fuzz_controller(text);
    controller.observe(isochron::fuzz_telemetry(controller));
  });
}

void check_units(std::string_view text) {
  double value = 1.0;
  if (accepts([&] { value = isochron::io::parse_rate(text); })) {
    ISO_CHECK(std::isfinite(value) && value > 0.0, "a rate that is none");
  }
  if (accepts([&] { value = isochron::io::parse_duration(text); })) {
    ISO_CHECK(std::isfinite(value) && value >= 0.0, "a duration that is none");
  }
  if (accepts([&] { value = isochron::io::parse_size(text); })) {
    ISO_CHECK(std::isfinite(value) && value >= 0.0, "a size that is none");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_policy(text);
  check_units(text);
  return 0;
}
