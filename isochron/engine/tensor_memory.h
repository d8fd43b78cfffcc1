// Memory of tensors on CPUs that is taken again once it is free.
//
// LibTorch asks the C library for memory that is aligned to 64 bytes. glibc before 2.38 looks for a free block that
// holds the size and the alignment besides, and gives back what it cut off on both sides: the block that is left, once
// free, does not hold the next request of the same size, so that a small block beside it makes the heap grow, though a
// training loop asks for the same sizes in every step (sourceware.org, bug 14581). Workers grew from 65 to 121 MiB so.
// Here malloc gives the memory with 64 bytes to spare, and the address within is aligned: a freed block holds the next
// request of its size. Both ways reserve the spare bytes.
//
// Blocks that are free together at the end of the heap would go back to the system after every step, and the pages come
// anew in the next: glibc keeps twice the largest block that it has seen. It is told to keep as much as that rule ever
// permits, so that steps take no longer than before.
#pragma once

namespace isochron {

// For all tensors of this process from now on; those that are there stay as they are. Where THP_MEM_ALLOC_ENABLE asks
// LibTorch for huge pages, nothing changes; MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ (mallopt(3)) have their
// say. Before threads are started.
void reuse_tensor_memory();

}  // namespace isochron
