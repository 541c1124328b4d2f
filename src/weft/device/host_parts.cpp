#include "weft/device/host_parts.h"

#include <algorithm>

#include "weft/device/arena.h"

namespace weft {
namespace {

constexpr int64_t kPartBytes = int64_t{4} << 20;
constexpr int64_t kPinnedFrom = int64_t{1} << 20;  // bytes: taking pinned memory takes longer than copying less

enum class Way { to_host, from_host };

// `part` is contiguous; `there`, as many rows of a tensor.
void copy(const Memory& memory, const Tensor& part, const Tensor& there, Way way) {
  const auto rows_at_once = [&](void* here, void* other, int64_t bytes) {
    if (way == Way::to_host)
      memory.copy(here, other, size_t(bytes));
    else
      memory.copy(other, here, size_t(bytes));
  };
  if (there.contiguous()) return rows_at_once(part.data, there.data, part.bytes());
  for (int64_t i = 0; i < part.rows(); ++i) {
    const Tensor row = part.slice_rows(i, 1);
    rows_at_once(row.data, there.slice_rows(i, 1).data, row.bytes());
  }
}

void each_part(const Memory& memory, const Tensor& x, const HostPart& f, Way way) {
  if (x.elements() == 0) return;
  if (memory.host_reaches()) return f(x, 0);
  const int64_t row_bytes = x.cols() * size_of(x.dtype);
  const int64_t most = std::clamp<int64_t>(kPartBytes / row_bytes, 1, x.rows());
  const int64_t bytes = most * row_bytes + kArenaAlignment;
  Arena arena("tensors on their way", bytes, bytes < kPinnedFrom ? host_memory() : memory.shared());
  for (int64_t first = 0; first < x.rows(); first += most) {
    const Scope scope(arena);
    const Tensor there = x.slice_rows(first, std::min(most, x.rows() - first));
    const Tensor part = arena.alloc(x.dtype, there.shape, x.place);
    if (way == Way::to_host) copy(memory, part, there, way);
    f(part, first);
    if (way == Way::from_host) copy(memory, part, there, way);
  }
}

}  // namespace

void read_parts(const Memory& memory, const Tensor& x, const HostPart& f) { each_part(memory, x, f, Way::to_host); }
void write_parts(const Memory& memory, const Tensor& x, const HostPart& f) { each_part(memory, x, f, Way::from_host); }

}  // namespace weft
