#include "isochron/engine/out_of_memory.h"

#include <new>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace isochron {

bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::exception& other) {
    // c10's CPU allocator throws a plain c10::Error, which TorchScript turns into a std::runtime_error.
    const std::string_view words(other.what());
    return words.find("DefaultCPUAllocator: ") != std::string_view::npos;
  } catch (...) {
    return false;
  }
}

void release_cached_memory() {
  if (at::globalContext().hasCUDA()) {
    at::accelerator::emptyCache();
  }
}

void release_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace isochron
