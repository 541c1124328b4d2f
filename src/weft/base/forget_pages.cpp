#include "weft/base/forget_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace weft {

void forget_pages(std::span<const std::byte> bytes) {
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE)), first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (first + page - 1) / page * page, end = (first + bytes.size()) / page * page;
  // The mapping is read-only and of a file: what is dropped comes back from there. A refusal only leaves it here.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace weft
