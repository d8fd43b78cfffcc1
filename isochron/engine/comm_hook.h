// How a bucket of gradients is averaged over the group when it does not travel as it is.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace isochron {

enum class Compression : std::uint8_t {
  kNone,
  kBf16,  // half the bytes of float: 8 significant bits per addition, the range of float
};

// For c10d::Reducer; null for kNone, which needs none.
std::unique_ptr<c10d::CommHookInterface> make_comm_hook(
    Compression compression, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace isochron
