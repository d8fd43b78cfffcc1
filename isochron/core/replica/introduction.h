// How the workers of a job introduce themselves to one another: what all must share, and what each says of itself.
// Pure; the caller brings introductions round.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/job_settings.h"
#include "isochron/core/state.h"
#include "isochron/core/trace/former_run.h"
#include "isochron/core/worker.h"

namespace isochron {

struct Introduction {
  std::map<std::string, std::string, std::less<>> shared;  // options by name; all workers must give the same
  Worker worker;                                           // its id is not known yet
  std::string host;                                        // that it runs on
  std::vector<FormerSpeed> former;                         // of the workers in an earlier run; from rank 0
  std::string trouble;                                     // what keeps rank 0 from saying so; empty: nothing

  /// What a worker of this version with these settings says. `device` is its kind unless the settings name one.
  static Introduction of(
      const JobSettings& settings, std::string_view version, std::string_view device, std::string host);

  /// As text that travels. decode() throws std::invalid_argument on any other text.
  [[nodiscard]] std::string encode() const;
  static Introduction decode(const std::string& text);
};

/// All workers by rank, which is their id; who has no name gets one, of the host and the place among the ranks there:
/// node7-0, or worker-0 where the host is not known. Throws std::invalid_argument naming option, rank
/// and values if they do not share what they must, or what rank 0 could not read.
std::vector<Worker> agree(std::span<const Introduction> introductions);

/// Why a worker of the job does not accept the newcomer, or nothing.
std::string objection(const Introduction& newcomer, const Introduction& own);

}  // namespace isochron
