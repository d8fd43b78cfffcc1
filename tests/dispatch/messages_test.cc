#include "isochron/core/dispatch/messages.h"

#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

Assignment full_assignment() {
  Assignment assignment{.sequence = 7, .first = 12, .last = 30, .iteration = 4, .lead = 2, .round_samples = 40};
  assignment.decision = {.step = 3, .batch_sizes = {18, 22}, .learning_rate_factor = 0.5, .changed = true};
  assignment.decision.reason = Reason::kSpeedChanged;
  assignment.decision.words = "worker 1 is slower";
  UpdateRecord record{.step = 9, .epoch = 1, .position = 5, .seconds = 0.5};
  record.worker = {.id = 1, .batch = 6, .start_seconds = 0.25, .compute_seconds = 0.125};
  record.loss = 2.5;
  record.reason = Reason::kKept;
  record.staleness = 3;
  assignment.records = {record, record};
  assignment.stopping = true;
  assignment.stop_signal = 15;
  assignment.non_finite = "the gradient of worker-1";
  assignment.controller = std::string("n step 0\n\0", 10);
  return assignment;
}

TEST(MessagesTest, AnAssignmentSurvivesItsBytes) {
  const Assignment sent = full_assignment();
  const auto got = decode<Assignment>(encode(sent));
  EXPECT_EQ(got.sequence, 7);
  EXPECT_FALSE(got.barrier);
  EXPECT_EQ(got.batch(), 18);
  EXPECT_EQ(got.iteration, 4);
  EXPECT_EQ(got.lead, 2);
  EXPECT_EQ(got.round_samples, 40);
  EXPECT_EQ(got.decision.step, 3);
  EXPECT_EQ(got.decision.batch_sizes, sent.decision.batch_sizes);
  EXPECT_EQ(got.decision.learning_rate_factor, 0.5);
  EXPECT_TRUE(got.decision.changed);
  EXPECT_EQ(got.decision.reason, Reason::kSpeedChanged);
  EXPECT_EQ(got.decision.words, sent.decision.words);
  EXPECT_EQ(got.records, sent.records);
  EXPECT_TRUE(got.stopping);
  EXPECT_EQ(got.stop_signal, 15);
  EXPECT_EQ(got.non_finite, sent.non_finite);
  EXPECT_EQ(got.controller, sent.controller);
}

TEST(MessagesTest, ReportsAndHeadersSurviveTheirBytes) {
  const IterationReport report{
      .sequence = 3,
      .finished = true,
      .batch = 8,
      .start = 1.5,
      .seconds = 0.5,
      .compute_seconds = 0.25,
      .waited = 0.125,
      .usage = {.cpu = 0.75, .memory = 0.5, .peak_memory = 0.625},
      .warm = false,
      .loss = 4.0,
      .rate_factor = 2.0,
      .staleness = 5,
      .stop = 16,
      .non_finite = "loss"};
  EXPECT_EQ(decode<IterationReport>(encode(report)), report);
  const PushHeader push{
      .chunk = 2,
      .from = {.worker = 1, .iteration = 4, .round = 3, .epoch = 2, .first = 10, .last = 15},
      .round_samples = 20,
      .weight = 5.0,
      .rate = 0.1,
      .skipped = true,
      .settings = "{}"};
  EXPECT_EQ(decode<PushHeader>(encode(push)), push);
  const PullHeader pull{.chunk = 1, .worker = 2, .iteration = 3, .rounds = 4};
  EXPECT_EQ(decode<PullHeader>(encode(pull)), pull);
  const Failure failure{.kind = "PeerLostError", .text = "lost rank 1", .ranks = {1}, .hosts = {"there"}};
  EXPECT_EQ(decode<Failure>(encode(failure)), failure);
  const std::string answer = encode(PushAnswer{.chunk = 1, .iteration = 2, .staleness = -1});
  EXPECT_EQ(answer.size(), kPushAnswerBytes);
  EXPECT_EQ(decode<PushAnswer>(answer).staleness, -1);
}

TEST(MessagesTest, EveryCutAndEveryAdditionIsRefused) {
  const std::string bytes = encode(full_assignment());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW((void)decode<Assignment>(bytes.substr(0, size)), Error) << size;
  }
  EXPECT_THROW((void)decode<Assignment>(bytes + "x"), Error);
}

TEST(MessagesTest, WhateverTheBytesAreTheyAreReadOrRefused) {
  const std::string bytes = encode(full_assignment());
  Random random({11});
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string other = bytes.substr(0, random.below(bytes.size() + 1));
    for (std::size_t changes = random.below(4); changes > 0 && !other.empty(); --changes) {
      other[random.below(other.size())] = static_cast<char>(random.below(256));
    }
    try {
      (void)decode<Assignment>(other);
    } catch (const Error&) {  // the sanitizers look at the rest
    }
  }
  EXPECT_THROW((void)decode<UpdateRecord>(std::string(200, '\xff')), Error) << "no count is believed";
}

}  // namespace
}  // namespace isochron
