// How gradients are averaged over the group when they do not travel as they are.
//
// bf16: bucket by bucket while backward computes the rest, added up in that type.
//
// int8 with error feedback, when all gradients are there. With gradients g_k and errors e_k, cut into K parts of which
// worker k owns the k-th:
//   a) worker k sends q(g_k + e_k) of every other part to its owner, and keeps e_k = g_k + e_k - q(g_k + e_k) of it;
//   b) the owner takes the mean m of what it got and of its own g_k + e_k as they are, sends q(m) to all, and keeps
//      e_k = K (m - q(m)) of its part.
// So the mean over the workers of e_k is all that rounding owes (error_feedback.h). Each number travels twice as a byte
// (int8.h) in place of twice as four, as in the two stages of 1-bit Adam (Tang et al. 2021) and with the feedback of
// Seide et al. 2014. All take the same bytes for the average, so that replicas stay equal bit by bit.
#pragma once

#include <memory>

#include <c10/util/intrusive_ptr.h>

#include "isochron/core/job_settings.h"
#include "isochron/engine/error_feedback.h"

namespace c10d {
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace isochron {

// For c10d::Reducer; null for kNone, which needs none. `feedback` is for kInt8.
std::unique_ptr<c10d::CommHookInterface> make_comm_hook(
    Compression compression,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::shared_ptr<ErrorFeedback>& feedback);

}  // namespace isochron
