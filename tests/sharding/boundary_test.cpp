#include "weft/sharding/boundary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <random>

#include "weft/comm/local_group.h"

namespace weft {
namespace {

struct Row {
  Spmd from, to;
};
constexpr Row kRows[] = {{Spmd::Invariant, Spmd::Replicate}, {Spmd::Partial, Spmd::Invariant},
                         {Spmd::Shard0, Spmd::Replicate},    {Spmd::Partial, Spmd::Shard0},
                         {Spmd::Shard0, Spmd::Shard0},       {Spmd::Replicate, Spmd::Replicate}};
constexpr int64_t kTokens = 8, kWidth = 3;

Tensor random_tensor(Arena& arena, Spmd on, int ranks, uint32_t seed, int rank) {
  Tensor t = arena.alloc(DType::f64, {on == Spmd::Shard0 ? kTokens / ranks : kTokens, kWidth}, tokens(on));
  std::mt19937 gen(on == Spmd::Invariant ? seed : seed + 1000 * uint32_t(rank + 1));  // Invariant: equal on all ranks
  std::normal_distribution<double> n;
  for (int64_t i = 0; i < t.elements(); ++i) t.as<double>()[i] = n(gen);
  return t;
}

// The inner product of two logical tensors, x held `on` and y on the dual, as each rank's share of it.
double share(const Tensor& x, const Tensor& y, Spmd on, int ranks) {
  double sum = 0;
  for (int64_t i = 0; i < x.elements(); ++i) sum += x.as<double>()[i] * y.as<double>()[i];
  return on == Spmd::Invariant ? sum / ranks : sum;  // counted once, not once a rank
}

// <A x, y> == <x, A' y>, with A the boundary and A' its backward.
TEST(Boundary, BackwardIsTheAdjointOfForward) {
  for (int ranks : {1, 2, 4}) {
    for (const Row& row : kRows) {
      double left = 0, right = 0;
      std::mutex mutex;
      run_local(ranks, [&](Communicator& tp) {
        Arena arena("test", 1 << 16);
        ProcessMesh mesh = single_mesh();
        mesh.axes[size_t(Axis::tp)] = std::shared_ptr<Communicator>(std::shared_ptr<void>(), &tp);
        const Boundary boundary(Axis::tp, row.from, row.to);
        Tensor x = random_tensor(arena, row.from, ranks, 1, tp.rank());
        Tensor y = random_tensor(arena, dual(row.to), ranks, 2, tp.rank());
        const auto copy = [&](Tensor t) {
          Tensor c = arena.alloc(t.dtype, t.shape, t.place);
          std::copy_n(t.as<double>(), t.elements(), c.as<double>());
          return c;
        };
        Tensor ax = boundary.forward(mesh, copy(x), arena), ay = boundary.backward(mesh, copy(y), arena);
        EXPECT_EQ(ax.place[Axis::tp], row.to);
        EXPECT_EQ(ay.place[Axis::tp], dual(row.from));
        std::lock_guard lock(mutex);
        left += share(ax, y, row.to, ranks);
        right += share(x, ay, row.from, ranks);
      });
      EXPECT_NEAR(left, right, 1e-12 * std::abs(left) + 1e-13)
          << name_of(row.from) << " -> " << name_of(row.to) << " x" << ranks;
    }
  }
}

TEST(Boundary, RefusesWhatNoCollectiveDoes) {
  EXPECT_THROW(Boundary(Axis::tp, Spmd::Shard1, Spmd::Replicate), PlacementError);
  Arena arena("test", 1 << 12);
  const Boundary boundary(Axis::tp, Spmd::Partial, Spmd::Invariant);
  EXPECT_THROW(boundary.forward(single_mesh(), arena.alloc(DType::f32, {2, 2}, tokens(Spmd::Replicate)), arena),
               PlacementError);
}

}  // namespace
}  // namespace weft
