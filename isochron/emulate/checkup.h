// Whether this machine can run and emulate jobs, found out by trying: what `isochron doctor` says. Every check takes a
// second at most and leaves nothing behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace isochron::emulate {

enum class Health : std::uint8_t {
  kOk,
  kWarn,  // something works less well, or not on this machine
  kFail,  // no job can run
};
[[nodiscard]] std::string_view to_string(Health health);

struct Finding {
  std::string check;
  Health health = Health::kOk;
  std::string text;    // what was found
  std::string remedy;  // how to repair it; empty if it need not be
};

/// mpirun, whether it starts processes, survives lost ones and supports threads; ports on this machine.
[[nodiscard]] std::vector<Finding> check_mpi();

/// What a cluster is emulated with: CPU quotas and links.
[[nodiscard]] std::vector<Finding> check_limits();

/// The Python that runs `python -m isochron`, else the python3 beside this program, of the active environment or on the
/// PATH: its version, our package and the frameworks in it.
[[nodiscard]] std::vector<Finding> check_python();

/// Cores, memory, clocks and GPUs; the datasets in `data`.
[[nodiscard]] std::vector<Finding> check_machine(const std::filesystem::path& data);

}  // namespace isochron::emulate
