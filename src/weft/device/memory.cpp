#include "weft/device/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

class HostMemory final : public Memory {
 public:
  std::byte* take(size_t bytes, const std::string& what) override {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      throw Error(fmt::format("no memory for {}: {:.2f} GiB ({}); `weft plan` shows what the recipe needs and why",
                              what, double(bytes) / double(1 << 30), std::strerror(errno)));
    if (bytes >= kHugePage) madvise(p, bytes, MADV_HUGEPAGE);  // a hint; matrices walk many pages
    return static_cast<std::byte*>(p);
  }
  void give(std::byte* memory, size_t bytes) override { munmap(memory, bytes); }
  void touch(std::byte* memory, size_t bytes) const override {
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE of Linux 5.14, which older headers do not name
    madvise(memory, bytes, kPopulateWrite);
  }
};

}  // namespace

std::shared_ptr<Memory> Memory::shared() const { return host_memory(); }

void Memory::touch(std::byte*, size_t) const {}

void Memory::copy(void* to, const void* from, size_t bytes) const {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

const std::shared_ptr<Memory>& host_memory() {
  static const std::shared_ptr<Memory> memory = std::make_shared<HostMemory>();
  return memory;
}

}  // namespace weft
