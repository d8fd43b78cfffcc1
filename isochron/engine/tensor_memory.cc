#include "isochron/engine/tensor_memory.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace isochron {
namespace {

constexpr std::size_t kAlignment = 64;
static_assert(kAlignment >= c10::gAlignment && kAlignment % c10::gAlignment == 0);
static_assert(alignof(std::max_align_t) >= sizeof(void*));  // what malloc aligns to: room for the address of the block

// Aligned memory of so many bytes; the address of malloc's block is noted before it. Null if there is none.
void* take(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() - kAlignment) {
    return nullptr;
  }
  void* const block = std::malloc(bytes + kAlignment);
  if (block == nullptr) {
    return nullptr;
  }
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(block) % kAlignment;
  std::byte* const aligned = static_cast<std::byte*>(block) + kAlignment - beyond;
  std::memcpy(aligned - sizeof block, static_cast<const void*>(&block), sizeof block);
  return aligned;
}

void give_back(void* aligned) {
  if (aligned != nullptr) {
    void* block = nullptr;
    std::memcpy(static_cast<void*>(&block), static_cast<std::byte*>(aligned) - sizeof block, sizeof block);
    std::free(block);
  }
}

class ReusedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = bytes == 0 ? nullptr : take(bytes);
    // The words of LibTorch's own allocator, by which a lack of memory is known (out_of_memory.h).
    TORCH_CHECK(
        memory != nullptr || bytes == 0,
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate " + std::to_string(bytes) + " bytes.");
    return {memory, memory, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// What mallopt(3) calls the most that the two may become by themselves.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestBlock = 32 << 20;
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr && std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) {
    ::mallopt(M_MMAP_THRESHOLD, kLargestBlock);
    ::mallopt(M_TRIM_THRESHOLD, 2 * kLargestBlock);
  }
#endif
}

}  // namespace

void reuse_tensor_memory() {
  const char* const huge_pages = std::getenv("THP_MEM_ALLOC_ENABLE");
  if (huge_pages != nullptr && std::string(huge_pages) == "1") {
    return;
  }
  keep_freed_memory();
  static ReusedMemory memory;
  c10::SetCPUAllocator(&memory);
}

}  // namespace isochron
