// Matrix products by cuBLASLt.
#pragma once
#include <cublasLt.h>

#include <functional>
#include <map>
#include <memory>

#include "weft/ops/cuda/product_cache.h"

namespace weft {

// Sums in f32, without TF32, by the algorithm that the library chooses, or by a faster one once it is proven to give
// the same bits (product_search.h): the same shape gives the same bits. The first calls of a shape wait while they try
// others; while a CUDA graph is recorded, such a call throws gpu::CannotRecord. Belongs to one queue; not thread-safe.
class CublasMatmul {
 public:
  // `cache` has what was found earlier, and gets what is found. `before_wait` is called before it may wait.
  CublasMatmul(std::shared_ptr<ProductCache> cache, std::function<void()> before_wait);
  CublasMatmul(const CublasMatmul&) = delete;
  CublasMatmul& operator=(const CublasMatmul&) = delete;
  ~CublasMatmul();
  // Issues it with kCublasWorkspace bytes at `workspace`. False, and nothing issued, where the library has no way for
  // it. Throws Error.
  bool run(const Matmul& op, void* workspace, cudaStream_t queue);

 private:
  class Product;
  struct Call {  // of a product, on the data of an op
    const Matmul& op;
    void* workspace;
    cudaStream_t queue;
  };
  Product& product_of(const Matmul& op);
  std::vector<ProductWay> ways_of(const Product& product, int most) const;
  std::vector<ProductWay> all_ways_of(const Product& product) const;
  void learn(Product& product, const Call& call);
  cublasStatus_t issue(const Product& product, const Call& call, const ProductWay& way, void* out);

  std::shared_ptr<ProductCache> cache_;
  std::function<void()> before_wait_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<ProductKey, std::unique_ptr<Product>> products_;
};

}  // namespace weft
