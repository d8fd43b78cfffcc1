// Any bytes are records that survive a round trip and can be drawn, or std::invalid_argument that names the line.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "isochron/core/error.h"
#include "isochron/core/trace/chrome_trace.h"
#include "isochron/core/trace/prometheus.h"
#include "isochron/core/trace/sample_audit.h"
#include "isochron/io/run_log_reader.h"
#include "isochron/view/frame.h"
#include "isochron/view/page_data.h"

namespace {

using isochron::io::RunLogReader;

/// `line` again, read back from its text.
isochron::io::RunLogLine reread(const isochron::io::RunLogLine& line) {
  const auto text = [](const auto& record) { return to_json(record) + "\n"; };
  const bool is_header = std::holds_alternative<isochron::RunHeader>(line);
  std::istringstream stream((is_header ? "" : text(isochron::RunHeader{})) + std::visit(text, line));
  RunLogReader reader(stream, "again");
  if (!is_header) {
    (void)reader.next();
  }
  return reader.next().value();
}

void draw(const isochron::io::RunLogLine& line) {
  isochron::ChromeTrace trace{isochron::RunHeader{}};
  isochron::PrometheusMetrics metrics{isochron::RunHeader{}};
  isochron::view::RunView view{isochron::RunHeader{}};
  std::visit(
      [&](const auto& record) {
        using Record = std::remove_cvref_t<decltype(record)>;
        if constexpr (
            !std::is_same_v<Record, isochron::RunHeader> && !std::is_same_v<Record, isochron::EvaluationRecord>) {
          (void)trace.add(record);
          metrics.observe(record);
          (void)metrics.text();
          view.add(record);
          (void)isochron::view::to_page_json(view, "fuzz");
          (void)isochron::view::frame(view, {});
        }
      },
      line);
}

void check_chain(const std::string& line) {
  if (const auto parts = isochron::split_link(line)) {
    ISO_CHECK(isochron::with_link(parts->line, parts->link) == line, "the parts of a line do not make it");
  }
}

void audit(const isochron::io::RunLogLine& line, std::optional<isochron::SampleAuditor>& auditor) {
  if (const auto* const header = std::get_if<isochron::RunHeader>(&line)) {
    auditor.emplace(*header);
  } else if (const auto* const step = std::get_if<isochron::StepRecord>(&line)) {
    auditor->add(*step, 1);
  } else if (const auto* const update = std::get_if<isochron::UpdateRecord>(&line)) {
    auditor->add(*update, 1);
  } else if (const auto* const event = std::get_if<isochron::EventRecord>(&line)) {
    auditor->add(*event, 1);
  }
}

void check(const std::string& bytes) {
  check_chain(bytes.substr(0, bytes.find('\n')));
  std::istringstream stream(bytes);
  RunLogReader reader(stream, "fuzz.jsonl");
  const auto text = [](const auto& record) { return to_json(record); };
  std::optional<isochron::SampleAuditor> auditor;
  try {
    while (const auto line = reader.next()) {
      audit(*line, auditor);
      ISO_CHECK(std::visit(text, reread(*line)) == std::visit(text, *line), "the round trip changed the record");
      draw(*line);
    }
  } catch (const std::invalid_argument& refusal) {
    ISO_CHECK(std::string_view(refusal.what()).starts_with("fuzz.jsonl:"), "a refusal without its line");
  }
  if (auditor) {
    for (const isochron::EpochAudit& epoch : auditor->finish().epochs) {
      ISO_CHECK(epoch.used >= 0 && epoch.doubled >= 0 && epoch.missing >= 0, "a count below zero");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check({reinterpret_cast<const char*>(data), size});
  return 0;
}
