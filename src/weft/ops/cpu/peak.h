// How fast this machine is: what speeds are measured against.
#pragma once
#include <cstddef>
#include <span>

#include "weft/tensor/dtype.h"

namespace weft {

// Floating-point operations per second of the best of some products of 1024 x 1024 matrices of `type` (f32, bf16 or
// f16; products of 16 bits give f32) on `threads` threads: what MFU is a fraction of. Takes about a tenth of a second.
double measure_matmul_flops(int threads, DType type);

// Bytes per second, read and written, of a pass over four arrays that reads all of them and writes three, as an AdamW
// step does, by `threads` threads over `memory`; the best of a few passes. `memory` should be many times the caches; it
// is overwritten. A quarter of a gigabyte takes about a tenth of a second.
double measure_memory_bandwidth(int threads, std::span<std::byte> memory);

}  // namespace weft
