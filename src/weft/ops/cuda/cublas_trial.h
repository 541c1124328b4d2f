// Tries out a product on the GPU without touching its output.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "weft/ops/cuda/product_search.h"
#include "weft/tensor/tensor.h"

namespace weft {

struct CublasTrial {
  Tensor out;     // of the product; read where it is added to, and not written
  Tensor anyway;  // what the result would be of a product that is 0: out, the bias, or none
  ProductWay first;
  std::function<std::vector<ProductWay>()> ways;
  // Issues the product on `queue`, with its result at `to`: laid out as `out`. False where the library cannot.
  std::function<bool(const ProductWay&, void* to)> run;
};
// Free memory of the GPU that a trial leaves to others.
inline constexpr size_t kReservedFromTrials = size_t{512} << 20;

// Takes its own memory of the GPU, and gives it back at its end. Null if there is not enough beside the reserve, or the
// GPU cannot allocate in queue order. A failed trial leaves no CUDA error behind, except those that end all work on
// the GPU.
std::unique_ptr<ProductTrial> begin_trial(CublasTrial trial, cudaStream_t queue);

}  // namespace weft
