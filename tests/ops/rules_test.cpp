// What the rules accept gives the right answer on two ranks; what they refuse, they refuse by name.
#include "weft/ops/rules.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>

#include "ops/cases_attention.h"
#include "ops/cases_matrix.h"
#include "ops/cases_norm.h"
#include "ops/cases_pointwise.h"
#include "ops/cases_update.h"
#include "support.h"

namespace weft {
namespace {

using testing::Operands;

constexpr Spmd kHeld[] = {Spmd::None, Spmd::Replicate, Spmd::Invariant, Spmd::Shard0, Spmd::Shard1, Spmd::Partial};

// A tensor without data, held so on tp alone.
Tensor dry(Shape shape, Spmd tp = Spmd::None, DType dtype = DType::f32) {
  return {nullptr, dtype, shape, Placement().with(Axis::tp, tp)};
}

template <class Op>
std::string refusal(const Op& op) {
  return testing::error_of<PlacementError>([&] { rules::check(op); });
}
template <class Op>
std::string bug(const Op& op) {
  return testing::error_of<CheckFailure>([&] { rules::check(op); });
}
template <class Op>
bool accepts(const Op& op) {
  return refusal(op).empty();
}
::testing::AssertionResult has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (text.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "no '" << part << "' in: " << text;
  return ::testing::AssertionSuccess();
}

// ---- Products, simulated on two ranks.

constexpr int64_t kSide = 4;  // of square matrices, so that all shapes fit
using Square = std::array<double, kSide * kSide>;

Square random_square(uint64_t key) {
  Square x;
  for (size_t i = 0; i < x.size(); ++i) x[i] = random_normal(key, i);
  return x;
}

// What rank 0 or 1 has of x: none where no such part exists (None: there is one rank only).
struct Part {
  Tensor tensor;
  std::shared_ptr<Square> memory;
};
Part part_of(const Square& x, Spmd held, int rank) {
  Part p{{}, std::make_shared<Square>(x)};
  p.tensor = Tensor(p.memory->data(), DType::f64, {kSide, kSide});
  if (held == Spmd::Shard0) p.tensor = p.tensor.slice_rows(rank * kSide / 2, kSide / 2);
  if (held == Spmd::Shard1) p.tensor = p.tensor.slice_cols(rank * kSide / 2, kSide / 2);
  if (held == Spmd::Partial) {  // two numbers of which the sum is x
    const Square other = random_square(99);
    for (size_t i = 0; i < x.size(); ++i) (*p.memory)[i] = rank == 0 ? other[i] : x[i] - other[i];
  }
  return p;
}
// The whole value of which the ranks have these parts; none where they disagree.
std::optional<Square> whole_of(const Part (&parts)[2], Spmd held) {
  Square x = *parts[0].memory;
  for (size_t i = 0; i < x.size(); ++i) {
    const double other = (*parts[1].memory)[i];
    const size_t row = i / kSide, col = i % kSide;
    if (held == Spmd::Partial) x[i] += other;
    if ((held == Spmd::Replicate || held == Spmd::Invariant) && x[i] != other) return {};
    if ((held == Spmd::Shard0 && row >= kSide / 2) || (held == Spmd::Shard1 && col >= kSide / 2)) x[i] = other;
  }
  return x;
}

// out = op(a) op(b) by two ranks that hold a, b and out so. Is it the product? None where their shapes do not fit.
std::optional<bool> ranks_compute_the_product(Matmul op, Spmd a, Spmd b, Spmd out) {
  const Square x = random_square(1), y = random_square(2), nothing{};
  Square want{};
  RefBackend ref(1);
  const Part keep_a = part_of(x, Spmd::Replicate, 0), keep_b = part_of(y, Spmd::Replicate, 0);
  op.a = keep_a.tensor, op.b = keep_b.tensor, op.out = Tensor(want.data(), DType::f64, {kSide, kSide});
  ref.run(op);
  Part parts[2];
  for (int rank : {0, 1}) {
    const Part pa = part_of(x, a, rank), pb = part_of(y, b, rank);
    parts[rank] = part_of(nothing, out == Spmd::Partial ? Spmd::Replicate : out, rank);
    op.a = pa.tensor, op.b = pb.tensor, op.out = parts[rank].tensor;
    const int64_t m = op.trans_a ? op.a.cols() : op.a.rows(), n = op.trans_b ? op.b.rows() : op.b.cols();
    const int64_t k = op.trans_b ? op.b.cols() : op.b.rows();
    if (op.k() != k || op.m() != m || op.n() != n) return {};
    ref.run(op);
  }
  const auto got = whole_of(parts, out);
  if (!got) return false;
  for (size_t i = 0; i < want.size(); ++i)
    if (std::abs((*got)[i] - want[i]) > 1e-12) return false;
  return true;
}

// The rules may refuse what would be right (nobody needs it), but what they accept is right.
TEST(Rules, AcceptedProductsAreRightOnTwoRanks) {
  int accepted = 0;
  for (bool trans_a : {false, true}) {
    for (bool trans_b : {false, true}) {
      for (Spmd a : kHeld) {
        for (Spmd b : kHeld) {
          for (Spmd out : kHeld) {
            Matmul op{.a = dry({kSide, kSide}, a), .b = dry({kSide, kSide}, b), .out = dry({kSide, kSide}, out)};
            op.trans_a = trans_a, op.trans_b = trans_b;
            if (!accepts(op)) continue;
            ++accepted;
            if (a == Spmd::None) continue;
            EXPECT_EQ(ranks_compute_the_product(op, a, b, out), true)
                << name_of(a) << (trans_a ? "^T " : " ") << name_of(b) << (trans_b ? "^T -> " : " -> ") << name_of(out);
          }
        }
      }
    }
  }
  EXPECT_EQ(accepted, 4 * 8);
}

TEST(Rules, AProductIsHeldInOneWay) {
  const Matmul wgrad{.a = dry({8, 4}, Spmd::Shard0),
                     .b = dry({8, 6}, Spmd::Shard0),
                     .out = dry({4, 6}, Spmd::Shard0),
                     .trans_a = true};
  EXPECT_TRUE(has(refusal(wgrad),
                  {"matmul.out is held Shard0 on tp", "the product of these parts is Partial", "a f32 [8, 4]"}));
  const Matmul sum{.a = dry({8, 4}, Spmd::Partial), .b = dry({4, 6}, Spmd::Partial), .out = dry({8, 6}, Spmd::Partial)};
  EXPECT_TRUE(has(refusal(sum), {"matmul.a is held Partial on tp", "no product of it by b held Partial"}));
  const Matmul mixed{
      .a = dry({8, 4}, Spmd::Invariant), .b = dry({4, 6}, Spmd::Replicate), .out = dry({8, 6}, Spmd::Invariant)};
  EXPECT_FALSE(accepts(mixed));  // equal work needs equal operands: the gradient of b would be counted twice
}

TEST(Rules, ABiasIsHeldAsTheColumnsOfTheProduct) {
  struct Row {
    Spmd a, b, out, bias;
  };
  const Row good[] = {{Spmd::Replicate, Spmd::Shard1, Spmd::Shard1, Spmd::Shard0},
                      {Spmd::Shard0, Spmd::Replicate, Spmd::Shard0, Spmd::Replicate},
                      {Spmd::Replicate, Spmd::Replicate, Spmd::Replicate, Spmd::Replicate},
                      {Spmd::Invariant, Spmd::Invariant, Spmd::Invariant, Spmd::Invariant},
                      {Spmd::None, Spmd::None, Spmd::None, Spmd::None}};
  for (const Row& row : good) {
    for (Spmd bias : kHeld) {
      const Matmul op{
          .a = dry({8, 4}, row.a), .b = dry({4, 6}, row.b), .out = dry({8, 6}, row.out), .bias = dry({6}, bias)};
      EXPECT_EQ(accepts(op), bias == row.bias) << name_of(row.out) << " with " << name_of(bias);
    }
  }
  const Matmul partial{.a = dry({8, 4}, Spmd::Shard1),
                       .b = dry({4, 6}, Spmd::Shard0),
                       .out = dry({8, 6}, Spmd::Partial),
                       .bias = dry({6}, Spmd::Replicate)};
  EXPECT_TRUE(has(refusal(partial), {"matmul.bias is held Replicate", "added once by every rank"}));
}

TEST(Rules, AxesAreJudgedOneByOne) {
  const Placement x(Spmd::Shard0, Spmd::Shard0, Spmd::Shard1), w(Spmd::Replicate, Spmd::Replicate, Spmd::Shard0);
  Matmul op{.a = dry({8, 4}).placed(x), .b = dry({4, 6}).placed(w), .out = dry({8, 6}).placed(tokens(Spmd::Partial))};
  EXPECT_TRUE(accepts(op));
  op.out.place = Placement(Spmd::Shard0, Spmd::Replicate, Spmd::Partial);
  EXPECT_TRUE(has(refusal(op), {"matmul.out is held Replicate on cp"}));
}

// ---- Everything else, as tables: on tp, what else may be held with what is varied.

TEST(Rules, ABiasGradientIsTheSumOverRows) {
  const std::pair<Spmd, Spmd> good[] = {{Spmd::Shard0, Spmd::Partial},      {Spmd::Shard1, Spmd::Shard0},
                                        {Spmd::Replicate, Spmd::Replicate}, {Spmd::Invariant, Spmd::Invariant},
                                        {Spmd::Partial, Spmd::Partial},     {Spmd::None, Spmd::None}};
  for (auto [dy, db] : good)
    for (Spmd other : kHeld)
      EXPECT_EQ(accepts(BiasGrad{.dy = dry({8, 4}, dy), .db = dry({4}, other)}), other == db) << name_of(dy);
}

TEST(Rules, LookupsAndTheirGradients) {
  const Tensor ids = dry({8}, Spmd::None, DType::i32);
  const auto lookup = [&](Spmd table, Spmd out) {
    return accepts(Embed{.ids = ids, .table = dry({10, 4}, table), .out = dry({8, 4}, out)});
  };
  const auto gradient = [&](Spmd dtable, Spmd dy) {
    return accepts(EmbedBackward{.ids = ids, .dy = dry({8, 4}, dy), .dtable = dry({10, 4}, dtable)});
  };
  int accepted = 0;
  for (Spmd table : kHeld) {
    for (Spmd out : kHeld) {
      accepted += lookup(table, out);
      EXPECT_TRUE(!lookup(table, out) || gradient(dual(table), dual(out))) << name_of(table) << name_of(out);
    }
  }
  EXPECT_EQ(accepted, 5);
  EXPECT_TRUE(lookup(Spmd::Shard0, Spmd::Partial));
  EXPECT_TRUE(lookup(Spmd::Invariant, Spmd::Invariant));
  EXPECT_FALSE(lookup(Spmd::Shard0, Spmd::Replicate));
  EXPECT_FALSE(gradient(Spmd::Replicate, Spmd::Shard0));
}

TEST(Rules, IndicesAreCutWhereRowsAreOrOnTheHost) {
  const auto embed = [](Placement ids, Placement out, Placement table) {
    return accepts(Embed{.ids = dry({8}, Spmd::None, DType::i32).placed(ids),
                         .table = dry({10, 4}).placed(table),
                         .out = dry({8, 4}).placed(out)});
  };
  const Placement w = weights(Spmd::Invariant), x = tokens(Spmd::Invariant);
  EXPECT_TRUE(embed({}, x, w));
  EXPECT_TRUE(embed(x, x, w));
  EXPECT_TRUE(embed(tokens(Spmd::Replicate), x, w));
  EXPECT_FALSE(embed(w, x, w));
  EXPECT_FALSE(embed(tokens(Spmd::Shard0), x, w));
  EXPECT_TRUE(embed(tokens(Spmd::Replicate), tokens(Spmd::Partial), weights(Spmd::Shard0)));
}

Norm norm_of(Spmd x, Spmd w) {
  return {.x = dry({8, 4}, x), .w = dry({4}, w), .y = dry({8, 4}, x), .rstd = dry({8}, x)};
}
NormBackward norm_backward_of(Spmd x, Spmd w) {
  return {.x = dry({8, 4}, x),
          .w = dry({4}, w),
          .rstd = dry({8}, x),
          .dy = dry({8, 4}, dual(x)),
          .dx = dry({8, 4}, dual(x)),
          .dw = dry({4}, dual(w))};
}
TEST(Rules, NormsNeedWholeRowsAndWeightsBesideThem) {
  const std::pair<Spmd, Spmd> good[] = {{Spmd::Shard0, Spmd::Replicate},
                                        {Spmd::Replicate, Spmd::Replicate},
                                        {Spmd::Invariant, Spmd::Invariant},
                                        {Spmd::None, Spmd::None}};
  for (Spmd x : kHeld) {
    for (Spmd w : kHeld) {
      const bool fits = std::find(std::begin(good), std::end(good), std::pair(x, w)) != std::end(good);
      EXPECT_EQ(accepts(norm_of(x, w)), fits) << name_of(x) << name_of(w);
      EXPECT_EQ(accepts(norm_backward_of(x, w)), fits) << name_of(x) << name_of(w);
    }
  }
  NormBackward op = norm_backward_of(Spmd::Shard0, Spmd::Replicate);
  op.dw.place = op.w.place;
  EXPECT_TRUE(has(refusal(op), {"norm_backward.dw is held Replicate on tp", "should be Partial"}));
  op.dw.place = op.w.place.dual();
  op.carry = dry({8, 4}, Spmd::Invariant);
  EXPECT_TRUE(has(refusal(op), {"norm_backward.carry"}));
}

Attention attention_of(Spmd q, Spmd k, std::span<const AttentionSpan> spans) {
  return {.q = dry({8, 4}, q),
          .k = dry({8, 2}, k),
          .v = dry({8, 2}, k),
          .o = dry({8, 4}, q),
          .lse = dry({8, 2}, q),
          .spans = spans,
          .heads = testing::heads_of(2, 1, 2)};
}
TEST(Rules, KeysAreHeldAsQueriesOrWholeBesideCutOnes) {
  const auto spans = testing::packed({8});
  for (Spmd q : kHeld) {
    for (Spmd k : kHeld) {
      const bool cut = q == Spmd::Shard0 || q == Spmd::Shard1;
      const bool fits = q != Spmd::Partial && (k == q || (cut && k == Spmd::Replicate));
      EXPECT_EQ(accepts(attention_of(q, k, spans)), fits) << name_of(q) << name_of(k);
    }
  }
}

TEST(Rules, WhatLatentHeadsShareIsWholeAndItsGradientASum) {
  for (Spmd heads : kHeld) {
    for (Spmd shared : kHeld) {
      const LatentKeys op{.kv = dry({8, 6}, heads),
                          .shared = dry({8, 1}, shared),
                          .k = dry({8, 4}, heads),
                          .v = dry({8, 4}, heads),
                          .heads = 2};
      EXPECT_EQ(accepts(op), shared == (heads == Spmd::Shard1 ? Spmd::Replicate : heads));
      const LatentKeysBackward backward{.dk = op.k, .dv = op.v, .dkv = op.kv, .dshared = op.shared, .heads = 2};
      EXPECT_EQ(accepts(backward), shared == (heads == Spmd::Shard1 ? Spmd::Partial : heads));
    }
  }
}

TEST(Rules, WhatTurnsLiesWithinAHead) {
  Rope op{.x = dry({8, 14}), .positions = dry({8}, Spmd::None, DType::i32), .table = dry({9, 4})};
  op.dim = 7, op.first = 3;
  EXPECT_EQ(bug(op), "");
  op.first = 4;
  EXPECT_TRUE(has(bug(op), {"rope.x", "are in a head"}));
  op.first = 0, op.dim = 6;
  EXPECT_TRUE(has(bug(op), {"rope.x", "heads x head width"}));
}

TEST(Rules, ValuesHaveAWidthOfTheirOwn) {
  const auto spans = testing::packed({8});
  Attention op = attention_of(Spmd::None, Spmd::None, spans);
  op.heads.v_dim = 3;
  EXPECT_TRUE(has(bug(op), {"attention.v", "key heads x value width"}));
  op.v = dry({8, 3});
  EXPECT_TRUE(has(bug(op), {"attention.o", "[8, 6]"}));
  op.o = dry({8, 6});
  EXPECT_EQ(bug(op), "");
}

TEST(Rules, SpansCoverEachQueryOnceAndLetItSeeAKey) {
  using Spans = std::vector<AttentionSpan>;
  const auto complaint = [](const Spans& spans, int64_t window = 0) {
    Attention op = attention_of(Spmd::None, Spmd::None, spans);
    op.heads.window = window;
    return bug(op);
  };
  EXPECT_EQ(complaint(testing::packed({3, 5})), "");
  EXPECT_EQ(complaint({{.q_row = 4, .q_count = 4, .k_row = 4, .k_count = 4}, {.q_count = 4, .k_count = 4}}), "");
  EXPECT_TRUE(has(complaint(testing::packed({3, 4})), {"attention.q", "exactly one span"}));
  EXPECT_TRUE(has(complaint({{.q_count = 8, .k_count = 8}, {.q_count = 1, .k_count = 8}}), {"exactly one span"}));
  EXPECT_TRUE(has(complaint({{.q_count = 8, .k_count = 9}}), {"attention.k", "beyond"}));
  EXPECT_TRUE(has(complaint({{.q_count = 8, .k_count = 8, .k_position = 1}}), {"sees no key"}));
  EXPECT_TRUE(has(complaint({{.q_count = 8, .k_count = 2}}, 3), {"sees no key"}));
  EXPECT_EQ(complaint({{.q_count = 8, .k_count = 6}}, 3), "");
  EXPECT_EQ(complaint({{.q_count = 8, .k_count = 3}}), "");  // a forward pass may leave rows of k unread
}

TEST(Rules, NonlinearFunctionsRefuseSumsThatAreNotComplete) {
  const Tensor u = dry({8, 4}, Spmd::Partial), a = dry({8, 2}, Spmd::Partial);
  EXPECT_TRUE(has(refusal(GatedUnit{.u = u, .a = a}), {"gated_unit.u is held Partial", "nonlinear"}));
  EXPECT_FALSE(accepts(Gelu{.x = u, .y = u}));
  EXPECT_FALSE(accepts(SumSquares{.x = u, .out = dry({1}, Spmd::None, DType::f64)}));
  EXPECT_TRUE(accepts(Add{.x = u, .y = u, .out = u}));  // linear
  EXPECT_TRUE(accepts(Copy{.from = u, .to = u}));
  EXPECT_FALSE(accepts(AddRow{.b = dry({4}, Spmd::Replicate), .y = u}));
  EXPECT_FALSE(accepts(Add{.x = u, .y = u.placed({}), .out = u}));
  // The gradient of a Replicate tensor is Partial, and its function's slope is not.
  const Tensor x = dry({8, 4}, Spmd::Replicate);
  EXPECT_TRUE(accepts(GeluBackward{.x = x, .dy = u, .dx = u}));
  EXPECT_FALSE(accepts(GeluBackward{.x = x, .dy = x, .dx = x}));
}

TEST(Rules, ALossCountsEachTokenOnceOverTheWholeVocabulary) {
  for (Spmd held : kHeld) {
    const CrossEntropy op{.logits = dry({8, 4}, held),
                          .targets = dry({8}, Spmd::None, DType::i32),
                          .weights = dry({8}, Spmd::None),
                          .nll = dry({8}, held),
                          .dlogits = dry({8, 4}, held)};
    EXPECT_EQ(accepts(op), held == Spmd::None || held == Spmd::Invariant || held == Spmd::Shard0) << name_of(held);
    if (held != Spmd::Shard1) continue;
    EXPECT_TRUE(has(refusal(op), {"CrossEntropyPart and CrossEntropyJoin"}));
  }
}

TEST(Rules, OfCutClassesEachRankGivesAPartAndHasEveryLoss) {
  const Tensor logits = dry({8, 4}, Spmd::Shard1), ids = dry({8}, Spmd::None, DType::i32);
  EXPECT_TRUE(accepts(CrossEntropyPart{.logits = logits, .targets = ids, .parts = dry({8, 3}, Spmd::Shard0)}));
  EXPECT_FALSE(accepts(CrossEntropyPart{.logits = logits, .targets = ids, .parts = dry({8, 3}, Spmd::Replicate)}));
  CrossEntropyJoin join{.parts = dry({16, 3}, Spmd::Replicate),
                        .logits = logits,
                        .targets = ids,
                        .weights = dry({8}, Spmd::None),
                        .nll = dry({8}, Spmd::Invariant),
                        .dlogits = logits};
  EXPECT_TRUE(accepts(join));
  join.nll.place = tokens(Spmd::Partial);
  EXPECT_FALSE(accepts(join));
  join.nll.place = tokens(Spmd::Invariant);
  join.parts = dry({15, 3}, Spmd::Replicate);
  EXPECT_THROW(rules::check(join), CheckFailure);
}

TEST(Rules, ATeacherHasTheStudentsTokensAndClasses) {
  const Tensor logits = dry({8, 4}, Spmd::Shard1), ids = dry({8}, Spmd::None, DType::i32);
  DistillPart part{.logits = logits, .teacher = logits, .targets = ids, .parts = dry({8, 7}, Spmd::Shard0)};
  EXPECT_TRUE(accepts(part));
  part.teacher = dry({8, 4}, Spmd::Invariant);
  EXPECT_FALSE(accepts(part));
  DistillJoin join{.parts = dry({16, 7}, Spmd::Replicate),
                   .logits = logits,
                   .teacher = logits,
                   .targets = ids,
                   .weights = dry({8}, Spmd::None),
                   .nll = dry({8}, Spmd::Invariant),
                   .divergence = dry({8}, Spmd::Invariant),
                   .dlogits = logits};
  EXPECT_TRUE(accepts(join));
  join.divergence.place = tokens(Spmd::Partial);
  EXPECT_FALSE(accepts(join));
  join.divergence = join.nll;
  join.parts = dry({8, 7}, Spmd::Shard0);  // of this rank alone
  EXPECT_FALSE(accepts(join));
}

TEST(Rules, ATeachersLargestLogitsAreTheSameOnAllRanksOfItsClasses) {
  const Tensor logits = dry({8, 4}, Spmd::Shard1);
  DistillTopPart part{.logits = logits,
                      .ids = dry({8, 2}, Spmd::None, DType::i32),
                      .top = dry({8, 2}, Spmd::None),
                      .lse = dry({8}, Spmd::None),
                      .targets = dry({8}, Spmd::None, DType::i32),
                      .parts = dry({8, 7}, Spmd::Shard0)};
  EXPECT_TRUE(accepts(part));
  part.top.place = tokens(Spmd::Partial);
  EXPECT_FALSE(accepts(part));
  part.top.place = {};
  part.loss.reverse = true;
  EXPECT_THROW(rules::check(part), CheckFailure);
}

TEST(Rules, UpdatesTakeReducedGradients) {
  AdamW op{.w = dry({8}, Spmd::Shard0),
           .grad = dry({8}, Spmd::Shard0),
           .m = dry({8}, Spmd::Shard0),
           .v = dry({8}, Spmd::Shard0)};
  EXPECT_TRUE(accepts(op));
  op.grad.place = Placement().with(Axis::tp, Spmd::Partial);
  EXPECT_TRUE(has(refusal(op), {"adamw.grad", "not reduced"}));
  op.grad.place = op.w.place;
  op.v.place = {};
  EXPECT_TRUE(has(refusal(op), {"adamw.v is held None", "should be Shard0"}));
}

// ---- Shapes and dtypes: each field of each op, spoilt in turn.

// Every field must be refused in another dtype, with another size, and as a part of a sum beside others that are whole.
template <class Op>
void expect_every_field_judged(const Op& op) {
  ASSERT_EQ(bug(op), "") << Op::kName;
  for (size_t i = 0; i < op.fields().size(); ++i) {
    if (!*op.fields()[i].tensor) continue;
    const std::string field = std::string(Op::kName) + "." + std::string(op.fields()[i].name);
    Op spoilt = op;
    DType& dtype = const_cast<Tensor*>(spoilt.fields()[i].tensor)->dtype;
    dtype = dtype == DType::u8 ? DType::i64 : DType::u8;
    EXPECT_NE(bug(spoilt), "") << field << " may be " << name_of(dtype);
    spoilt = op;
    Placement& place = const_cast<Tensor*>(spoilt.fields()[i].tensor)->place;
    place = place.with(Axis::tp, Spmd::Partial);
    const bool free = field == "zero.x" || field == "rope.x";  // linear, and nothing beside them
    EXPECT_EQ(accepts(spoilt), free) << field;
    spoilt = op;
    Tensor& t = *const_cast<Tensor*>(spoilt.fields()[i].tensor);
    t = Tensor(nullptr, t.dtype, {t.rows() + 1, t.cols() + 1}, t.place);
    if (op.fields().size() == 1) continue;
    EXPECT_NE(bug(spoilt), "") << field << " may be of another size";
  }
}

// The list of every op: one op of each, with all its options.
TEST(Rules, EveryFieldOfEveryOpIsJudged) {
  Operands o(DType::f32, 0);
  expect_every_field_judged(testing::make_product(o, {.m = 3, .n = 4, .k = 5, .trans_b = true, .bias = true}));
  expect_every_field_judged(BiasGrad{.dy = o.act(3, 4), .db = o.gradient({4}, false)});
  expect_every_field_judged(BiasGrad{.dy = o.act(3, 4), .db = o.gradient({4}, false), .x = o.act(3, 4)});
  expect_every_field_judged(testing::make_scaled_columns(o, 3, 4, "w, squares"));
  const Tensor ids = testing::some_ids(o, 3, 5);
  expect_every_field_judged(Embed{.ids = ids, .table = o.weight({5, 4}), .out = o.act(3, 4)});
  expect_every_field_judged(EmbedBackward{.ids = ids, .dy = o.act(3, 4), .dtable = o.gradient({5, 4}, true)});
  const testing::NormCase norm{.t = 3, .d = 4, .layer_norm = true, .bias = true, .delta = true, .carry = true};
  expect_every_field_judged(testing::make_norm(o, norm));
  expect_every_field_judged(testing::make_norm_apply(o, norm));
  expect_every_field_judged(testing::make_norm_backward(o, norm));
  expect_every_field_judged(testing::make_head_norm(o, {.t = 3, .h = 2, .e = 4}));
  expect_every_field_judged(testing::make_head_norm_backward(o, {.t = 3, .h = 2, .e = 4}));
  expect_every_field_judged(testing::make_cut_norm(o, {.t = 3, .h = 1, .e = 4}));
  expect_every_field_judged(testing::make_cut_norm_backward(o, {.t = 3, .h = 1, .e = 4}));
  expect_every_field_judged(RowDots{.x = o.act(3, 4), .y = o.act(3, 4), .w = o.weight({4}), .out = o.stats(3, 1)});
  const testing::AttentionCase attention{"", testing::packed({3, 2}), testing::heads_of(2, 1, 4)};
  expect_every_field_judged(testing::make_attention(o, attention));
  expect_every_field_judged(testing::make_attention_backward(o, attention));
  expect_every_field_judged(testing::make_attention_merge(o, 5, 2, 4));
  expect_every_field_judged(Rope{.x = o.act(3, 8), .positions = ids, .table = o.stats(9, 4).placed({})});
  const testing::LatentKeysCase latent{.t = 3, .heads = 2, .own = 3, .shared = 2, .value = 4};
  expect_every_field_judged(testing::make_latent_keys(o, latent));
  expect_every_field_judged(testing::make_latent_keys_backward(o, latent));
  expect_every_field_judged(testing::make_attention_sink(o, 3, 2, 4));
  expect_every_field_judged(testing::make_attention_sink_backward(o, 3, 2, 4, false));
  expect_every_field_judged(SoftCap{.x = o.stats(3, 4), .y = o.stats(3, 4)});
  expect_every_field_judged(SoftCapBackward{.y = o.stats(3, 4), .dy = o.act(3, 4), .dx = o.act(3, 4)});
  expect_every_field_judged(GatedUnit{.u = o.act(3, 8), .a = o.act(3, 4)});
  expect_every_field_judged(GatedUnitBackward{.u = o.act(3, 8), .da = o.act(3, 4), .du = o.act(3, 8)});
  expect_every_field_judged(Gelu{.x = o.act(3, 4), .y = o.act(3, 4)});
  expect_every_field_judged(GeluBackward{.x = o.act(3, 4), .dy = o.act(3, 4), .dx = o.act(3, 4)});
  const Tensor numbers = o.index(std::vector<int64_t>{1, 2, 3}, {});
  expect_every_field_judged(Dropout{.x = o.act(3, 4), .y = o.act(3, 4), .tokens = numbers, .dropout = {}, .total = 4});
  expect_every_field_judged(testing::make_cross_entropy(o, {.t = 3, .classes = 4, .name = ""}));
  expect_every_field_judged(testing::make_distill_part(o, {3, 4, 1, ""}, {}));
  expect_every_field_judged(testing::make_distill_join(o, {3, 4, 1, ""}, {}));
  const testing::TopCase top{{3, 4, 1, ""}, 2, {}};
  expect_every_field_judged(testing::make_distill_top_part(o, top));
  expect_every_field_judged(testing::make_distill_top_join(o, top));
  expect_every_field_judged(Add{.x = o.act(3, 4), .y = o.act(3, 4), .out = o.act(3, 4)});
  expect_every_field_judged(Axpby{.x = o.act(3, 4), .y = o.act(3, 4), .out = o.act(3, 4)});
  expect_every_field_judged(AddRow{.b = o.weight({4}), .y = o.act(3, 4)});
  expect_every_field_judged(Copy{.from = o.act(3, 4), .to = o.act(3, 4)});
  expect_every_field_judged(Zero{.x = o.act(3, 4)});
  expect_every_field_judged(Ones{.x = o.act(3, 4)});
  Operands mixed(DType::bf16, 0);
  expect_every_field_judged(testing::make_adamw(mixed, {3, 2, 0.1, 1}));
  expect_every_field_judged(testing::make_sgd(mixed, {3, 2, 0.1, 1}));
  const testing::CodesCase codes{"", 300, {.cols = 300, .stride = 300}};
  expect_every_field_judged(testing::make_adamw8_max(mixed, codes));
  expect_every_field_judged(testing::make_adamw8(mixed, codes));
  expect_every_field_judged(MaxRows{.x = o.stats(3, 4), .out = o.stats(4)});
  const CodedRectangle coded{.rows = 3, .cols = 4, .stride = 4};
  expect_every_field_judged(testing::make_dequantise(o, coded));
  // The size of what is summed is free.
  EXPECT_NE(bug(Sum{.x = o.act(3, 4).slice_cols(0, 2), .out = o.scalar()}), "");
  EXPECT_NE(bug(SumSquares{.x = numbers, .out = o.scalar()}), "");
  EXPECT_NE(bug(CountNonfinite{.x = o.act(3, 4), .out = o.stats(1)}), "");
}

}  // namespace
}  // namespace weft
