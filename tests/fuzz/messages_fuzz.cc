// What workers send each other: bytes that are no message are refused with isochron::Error or std::invalid_argument,
// and one that is read is the same after another way through its bytes. The first byte says which message it is.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/dispatch/messages.h"
#include "isochron/core/error.h"
#include "isochron/core/replica/introduction.h"
#include "isochron/core/replica/progress.h"
#include "isochron/core/replica/step_report.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/server/knowledge.h"

namespace {

template <class Message>
void check_bytes(std::string_view bytes) {
  const std::string again = isochron::encode(isochron::decode<Message>(bytes));
  ISO_CHECK(again == bytes, "a message was read as another one");
}

template <class Message>
void check_text(std::string_view text) {
  const std::string once = Message::decode(std::string(text)).encode();
  ISO_CHECK(Message::decode(once).encode() == once, "a text was read as another one");
}

void check_reports(std::string_view bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  }
  const std::vector<isochron::StepReport> reports = isochron::decode_reports(numbers);
  ISO_CHECK(reports.size() * isochron::kReportNumbers == numbers.size(), "reports of other numbers");
  std::vector<std::int64_t> batches;
  std::vector<isochron::Worker> workers;
  for (const isochron::StepReport& report : reports) {
    const isochron::ReportNumbers once = isochron::encode(report);
    const isochron::ReportNumbers twice = isochron::encode(isochron::decode_report(once));
    ISO_CHECK(std::memcmp(once.data(), twice.data(), sizeof once) == 0, "a report was read as another one");
    batches.push_back(1);
    workers.push_back({.id = static_cast<isochron::WorkerId>(workers.size())});
  }
  (void)isochron::non_finite_ranks(reports);
  (void)isochron::make_telemetry(reports, workers, 0);
  isochron::check_agreement(reports, batches, 0);
}

// What passes can be used as a recovery does: as indices, and as positions of the epoch.
void check_knowledge(std::string_view bytes) {
  constexpr std::int64_t kChunks = 8;
  constexpr std::int64_t kSamples = 1000;
  check_bytes<isochron::server::Knowledge>(bytes);
  const auto knowledge = isochron::decode<isochron::server::Knowledge>(bytes);
  require_possible(knowledge, kChunks, kSamples);
  std::vector<int> server_of(kChunks, -1);
  for (const std::int64_t chunk : knowledge.chunks) {
    server_of.at(static_cast<std::size_t>(chunk)) = 0;
  }
  isochron::Ledger ledger(kSamples);
  ledger.stage({.positions = knowledge.held(), .worker = knowledge.worker});
  for (const isochron::Provenance& from : knowledge.arrivals) {
    ledger.stage({.positions = {.first = from.first, .last = from.last}, .worker = from.worker});
  }
  for (const isochron::UpdateRecord& record : knowledge.records) {
    ledger.stage({.positions = {.first = record.position, .last = record.position + record.worker.batch}});
  }
  ledger.commit();
}

void check(std::string_view bytes) {
  const auto kind = static_cast<unsigned char>(bytes.front()) % 11;
  bytes.remove_prefix(1);
  switch (kind) {
    case 0:
      return check_bytes<isochron::IterationReport>(bytes);
    case 1:
      return check_bytes<isochron::Assignment>(bytes);
    case 2:
      return check_bytes<isochron::PushHeader>(bytes);
    case 3:
      return check_bytes<isochron::PushAnswer>(bytes);
    case 4:
      return check_bytes<isochron::PullHeader>(bytes);
    case 5:
      return check_bytes<isochron::Failure>(bytes);
    case 6:
      return check_text<isochron::ProgressReport>(bytes);
    case 7:
      return check_text<isochron::Introduction>(bytes);
    case 9:
      return check_knowledge(bytes);
    case 10:
      return check_bytes<isochron::server::UpdateCounts>(bytes);
    default:
      return check_reports(bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) {
    try {
      check({reinterpret_cast<const char*>(data), size});
    } catch (const isochron::Error&) {        // NOLINT(bugprone-empty-catch): refused
    } catch (const std::invalid_argument&) {  // NOLINT(bugprone-empty-catch): refused
    }
  }
  return 0;
}
