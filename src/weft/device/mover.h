// Moves bytes between tensors of ranks that share memory, and between them and the host: by the host, or by devices.
#pragma once
#include <cstdint>
#include <span>

#include "weft/tensor/dtype.h"

namespace weft {

// Each call returns when it is done. Wait for kernels before it. Thread-safe: a rank's thread each. Throws Error.
class Mover {
 public:
  virtual ~Mover() = default;
  // Whether the host may read and write there itself.
  virtual bool host_reaches(const void*) const { return true; }
  virtual void copy(void* to, const void* from, int64_t bytes) const = 0;
  // As comm/rank_sum.h has them, bit for bit.
  virtual void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) const = 0;
  // `mine`: which of them is the caller's, whose device adds.
  virtual void sum_in_place(std::span<void* const> ranks, int mine, DType dtype, int64_t n) const = 0;
};

}  // namespace weft
