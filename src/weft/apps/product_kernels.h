// Which kernels of the cores do matrix products.
#pragma once
#include <string>
#include <vector>

#include "weft/ops/numerics.h"
#include "weft/ops/ops.h"

namespace weft {

struct ProductKernels {
  std::string dtype, kernel;  // "bf16", "weft's, AMX"
  double part = 0;            // of the arithmetic of the products
};
// As run.backend = "cpu" runs them; which they are depends on types and shapes alone.
std::vector<ProductKernels> kernels_of(const std::vector<Matmul>& products, int threads, Numerics numerics);
// What does all else where it computes in `compute`, a line each.
std::vector<std::string> lines_of_other_kernels(DType compute);
std::string to_string(const ProductKernels& kernels);  // "bf16 products: weft's, AMX (97 % of the arithmetic ...)"

}  // namespace weft
