// Large weights on large pages. Reading hundreds of megabytes through pages of 4 KiB for every
// inference also reads their page tables. Where the system leaves the choice to programs, as Debian
// does, large pages must be requested.
//
// ncnn allocates with posix_memalign. Linking the region binds only ncnn's references to this one,
// because it is hidden.
#pragma once

#if defined(__linux__)

#include <errno.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

namespace edgekit {
namespace ncnn_net {

constexpr size_t kLargePage = size_t{2} << 20;
// Below, what alignment would waste is no small part of it.
constexpr size_t kLeastForLargePages = size_t{4} << 20;

inline void* allocate(size_t alignment, size_t size) {
  if (size < kLeastForLargePages || alignment > kLargePage) return memalign(alignment, size);
  void* memory = memalign(kLargePage, size);
#if defined(MADV_HUGEPAGE)
  // A kernel without them says no, and small pages do as well.
  if (memory != nullptr) (void)madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

}  // namespace ncnn_net
}  // namespace edgekit

extern "C" __attribute__((weak, visibility("hidden"))) int posix_memalign(
    void** memory, size_t alignment, size_t size) noexcept {
  void* found = edgekit::ncnn_net::allocate(alignment, size);
  if (found == nullptr) return ENOMEM;
  *memory = found;
  return 0;
}

#endif
