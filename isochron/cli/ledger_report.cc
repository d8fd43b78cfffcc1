#include "isochron/cli/ledger_report.h"

#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "isochron/cli/table.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::cli {
namespace {

using nlohmann::ordered_json;

std::string positions_text(const Interval& positions) {
  return positions.size() == 1
             ? "position " + std::to_string(positions.first)
             : "positions " + std::to_string(positions.first) + " to " + std::to_string(positions.last - 1);
}

std::string line_text(std::int64_t line) {
  return line == 0 ? "" : "line " + std::to_string(line) + ": ";
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : separator) + word;
  }
  return text;
}

std::int64_t sum_of(const SampleAudit& audit, std::int64_t EpochAudit::* count) {
  std::int64_t sum = 0;
  for (const EpochAudit& epoch : audit.epochs) {
    if (__builtin_add_overflow(sum, epoch.*count, &sum)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return sum;
}

/// What is wrong with the log as a whole.
std::vector<std::string> damage(const LedgerReport& report) {
  std::vector<std::string> words;
  if (report.unreadable_line != 0) {
    words.push_back("line " + std::to_string(report.unreadable_line) + " cannot be read");
  }
  if (!report.chained) {
    words.emplace_back("the log has no chain, so that changes would not show");
  }
  if (report.broken_line != 0) {
    words.push_back("line " + std::to_string(report.broken_line) + " does not fit the chain");
  }
  if (report.cut_off_line != 0) {
    words.push_back("the last line, " + std::to_string(report.cut_off_line) + ", is cut off");
  }
  return words;
}

std::string reasons(const LedgerReport& report) {
  const SampleAudit& audit = report.audit;
  std::vector<std::string> words = damage(report);
  if (const std::int64_t doubled = sum_of(audit, &EpochAudit::doubled); doubled > 0) {
    words.push_back("samples were used again, " + std::to_string(doubled) + " times in all");
  }
  if (const std::int64_t missing = sum_of(audit, &EpochAudit::missing); missing > 0) {
    words.push_back(std::to_string(missing) + " samples were not used");
  }
  if (!audit.findings.empty()) {
    words.push_back(audit.findings.front().words);
  }
  if (audit.finding_count > 1) {
    words.push_back("and " + std::to_string(audit.finding_count - 1) + " more like that");
  }
  return joined(words, "; ");
}

std::string epochs_text(std::int64_t count) {
  return count == 1 ? "the finished epoch" : "the " + std::to_string(count) + " finished epochs";
}

std::string account_of(const SampleAudit& audit) {
  std::string text = std::to_string(audit.steps) + " steps count";
  if (audit.taken_back > 0) {
    text += ", " + std::to_string(audit.taken_back) + " were taken back";
  }
  for (const auto& [name, count] : audit.events) {
    text += "; " + name + " " + std::to_string(count);
  }
  return text;
}

/// What is wrong, a line each.
std::string places(const LedgerReport& report) {
  std::string text;
  for (const std::string& words : damage(report)) {
    text += words + "\n";
  }
  if (!report.unreadable_words.empty()) {
    text += report.unreadable_words + "; nothing behind it was looked at\n";
  }
  for (const AuditFinding& finding : report.audit.findings) {
    text += line_text(finding.line) + finding.words + "\n";
  }
  for (const EpochAudit& epoch : report.audit.epochs) {
    const std::string name = "epoch " + std::to_string(epoch.epoch) + ": ";
    for (const DoubleUse& use : epoch.twice) {
      text += line_text(use.line) + name + positions_text(use.positions) + " used again in step " +
              std::to_string(use.step) + " by worker " + std::to_string(use.worker) + "\n";
    }
    for (const MissingUse& gap : epoch.gaps) {
      text += name + positions_text(gap.positions) + " not used" +
              (gap.after_step < 0 ? "" : ", after step " + std::to_string(gap.after_step)) + "\n";
    }
  }
  return text;
}

}  // namespace

bool LedgerReport::proven() const {
  return audit.proven() && chained && broken_line == 0 && cut_off_line == 0 && unreadable_line == 0;
}

LedgerReport read_ledger(std::istream& log, const std::string& name) {
  io::RunLogReader reader(log, name);
  std::optional<io::RunLogLine> line = reader.next();
  if (!line) {
    throw std::invalid_argument(name + ": it has no whole line; permitted: a run log, as --log writes it");
  }
  SampleAuditor auditor(std::get<RunHeader>(*line));
  LedgerReport report;
  try {
    while ((line = reader.next())) {
      if (const auto* const step = std::get_if<StepRecord>(&*line)) {
        auditor.add(*step, reader.line_number());
      } else if (const auto* const update = std::get_if<UpdateRecord>(&*line)) {
        auditor.add(*update, reader.line_number());
      } else if (const auto* const event = std::get_if<EventRecord>(&*line)) {
        auditor.add(*event, reader.line_number());
      }
    }
  } catch (const std::invalid_argument& error) {
    report.unreadable_line = reader.line_number();
    report.unreadable_words = error.what();
  }
  report.audit = auditor.finish();
  report.chained = reader.chained();
  report.broken_line = reader.broken_line();
  report.cut_off_line = reader.cut_off() ? reader.line_number() : 0;
  return report;
}

std::string verdict(const LedgerReport& report) {
  const SampleAudit& audit = report.audit;
  if (!report.proven()) {
    return "Not proven: " + reasons(report) + ".";
  }
  const std::int64_t finished = audit.finished_epochs();
  std::vector<std::string> words;
  const std::int64_t whole = finished - audit.epochs_cut_short();
  if (whole > 0) {
    words.push_back("Proven: every sample of " + epochs_text(whole) + " was used exactly once");
  } else {
    words.emplace_back("Proven so far: no sample was used more than once, and no epoch is finished");
  }
  const std::string of_all = " of " + std::to_string(audit.header.samples_per_epoch) + " samples used";
  for (const EpochAudit& epoch : audit.epochs) {
    if (epoch.cut_short) {
      words.push_back(
          "epoch " + std::to_string(epoch.epoch) + " was ended early, " + std::to_string(epoch.used) + of_all);
    }
  }
  if (!audit.epochs.empty() && !audit.epochs.back().finished) {
    const EpochAudit& last = audit.epochs.back();
    words.push_back(
        "epoch " + std::to_string(last.epoch) + " is unfinished, " + std::to_string(last.used) +
        (audit.header.samples_per_epoch > 0 ? of_all : std::string(" samples used so far")));
  }
  if (audit.steps < audit.header.total_steps) {
    words.push_back(
        "the log ends after " + std::to_string(audit.steps) + " of " + std::to_string(audit.header.total_steps) +
        " steps");
  }
  return joined(words, "; ") + ".";
}

std::string to_text(const LedgerReport& report) {
  std::string text = account_of(report.audit) + "\n\n";
  if (!report.audit.epochs.empty()) {
    std::vector<std::vector<std::string>> rows{{"epoch", "used", "doubled", "missing", "finished"}};
    for (const EpochAudit& epoch : report.audit.epochs) {
      rows.push_back(
          {std::to_string(epoch.epoch),
           std::to_string(epoch.used),
           std::to_string(epoch.doubled),
           std::to_string(epoch.missing),
           epoch.cut_short  ? "early"
           : epoch.finished ? "yes"
                            : "no"});
    }
    text += format_table(rows) + "\n";
  }
  if (const std::string wrong = places(report); !wrong.empty()) {
    text += wrong + "\n";
  }
  return text + verdict(report) + "\n";
}

ordered_json details_of(const LedgerReport& report) {
  const SampleAudit& audit = report.audit;
  ordered_json findings = ordered_json::array();
  for (const AuditFinding& finding : audit.findings) {
    findings.push_back({{"line", finding.line}, {"finding", finding.words}});
  }
  return {
      {"proven", report.proven()},
      {"verdict", verdict(report)},
      {"samples_per_epoch", audit.header.samples_per_epoch},
      {"global_batch", audit.header.global_batch},
      {"total_steps", audit.header.total_steps},
      {"steps", audit.steps},
      {"taken_back", audit.taken_back},
      {"events", audit.events},
      {"chained", report.chained},
      {"broken_line", report.broken_line},
      {"cut_off_line", report.cut_off_line},
      {"unreadable_line", report.unreadable_line},
      {"finding_count", audit.finding_count},
      {"findings", std::move(findings)}};
}

ordered_json epochs_of(const LedgerReport& report) {
  ordered_json epochs = ordered_json::array();
  for (const EpochAudit& epoch : report.audit.epochs) {
    ordered_json twice = ordered_json::array();
    for (const DoubleUse& use : epoch.twice) {
      twice.push_back(
          {{"line", use.line},
           {"step", use.step},
           {"worker", use.worker},
           {"first", use.positions.first},
           {"last", use.positions.last - 1}});
    }
    ordered_json gaps = ordered_json::array();
    for (const MissingUse& gap : epoch.gaps) {
      gaps.push_back(
          {{"after_step", gap.after_step}, {"first", gap.positions.first}, {"last", gap.positions.last - 1}});
    }
    epochs.push_back(
        {{"epoch", epoch.epoch},
         {"finished", epoch.finished},
         {"used", epoch.used},
         {"doubled", epoch.doubled},
         {"missing", epoch.missing},
         {"used_again", std::move(twice)},
         {"not_used", std::move(gaps)}});
  }
  return epochs;
}

}  // namespace isochron::cli
