// How a bucket of gradients is averaged over the group when it does not travel as it is.
#pragma once

#include <memory>

#include <c10/util/intrusive_ptr.h>

#include "isochron/core/job_settings.h"

namespace c10d {
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace isochron {

// For c10d::Reducer; null for kNone, which needs none.
std::unique_ptr<c10d::CommHookInterface> make_comm_hook(
    Compression compression, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace isochron
