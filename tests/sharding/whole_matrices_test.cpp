#include "weft/sharding/whole_matrices.h"

#include <gtest/gtest.h>

#include <atomic>

#include "weft/comm/local_group.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

constexpr int64_t kColumns = 30;

double number_of(const ParamSpec& p, int64_t row, int64_t col) {
  return double(p.name[0]) * 1e6 + double(row * p.shape[1] + col);
}
// Each matrix is turned by 180 degrees: every element comes from another place, of another rank.
double turned(const WholeMatrix& m, int64_t row, int64_t col) {
  return -number_of(m.param->spec(), m.rows.first + m.rows.end() - 1 - row, m.cols.count - 1 - col);
}

// A block's weights: rows cut with a part that is everywhere, columns cut, one that is not cut, and one that is none
// of the optimizer's matrices. Their gradients are their numbers.
class Numbered {
 public:
  Numbered(const ProcessMesh& mesh, int64_t shards, int zero_stage)
      : store_(
            kF64,
            {.ranks = mesh[Axis::dp].size(), .rank = mesh[Axis::dp].rank(), .zero_stage = zero_stage, .shards = shards},
            mesh) {
    const std::vector<Part> qkv{
        {.size = 24, .grain = 4}, {.size = 8, .everywhere = true}, {.size = 8, .everywhere = true}};
    add({.name = "a", .shape = {40, kColumns}, .place = weights(Spmd::Shard0), .parts = qkv, .linear = true});
    add({.name = "b", .shape = {kColumns, 28}, .place = weights(Spmd::Shard1), .parts = {{28, 4}}, .linear = true});
    add({.name = "c", .shape = {7, kColumns}, .place = weights(Spmd::Invariant), .linear = true});
    add({.name = "d", .shape = {11, kColumns}, .place = weights(Spmd::Shard0)});
    const int unit = store_.close_unit("block", 0);
    store_.allocate({params_, grads_, states_, params_},
                    [](const ParamSpec&, int64_t) { return std::vector<StateFormat>(); });
    store_.open_grads(backend_, unit, 0);
    for (Param* p : store_.params())
      for (int64_t i = 0; i < p->grad.elements(); ++i) p->grad.as<double>()[i] = 0;
    store_.flush(backend_, unit, 0, true);
    store_.finish_step(backend_);
    for (const Param* p : store_.params())
      for_each(*p, [&](double& g, int64_t row, int64_t col) { g = number_of(p->spec(), row, col); });
  }
  // f(gradient, row, column) of every element that is kept here.
  template <class F>
  void for_each(const Param& p, const F& f) const {
    for (const ParamStore::Stored& s : store_.stored(p))
      for (int64_t i = 0; i < s.grad.elements(); ++i)
        f(s.grad.as<double>()[i], s.rows.first + i / s.cols.count, s.cols.first + i % s.cols.count);
  }
  const ParamStore& store() const { return store_; }
  RefBackend& backend() { return backend_; }

 private:
  void add(ParamSpec spec) { store_.add(std::move(spec)); }
  Arena params_{"params", 1 << 18}, grads_{"grads", 1 << 18}, states_{"states", 1 << 10};
  RefBackend backend_{1};
  ParamStore store_;
};

void turn(Tensor x) {
  auto* at = x.as<double>();
  std::reverse(at, at + x.elements());
  for (int64_t i = 0; i < x.elements(); ++i) at[i] = -at[i];
}

TEST(WholeMatrices, AreSeenWholeOnceAndGivenBackToWhoeverKeepsThem) {
  struct Layout {
    int dp, tp, shards, zero_stage;
  };
  for (const Layout l : {Layout{1, 1, 1, 0},
                         {3, 1, 1, 0},
                         {1, 3, 1, 0},
                         {2, 2, 1, 0},
                         {2, 3, 2, 1},
                         {4, 2, 2, 2},
                         {4, 1, 4, 3},
                         {3, 3, 3, 3}}) {
    SCOPED_TRACE(fmt::format("dp {} tp {} shards {}", l.dp, l.tp, l.shards));
    std::atomic<int> calls = 0;
    run_local({.dp = l.dp, .tp = l.tp, .shards = l.shards}, [&](const ProcessMesh& mesh) {
      Numbered n(mesh, l.shards, l.zero_stage);
      Arena scratch("scratch", 1 << 16);
      wait_replace_whole(n.backend(), n.store(), scratch, [&](Tensor x) { ++calls, turn(x); });
      EXPECT_EQ(scratch.used(), 0);
      for (const WholeMatrix& m : whole_matrices(n.store(), *n.store().groups()[0]))
        n.for_each(*m.param, [&](double g, int64_t row, int64_t col) {
          if (row < m.rows.first || row >= m.rows.end()) return;
          EXPECT_EQ(g, turned(m, row, col)) << m.param->spec().name << m.part;
        });
      for (const Param* p : n.store().params())
        if (!p->spec().linear)
          n.for_each(*p, [&](double g, int64_t row, int64_t col) { EXPECT_EQ(g, number_of(p->spec(), row, col)); });
    });
    EXPECT_EQ(calls, 5);
  }
}

}  // namespace
}  // namespace weft
