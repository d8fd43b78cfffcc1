// Faults for a run of four workers, as elastic_worker takes them, drawn from a seed.
#pragma once

#include <cstdint>
#include <string>

namespace isochron {

// About one every ten steps. Workers 0 and 1 are only slowed down, made short of memory or asked for company, so that
// the job lives on; the others may die, stop and be joined by new ones, which may die too.
std::string chaos(std::uint64_t seed, std::int64_t steps);

}  // namespace isochron
