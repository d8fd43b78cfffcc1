#include "isochron/baselines/kind_median.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "isochron/core/error.h"

namespace isochron {
namespace {

// The upper one of two middle values.
double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

std::vector<double> fill_by_kind(const Roster& roster, std::vector<double> values) {
  ISO_CHECK(values.size() == roster.workers.size(), "one value per worker");
  if (std::ranges::find(values, 0.0) == values.end()) {
    return values;
  }
  std::map<std::string_view, std::vector<double>> known;
  std::vector<double> all;
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (values[k] > 0.0) {
      known[roster.workers[k].kind].push_back(values[k]);
      all.push_back(values[k]);
    }
  }
  const double of_all = all.empty() ? 1.0 : median(all);
  std::map<std::string_view, double> of_kind;
  for (auto& [kind, list] : known) {
    of_kind[kind] = median(list);
  }
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (values[k] == 0.0) {
      const auto found = of_kind.find(roster.workers[k].kind);
      values[k] = found == of_kind.end() ? of_all : found->second;
    }
  }
  return values;
}

}  // namespace isochron
