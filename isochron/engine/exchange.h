// Small exchanges between the workers of a job in terms of C++ values. All are collective, and all but that of reports
// block. A text that is too long, or says so, throws isochron::Error on all who would get it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "isochron/core/replica/step_report.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace isochron {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

inline constexpr std::int64_t kMostText = std::int64_t{256} << 20;  // bytes
inline constexpr int kTextTag = 10;

// Everybody's text, by rank.
std::vector<std::string> all_gather(const Group& group, const std::string& text);

// Rank 0's text.
std::string broadcast(const Group& group, const std::string& text);

// From one worker to another.
void send_text(const Group& group, const std::string& text, int to);
std::string receive_text(const Group& group, int from);

// Element-wise sums; all give equally many values.
std::vector<double> sum(const Group& group, const std::vector<double>& values);

// An all-gather of reports that goes on while this worker does other things.
class ReportExchange {
 public:
  // Starts it.
  ReportExchange(const Group& group, const StepReport& mine);
  // Everybody's, by rank. Throws PeerError if one is late or lost.
  std::vector<StepReport> wait();

 private:
  at::Tensor mine_;
  at::Tensor all_;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace isochron
