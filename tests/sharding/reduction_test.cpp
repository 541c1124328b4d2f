// How the gradients of data-parallel ranks are added.
#include <gtest/gtest.h>

#include "weft/comm/local_group.h"
#include "weft/ops/cpu/cpu_backend.h"
#include "weft/sharding/param_store.h"

namespace weft {
namespace {

struct Layout {
  int dp, shards, zero_stage;
};

// Needs more digits than bf16 has.
float gradient_of(int rank, int64_t micro_batch, int64_t element) {
  return 1.0f + float(rank + 1) * 0.3718f * float(element % 97) + float(micro_batch) * 0.0123f;
}

float rounded(float x) { return float(bf16(x)); }

// Calls f(element, gradient) for what each rank keeps after a step of two micro-batches.
template <class F>
void for_each_gradient(const Layout& l, bool in_bf16, const F& f) {
  constexpr int kUnits = 3;
  run_local(MeshSizes{.dp = l.dp, .shards = l.shards}, [&](const ProcessMesh& mesh) {
    Arena params("params", 1 << 20), grads("grads", 1 << 20), states("states", 1 << 10), transit("transit", 1 << 20),
        workspace("workspace", 1 << 20);
    CpuBackend backend({.threads = 1}, workspace);
    const int rank = mesh[Axis::dp].rank();
    ParamStore store(kF32,
                     {.num_micro_batches = 2,
                      .ranks = l.dp,
                      .rank = rank,
                      .zero_stage = l.zero_stage,
                      .shards = l.shards,
                      .reduces_in_bf16 = in_bf16},
                     mesh);
    for (int u = 0; u < kUnits; ++u) {
      store.add({.name = "w" + std::to_string(u), .shape = {37 + u, 50}, .place = weights(Spmd::Invariant)});
      store.close_unit("unit", u);
    }
    store.allocate({params, grads, states, transit},
                   [](const ParamSpec&, int64_t) { return std::vector<StateFormat>(); });
    store.begin_step();
    for (int64_t m = 0; m < 2; ++m) {
      for (int u = kUnits; u-- > 0;) {
        store.open_grads(backend, u, m);
        const Param& p = *store.params()[size_t(u)];
        const bool adds = l.zero_stage < 2 && m > 0;
        for (int64_t i = 0; i < p.grad.elements(); ++i)
          p.grad.as<float>()[i] = gradient_of(rank, m, i) + (adds ? p.grad.as<float>()[i] : 0);
        store.flush(backend, u, m, true);
      }
    }
    store.finish_step(backend);
    for (const Param* p : store.params())
      for (const ParamStore::Stored& s : store.stored(*p))
        for (int64_t i = 0; i < s.grad.elements(); ++i)
          f((s.rows.first + i / s.cols.count) * p->spec().shape[1] + s.cols.first + i % s.cols.count,
            s.grad.as<float>()[i]);
  });
}

TEST(Reduction, InBf16AddsRoundedGradientsInF32AndRoundsOnce) {
  for (const Layout l : {Layout{2, 1, 0}, {3, 1, 0}, {2, 2, 1}, {3, 3, 2}, {2, 2, 3}}) {
    SCOPED_TRACE(fmt::format("dp {} shards {} stage {}", l.dp, l.shards, l.zero_stage));
    for_each_gradient(l, true, [&](int64_t i, float g) {
      float expected = 0;
      if (l.zero_stage < 2) {  // a rank sums its own micro-batches first
        for (int r = 0; r < l.dp; ++r) expected += rounded(gradient_of(r, 1, i) + gradient_of(r, 0, i));
        expected = rounded(expected);
      } else {
        for (int64_t m = 0; m < 2; ++m) {
          float sum = 0;
          for (int r = 0; r < l.dp; ++r) sum += rounded(gradient_of(r, m, i));
          expected += rounded(sum);
        }
      }
      ASSERT_EQ(g, expected) << i;
    });
  }
}

TEST(Reduction, OfReplicatedShardsIsTheSumOfAllRanks) {
  for (const Layout l : {Layout{4, 2, 1}, {4, 2, 2}, {4, 2, 3}, {6, 3, 3}}) {
    SCOPED_TRACE(fmt::format("dp {} shards {} stage {}", l.dp, l.shards, l.zero_stage));
    for (const bool in_bf16 : {false, true}) {
      for_each_gradient(l, in_bf16, [&](int64_t i, float g) {
        double expected = 0;
        for (int r = 0; r < l.dp; ++r)
          for (int64_t m = 0; m < 2; ++m) expected += gradient_of(r, m, i);
        ASSERT_NEAR(g, expected, (in_bf16 ? 0x1p-7 : 0x1p-21) * expected) << i;
      });
    }
  }
}

}  // namespace
}  // namespace weft
