// A backend around a backend that sees what matrices are multiplied with.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "weft/ops/backend_around.h"

namespace weft {

// Adds x x^T of every input x of the products that it watches, y = W x, to sums. On the host alone; the inner backend,
// which adds them too, and the matrices are borrowed.
class ProductWatch final : public BackendAround {
 public:
  struct Matrix {
    Tensor weight;                 // the whole weight
    int64_t group;                 // of those that the weight has one behind the other (experts); -1: all of it is one
    std::vector<float> sums = {};  // [in, in]
    int64_t num_inputs = 0;
  };
  explicit ProductWatch(Backend& inner) : BackendAround(inner) {}
  // From now on; their sums begin as they are, of their size. None: nothing.
  void watch(std::span<Matrix> matrices) { matrices_ = matrices; }
  void run(const AnyOp& op) override;
  // Temporaries of the ops that this adds, of at most so many inputs at once.
  static int64_t workspace_bytes(const WorkspaceModel& model, int64_t in, int64_t inputs);

 private:
  void add(const Matmul& product);
  void add(const GroupedMatmul& product);
  std::span<Matrix> matrices_;
};

}  // namespace weft
