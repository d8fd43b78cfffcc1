// Which mpirun there is, and which options it needs to run unequal workers on one host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isochron::emulate {

enum class MpiFamily : std::uint8_t { kOpenMpi5, kOpenMpi, kHydra, kUnknown };  // kOpenMpi: before 5

struct Mpirun {
  std::string path;
  std::string version;  // as it says itself, its first line
  MpiFamily family = MpiFamily::kUnknown;
};

/// `wanted`, or if empty the one beside this program, the one this program was built with, or the first on the PATH.
/// Throws std::invalid_argument if `wanted` is no program, isochron::Error if there is none at all.
[[nodiscard]] Mpirun find_mpirun(const std::string& wanted);

/// By the text of `mpirun --version`.
[[nodiscard]] MpiFamily parse_family(const std::string& version);

struct MpirunOptions {
  std::int64_t workers = 1;
  bool as_root = false;
  bool recovery = true;  // a lost worker does not end the job, where this mpirun can do that
  std::string hub;  // workers are in networks of their own and reach mpirun by this interface of its; empty: they share
};

/// The words before the program of the workers. Throws isochron::Error if this mpirun cannot reach into networks.
[[nodiscard]] std::vector<std::string> mpirun_command(const Mpirun& mpirun, const MpirunOptions& options);

}  // namespace isochron::emulate
