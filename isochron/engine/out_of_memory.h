// Tells an allocation that failed from other errors: std::bad_alloc, PyTorch's on GPUs, and PyTorch's on CPUs, which is
// told by its words alone.
#pragma once

#include <exception>

namespace isochron {

bool is_out_of_memory(const std::exception_ptr& error);

// Gives cached device memory back, so that smaller batches find room.
void release_cached_memory();

// Gives pages that the C library has and nobody uses back to the system; milliseconds.
void release_free_memory();

}  // namespace isochron
