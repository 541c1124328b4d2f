#include "weft/ops/dry/dry_backend.h"

#include <gtest/gtest.h>

#include "ops/cases_attention.h"

namespace weft {
namespace {

Tensor dry(Shape shape, DType dtype = DType::f32) { return {nullptr, dtype, shape}; }

TEST(DryBackend, CountsTheFlopsAndBytesOfAProduct) {
  const WorkspaceModel none;
  DryBackend backend(none);
  Matmul op{.a = dry({8, 5}, DType::bf16), .b = dry({7, 5}, DType::bf16), .out = dry({8, 7}), .trans_b = true};
  backend.run(op);
  EXPECT_EQ(backend.flops(), 2 * 8 * 7 * 5);
  EXPECT_EQ(cost_of(op).bytes_read, 2 * (8 * 5 + 7 * 5));
  EXPECT_EQ(cost_of(op).bytes_written, 4 * 8 * 7);
  op.accumulate = true;
  backend.run(op);
  EXPECT_EQ(cost_of(op).bytes_read, 2 * (8 * 5 + 7 * 5) + 4 * 8 * 7);
  EXPECT_EQ(backend.flops(), 2 * 2 * 8 * 7 * 5);
  EXPECT_THROW(backend.leave(), CheckFailure);  // no region was entered
}

double pairs_one_by_one(const Attention& op) {
  double pairs = 0;
  for (const AttentionSpan& s : op.spans)
    for (int64_t p = s.q_position; p < s.q_position + s.q_count; ++p)
      for (int64_t k = s.k_position; k < s.k_position + s.k_count; ++k)
        pairs += k <= p && (op.heads.window == 0 || k > p - op.heads.window);
  return pairs;
}

TEST(DryBackend, CountsThePairsThatAttentionVisits) {
  for (const testing::AttentionCase& c : testing::attention_cases()) {
    testing::Operands o(DType::f32, 0);
    const Attention op = testing::make_attention(o, c);
    const double forward = 2 * pairs_one_by_one(op) * double(op.q.cols() + op.o.cols());
    EXPECT_EQ(flops_of(op), forward) << c.name;
    EXPECT_EQ(flops_of(testing::make_attention_backward(o, c)), 2 * forward) << c.name;
  }
}

TEST(DryBackend, CountsOnlyTheRowsOfATableThatAreRead) {
  const Embed op{.ids = dry({3}, DType::i32), .table = dry({1000, 4}), .out = dry({3, 4})};
  EXPECT_EQ(cost_of(op).bytes_read, 3 * 4 + 3 * 4 * 4);
  const Rope rope{.x = dry({3, 8}), .positions = dry({3}, DType::i32), .table = dry({500, 4})};
  EXPECT_EQ(cost_of(rope).bytes_read, 3 * 8 * 4 + 3 * 4 + 3 * 4 * 4);
  EXPECT_EQ(cost_of(rope).bytes_written, 3 * 8 * 4);
}

class SomeWorkspace final : public WorkspaceModel {
 public:
  using WorkspaceModel::bytes;
  int64_t bytes(const Matmul& op) const override { return 100 * op.k(); }
  int64_t bytes(const BiasGrad&) const override { return 250; }
};

TEST(DryBackend, KeepsTheLargestWorkspace) {
  const SomeWorkspace model;
  DryBackend backend(model);
  EXPECT_EQ(backend.workspace_bytes(), 0);
  backend.run(BiasGrad{.dy = dry({3, 4}), .db = dry({4})});
  EXPECT_EQ(backend.workspace_bytes(), 250);
  backend.run(Matmul{.a = dry({2, 3}), .b = dry({3, 2}), .out = dry({2, 2})});
  backend.run(Matmul{.a = dry({2, 1}), .b = dry({1, 2}), .out = dry({2, 2})});
  backend.run(Add{.x = dry({3}), .y = dry({3}), .out = dry({3})});  // needs none
  EXPECT_EQ(backend.workspace_bytes(), 300);
}

TEST(DryBackend, RefusesWhatNoBackendCouldRunAndSaysWhere) {
  const WorkspaceModel none;
  DryBackend backend(none);
  const Tensor partial = dry({3, 4}).placed(tokens(Spmd::Partial));
  Region region(backend, "blocks.7.mlp");
  try {
    backend.run(Gelu{.x = partial, .y = partial});
    FAIL() << "accepted";
  } catch (const PlacementError& e) {
    EXPECT_EQ(std::string(e.what()).find("blocks.7.mlp: gelu.x is held Partial on tp"), 0u) << e.what();
  }
  EXPECT_THROW(backend.run(Add{.x = dry({3}), .y = dry({4}), .out = dry({3})}), CheckFailure);
}

}  // namespace
}  // namespace weft
