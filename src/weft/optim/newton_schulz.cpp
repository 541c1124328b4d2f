#include "weft/optim/newton_schulz.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kEps = 1e-7;

double wait_norm(Backend& backend, Arena& scratch, const Tensor& x) {
  const Tensor squares = scratch.alloc(DType::f64, {1});
  backend.run(SumSquares{.x = x, .out = squares});
  backend.wait_all();
  if (squares.data == nullptr) return 1;
  double sum = 0;
  scratch.memory()->copy(&sum, squares.data, sizeof sum);
  return std::sqrt(sum);
}

}  // namespace

void wait_orthogonalize(Backend& backend, Arena& scratch, Tensor x, int64_t steps) {
  Scope temporaries(scratch);
  const bool tall = x.rows() > x.cols();
  const int64_t side = std::min(x.rows(), x.cols());
  const Tensor gram = scratch.alloc(x.dtype, {side, side}), sum = scratch.alloc(x.dtype, {side, side});
  const Tensor product = scratch.alloc(x.dtype, x.shape);
  backend.run(Axpby{.x = x, .out = x, .a = 1 / (wait_norm(backend, scratch, x) + kEps)});
  for (int64_t i = 0; i < steps; ++i) {
    backend.run(Matmul{.a = x, .b = x, .out = gram, .trans_a = tall, .trans_b = !tall});
    backend.run(Matmul{.a = gram, .b = gram, .out = sum});
    backend.run(Axpby{.x = gram, .y = sum, .out = sum, .a = kB, .b = kC});
    backend.run(Matmul{.a = tall ? x : sum, .b = tall ? sum : x, .out = product});
    backend.run(Axpby{.x = x, .y = product, .out = x, .a = kA, .b = 1});
  }
  backend.wait_all();
}

}  // namespace weft
