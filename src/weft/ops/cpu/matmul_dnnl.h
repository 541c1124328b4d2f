// Matrix products by oneDNN.
#pragma once
#include <cstddef>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "weft/ops/numerics.h"
#include "weft/ops/ops.h"

namespace weft {

// Matmul ops as oneDNN primitives on the operands' own layouts, one primitive for each shape, made at first use.
// The contract of CpuMatmul; sizes are > 0.
//
// Numerics::fast       one call for the whole product, oneDNN shares it among `threads`.
// Numerics::invariant  out is cut into tiles that depend on its shape alone; each is one call on one thread, so the
//                      number of threads only decides who computes which tile.
class DnnlMatmul {
 public:
  DnnlMatmul(int threads, Numerics numerics);

  bool supports(const Matmul& op);                                                 // on this machine
  std::string kernel_of(const Matmul& op) { return plan_for(key_of(op)).kernel; }  // that supports it
  int64_t workspace_bytes(const Matmul& op);
  void run(const Matmul& op, std::byte* workspace);

 private:
  struct Key {
    int64_t m, n, k, a_stride, b_stride, out_stride;
    DType in, out;
    bool trans_a, trans_b, bias, accumulate;
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    dnnl::memory::desc a, b, bias, out, scratch;
    dnnl::matmul primitive;  // empty where oneDNN has none for this key
    std::string kernel;      // its name there
    int64_t scratch_bytes() const;
  };
  struct Tiling {
    int64_t m, n;  // of a tile
    int64_t rows, cols;
    int64_t count() const { return rows * cols; }
  };

  static Key key_of(const Matmul& op);
  Tiling tiling_of(const Matmul& op) const;
  int64_t thread_scratch_bytes(const Matmul& op);
  const Plan& plan_for(const Key& key);
  Plan make_plan(const Key& key) const;
  void execute(const Plan& plan, const Matmul& op, std::byte* scratch, dnnl::stream& stream) const;

  int threads_;
  Numerics numerics_;
  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;  // one for each thread
  std::map<Key, Plan> plans_;
};

}  // namespace weft
