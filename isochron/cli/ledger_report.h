// What `isochron ledger` found in a run log: whether it is whole, and whether it proves that each sample was used once.
#pragma once

#include <cstdint>
#include <istream>
#include <string>

#include <nlohmann/json.hpp>

#include "isochron/core/trace/sample_audit.h"

namespace isochron::cli {

struct LedgerReport {
  SampleAudit audit;
  bool chained = false;
  std::int64_t broken_line = 0;      // the first that does not fit the chain; 0: none
  std::int64_t cut_off_line = 0;     // the last, if it lacks its end; 0: it does not
  std::int64_t unreadable_line = 0;  // nothing behind it was looked at; 0: all could be read
  std::string unreadable_words;

  [[nodiscard]] bool proven() const;
};

/// `name` is what errors call the stream. Throws std::invalid_argument if it does not begin like a run log.
[[nodiscard]] LedgerReport read_ledger(std::istream& log, const std::string& name);

/// A table of the epochs, what is wrong and where, and the verdict.
[[nodiscard]] std::string to_text(const LedgerReport& report);
/// One sentence that begins with "Proven" or "Not proven".
[[nodiscard]] std::string verdict(const LedgerReport& report);

[[nodiscard]] nlohmann::ordered_json details_of(const LedgerReport& report);
[[nodiscard]] nlohmann::ordered_json epochs_of(const LedgerReport& report);

}  // namespace isochron::cli
