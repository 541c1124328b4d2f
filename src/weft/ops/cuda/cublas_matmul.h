// Matrix products by cuBLASLt.
#pragma once
#include <cublasLt.h>

#include <map>
#include <memory>
#include <tuple>

#include "weft/ops/ops.h"

namespace weft {

// Sums in f32, without TF32. The first call of a shape asks the library's heuristic for its way, which then stays: the
// same shape gives the same bits. Belongs to one stream; not thread-safe.
class CublasMatmul {
 public:
  CublasMatmul();
  CublasMatmul(const CublasMatmul&) = delete;
  CublasMatmul& operator=(const CublasMatmul&) = delete;
  ~CublasMatmul();
  // Issues it with kCublasWorkspace bytes at `workspace`. False, and nothing issued, where the library has no way for
  // it. Throws Error.
  bool run(const Matmul& op, void* workspace, cudaStream_t stream);

 private:
  // All that a description and its algorithm depend on, but where the bias is: m, n, k, the strides, how a, b, out and
  // the bias are aligned (0: none), the types and the flags.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, uint32_t, uint32_t, uint32_t, uint32_t,
                         DType, DType, bool, bool, bool>;
  class Product;
  Product& product_of(const Matmul& op);

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Product>> products_;
};

}  // namespace weft
