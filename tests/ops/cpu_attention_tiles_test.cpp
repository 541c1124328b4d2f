// Attention of bf16 by matrix units, and by vectors where these stand in for them: equal to the reference, the same
// bits for any number of threads, within the planned memory. Rounded between products is what tolerance.h allows a
// backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cases.h"
#include "ops/cases_attention.h"
#include "weft/ops/cpu/cpu_backend.h"
#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

using testing::AttentionCase;
using testing::cached;
using testing::heads_of;
using testing::OpCase;
using testing::OpCases;
using testing::packed;

// Runs a trial in memory planned for it, to the byte.
void run(testing::Trial& trial, const CpuSpec& spec) {
  Arena workspace("workspace", trial.workspace_bytes(CpuWorkspace(spec)));
  CpuBackend backend(spec, workspace);
  trial.run(backend);
  EXPECT_EQ(workspace.capacity(), workspace.peak()) << "planned more than was used";
}

// Widths that fill no tile, more keys than a chunk holds, windows within a strip, and cuts within tiles.
OpCases odd_cases() {
  std::vector<AttentionCase> cases;
  for (const int64_t dim : {1, 31, 33, 40, 80, 96})
    cases.push_back({fmt::format("heads of {}", dim), packed({150}), heads_of(2, 1, dim)});
  cases.push_back({"chunks", packed({620, 30}), heads_of(2, 1, 256)});
  cases.push_back({"chunks in a window", packed({600}), heads_of(3, 1, 256, 70)});
  cases.push_back({"many query heads", packed({70}), heads_of(17, 1, 32)});
  cases.push_back({"a narrow window", packed({300}), heads_of(2, 2, 64, 7)});
  cases.push_back({"a window of a strip", packed({300}), heads_of(4, 2, 64, 128)});
  cases.push_back({"one row", cached(1, 300), heads_of(4, 2, 64)});
  cases.push_back({"one row in a window", cached(1, 300), heads_of(1, 1, 64, 40)});
  cases.push_back({"one row of many heads", cached(1, 290), heads_of(19, 1, 80)});
  cases.push_back({"one row of odd heads", cached(1, 131), heads_of(heads_of(3, 1, 33), 17)});
  cases.push_back({"one row from a latent", cached(1, 140), heads_of(heads_of(6, 1, 576), 512)});
  cases.push_back({"one row, dropout", cached(1, 140), heads_of(2, 1, 40), 0.2});
  AttentionHeads capped = heads_of(7, 1, 64, 150);
  capped.softcap = 3;
  cases.push_back({"one row, capped", cached(1, 300), capped, 0, 8});
  cases.push_back({"one row, sharp", cached(1, 300), heads_of(2, 2, 64), 0, 12});
  const std::vector<AttentionSpan> pieces{
      {.q_row = 0, .q_count = 70, .k_row = 0, .k_count = 200, .q_position = 163, .k_position = 33, .sample = 1},
      {.q_row = 70, .q_count = 80, .k_row = 20, .k_count = 190, .q_position = 200, .k_position = 53, .sample = 1}};
  for (const int64_t window : {0, 45}) {
    cases.push_back({fmt::format("shared keys, window {}", window), pieces, heads_of(4, 2, 64, window)});
    cases.push_back({fmt::format("shared keys, dropout, window {}", window), pieces, heads_of(2, 1, 48, window), 0.2});
  }
  OpCases list;
  for (const AttentionCase& c : cases) {
    add_case(list, {.compute = DType::bf16}, c.name, [c](testing::Operands& o) { return make_attention(o, c); });
    if (c.spans[0].q_position > 0 && c.spans.size() == 1) continue;  // no gradient flows to a cache
    add_case(list, {.compute = DType::bf16}, c.name,
             [c](testing::Operands& o) { return make_attention_backward(o, c); });
  }
  return list;
}
OpCases cases() {
  OpCases list = odd_cases();
  for (OpCase& c : testing::op_cases(DType::bf16))
    if (c.name.starts_with("attention ") || c.name.starts_with("attention_backward ")) list.push_back(std::move(c));
  return list;
}

// Whether matrix units multiply.
class CpuAttentionBy : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && isa_of_kernels() != CpuIsa::amx) GTEST_SKIP() << "this CPU, or its limit, has no AMX";
  }
};

TEST_P(CpuAttentionBy, EqualsTheReferenceInBf16) {
  RefBackend ref(2);
  for (const OpCase& c : cases()) {
    auto trial = c.make();
    run(*trial, {.threads = 2, .tiles = GetParam()});
    trial->run_exact(ref);
    EXPECT_EQ(trial->difference(), "") << c.name;
    EXPECT_EQ(trial->trespass(), "") << c.name;
  }
}

TEST_P(CpuAttentionBy, GivesTheSameBitsOnAnyNumberOfThreads) {
  for (const OpCase& c : odd_cases()) {
    auto trial = c.make();
    run(*trial, {.threads = 1, .tiles = GetParam()});
    const std::vector<std::byte> bits = trial->outputs();
    for (const int threads : {2, 7}) {
      trial->reset();
      run(*trial, {.threads = threads, .tiles = GetParam()});
      EXPECT_EQ(trial->outputs(), bits) << c.name << " on " << threads;
    }
  }
}

std::string name_of_way(const ::testing::TestParamInfo<bool>& info) { return info.param ? "MatrixUnits" : "Vectors"; }
INSTANTIATE_TEST_SUITE_P(Ways, CpuAttentionBy, ::testing::Bool(), name_of_way);

// A product with NaN would be NaN, whatever multiplies it afterwards.
TEST(CpuAttentionTiles, KeysOutOfSightAreNotMultiplied) {
  constexpr int64_t kRows = 512, kSpoilt = 256, kDim = 64, kWindow = 100;
  std::vector<bf16> q(kRows * kDim, bf16(0.5f)), k = q, v = q, o(q.size());
  std::vector<float> lse(kRows);
  for (auto* x : {&k, &v}) std::fill_n(x->begin(), kSpoilt * kDim, bf16(std::numeric_limits<float>::quiet_NaN()));
  const auto matrix = [&](auto& x, DType t) { return Tensor(x.data(), t, {kRows, int64_t(x.size()) / kRows}); };
  const std::vector<AttentionSpan> whole = packed({kRows}), documents = packed({kSpoilt, kRows - kSpoilt});
  const auto first_good = [&](const std::vector<AttentionSpan>& spans, int64_t window) {
    const Attention op{.q = matrix(q, DType::bf16),
                       .k = matrix(k, DType::bf16),
                       .v = matrix(v, DType::bf16),
                       .o = matrix(o, DType::bf16),
                       .lse = matrix(lse, DType::f32),
                       .spans = spans,
                       .heads = heads_of(1, 1, kDim, window)};
    Arena workspace("workspace", CpuWorkspace({.threads = 2}).of(op));
    CpuBackend({.threads = 2}, workspace).run(op);
    const auto good = [](bf16 x) { return std::isfinite(float(x)); };
    const auto last_bad = std::find_if_not(o.rbegin(), o.rend(), good);
    return (o.rend() - last_bad + kDim - 1) / kDim;
  };
  EXPECT_EQ(first_good(documents, 0), kSpoilt);
  EXPECT_LE(first_good(whole, kWindow), 384) << "the first block of 64 queries that sees none of them";
}

}  // namespace
}  // namespace weft
