// Every backward op is the derivative of its forward op: by each element of each input, to rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/cases_attention.h"
#include "ops/cases_norm.h"
#include "ops/cases_pointwise.h"
#include "ops/complex_step.h"

namespace weft {
namespace {

using testing::complex_step_error;
using testing::Operands;
using testing::Paired;

constexpr double kRounding = 1e-12;

// Operands in f64, with rows apart so that strides count. What runs here leaves their twins as they were made, from
// which complex steps begin.
struct Given {
  Operands o{DType::f64, 2};
  RefBackend ref{1};
  template <class Op>
  void run(const Op& op) {
    ref.run(op);
  }
  Tensor copy(const Tensor& t) {
    Tensor to = o.act_out(t.rows(), t.cols());
    run(Copy{.from = t, .to = to});
    return to;
  }
};

TEST(RefGradient, OfMatmulAreTwoMatmuls) {
  for (bool accumulate : {false, true}) {
    Given s;
    const Tensor x = s.o.act(3, 5), w = s.o.weight({4, 5}), b = s.o.weight({4}), dy = s.o.act(3, 4);
    const Matmul forward{.a = x,
                         .b = w,
                         .out = s.o.act(3, 4),
                         .trans_b = true,
                         .accumulate = accumulate,
                         .bias = accumulate ? Tensor{} : b};
    const Tensor dx = s.o.act_out(3, 5), dw = s.o.gradient({4, 5}, false), db = s.o.gradient({4}, false);
    s.run(Matmul{.a = dy, .b = w, .out = dx});
    s.run(Matmul{.a = dy, .b = x, .out = dw, .trans_a = true});
    s.run(BiasGrad{.dy = dy, .db = db});
    std::vector<Paired> inputs{{x, dx}, {w, dw}};
    inputs.push_back(accumulate ? Paired{forward.out, dy} : Paired{b, db});
    EXPECT_LT(complex_step_error(s.o, forward, {{forward.out, dy}}, inputs), kRounding);
  }
}

TEST(RefGradient, OfMatmulInEveryTransposition) {
  for (bool trans_a : {false, true}) {
    for (bool trans_b : {false, true}) {
      Given s;
      const Tensor a = trans_a ? s.o.act(5, 3) : s.o.act(3, 5), b = trans_b ? s.o.act(4, 5) : s.o.act(5, 4);
      const Matmul forward{.a = a, .b = b, .out = s.o.act_out(3, 4), .trans_a = trans_a, .trans_b = trans_b};
      const Tensor dy = s.o.act(3, 4), da = s.o.act_out(a.rows(), a.cols()), db = s.o.act_out(b.rows(), b.cols());
      // dA = dY B^T and dB = A^T dY, each transposed where its operand is.
      if (trans_a)
        s.run(Matmul{.a = b, .b = dy, .out = da, .trans_a = trans_b, .trans_b = true});
      else
        s.run(Matmul{.a = dy, .b = b, .out = da, .trans_b = !trans_b});
      if (trans_b)
        s.run(Matmul{.a = dy, .b = a, .out = db, .trans_a = true, .trans_b = trans_a});
      else
        s.run(Matmul{.a = a, .b = dy, .out = db, .trans_a = !trans_a});
      EXPECT_LT(complex_step_error(s.o, forward, {{forward.out, dy}}, {{a, da}, {b, db}}), kRounding)
          << trans_a << trans_b;
    }
  }
}

TEST(RefGradient, OfEmbedAddsToTheRowsThatAreHere) {
  for (int32_t first : {0, 3}) {
    Given s;
    const Tensor ids = s.o.index(std::vector<int32_t>{4, 1, 4, 7, 3}, tokens(Spmd::Invariant));
    const Tensor table = s.o.weight({5, 3}), dy = s.o.act(5, 3), dtable = s.o.gradient({5, 3}, true);
    const Embed forward{.ids = ids, .table = table, .out = s.o.act_out(5, 3), .first = first};
    s.run(Zero{.x = dtable});
    s.run(EmbedBackward{.ids = ids, .dy = dy, .dtable = dtable, .first = first});
    EXPECT_LT(complex_step_error(s.o, forward, {{forward.out, dy}}, {{table, dtable}}), kRounding) << first;
  }
}

// The objective is <y, dy> + <sum, carry>, as in a residual stream.
TEST(RefGradient, OfNormsWithAndWithoutResidual) {
  for (bool layer_norm : {false, true}) {
    for (bool residual : {false, true}) {
      for (const char* place : {"", "dy", "carry"}) {
        const std::string at = place;
        if (at == "carry" && !residual) continue;
        Given s;
        const Norm f = testing::make_norm(s.o, {.t = 3,
                                                .d = 5,
                                                .layer_norm = layer_norm,
                                                .bias = layer_norm,
                                                .delta = residual,
                                                .offset = residual ? 1.0 : 0.0});
        s.run(f);
        const Tensor dy = s.o.act(3, 5), carry = residual ? s.o.act(3, 5) : Tensor{};
        const Tensor dy_in = s.copy(dy), carry_in = residual ? s.copy(carry) : Tensor{};
        const Tensor dx = at.empty() ? s.o.act_out(3, 5) : at == "dy" ? dy_in : carry_in;
        const Tensor dw = s.o.gradient({5}, false), db = layer_norm ? s.o.gradient({5}, false) : Tensor{};
        s.run(NormBackward{.x = residual ? f.sum : f.x,
                           .w = f.w,
                           .mean = f.mean,
                           .rstd = f.rstd,
                           .dy = dy_in,
                           .carry = carry_in,
                           .dx = dx,
                           .dw = dw,
                           .db = db,
                           .offset = f.offset});
        std::vector<Paired> outputs{{f.y, dy}}, inputs{{f.x, dx}, {f.w, dw}};
        if (residual) outputs.push_back({f.sum, carry}), inputs.push_back({f.delta, dx});
        if (layer_norm) inputs.push_back({f.b, db});
        EXPECT_LT(complex_step_error(s.o, f, outputs, inputs), kRounding) << layer_norm << residual << place;
      }
    }
  }
}

TEST(RefGradient, OfNormsAddsToWhatIsThere) {
  for (bool accumulate : {false, true}) {
    Given s;
    const Norm f = testing::make_norm(s.o, {.t = 4, .d = 3, .layer_norm = true, .bias = true});
    s.run(f);
    const Tensor dy = s.o.act(4, 3), dx = s.o.act_out(4, 3);
    const Tensor dw = s.o.gradient({3}, true), db = s.o.gradient({3}, true);
    const std::vector<double> before(dw.as<double>(), dw.as<double>() + 3);
    NormBackward backward{.x = f.x, .w = f.w, .mean = f.mean, .rstd = f.rstd, .dy = dy, .dx = dx, .dw = dw, .db = db};
    backward.accumulate = accumulate;
    s.run(backward);
    const std::vector<double> once(dw.as<double>(), dw.as<double>() + 3);
    backward.accumulate = false;
    s.run(backward);
    for (size_t j = 0; j < 3; ++j)
      EXPECT_NEAR(once[j], dw.as<double>()[j] + (accumulate ? before[j] : 0), 1e-14) << accumulate;
  }
}

TEST(RefGradient, OfHeadNorm) {
  for (bool in_place : {false, true}) {
    Given s;
    const double offset = in_place ? 1 : 0;
    const HeadNorm f = testing::make_head_norm(s.o, {.t = 3, .h = 2, .e = 4, .offset = offset});
    s.run(f);
    const Tensor dy = s.o.act(3, 8), dy_in = s.copy(dy), dx = in_place ? dy_in : s.o.act_out(3, 8);
    const Tensor dw = s.o.gradient({4}, false);
    s.run(HeadNormBackward{.x = f.x, .w = f.w, .rstd = f.rstd, .dy = dy_in, .dx = dx, .dw = dw, .offset = offset});
    EXPECT_LT(complex_step_error(s.o, f, {{f.y, dy}}, {{f.x, dx}, {f.w, dw}}), kRounding);
  }
}

// Two ranks with half of each row: what they compute of their halves, given the sums of both, is the norm of the whole
// and its gradient.
TEST(RefGradient, NormsOfCutRowsAreThoseOfTheWhole) {
  Given s;
  constexpr int64_t t = 3, d = 8;
  const HeadNorm whole = testing::make_head_norm(s.o, {.t = t, .h = 1, .e = d});
  s.run(whole);
  const Tensor dy = s.o.act(t, d), dx = s.o.act_out(t, d), dw = s.o.gradient({d}, false);
  s.run(HeadNormBackward{.x = whole.x, .w = whole.w, .rstd = whole.rstd, .dy = dy, .dx = dx, .dw = dw});
  const auto sum_of_halves = [&](const Tensor& x, const Tensor& y, const Tensor& w) {
    std::array<Tensor, 2> parts;
    for (int64_t half : {0, 1}) {
      parts[size_t(half)] = s.o.stats(t, 1);
      s.run(RowDots{.x = x.slice_cols(half * d / 2, d / 2),
                    .y = y.slice_cols(half * d / 2, d / 2),
                    .w = w ? w.slice_rows(half * d / 2, d / 2) : Tensor{},
                    .out = parts[size_t(half)]});
    }
    s.run(Add{.x = parts[0], .y = parts[1], .out = parts[0]});
    return parts[0];
  };
  const Tensor squares = sum_of_halves(whole.x, whole.x, {}), dots = sum_of_halves(whole.x, dy, whole.w);
  for (int64_t half : {0, 1}) {
    const int64_t first = half * d / 2;
    const auto part = [&](const Tensor& m) { return m.slice_cols(first, d / 2); };
    const Tensor w = whole.w.slice_rows(first, d / 2), rstd = s.o.stats(t, 1), y = s.o.act_out(t, d / 2);
    const Tensor dx_here = s.o.act_out(t, d / 2), dw_here = s.o.gradient({d / 2}, false);
    s.run(HeadNorm{.x = part(whole.x), .w = w, .y = y, .rstd = rstd, .eps = whole.eps, .squares = squares, .total = d});
    s.run(HeadNormBackward{.x = part(whole.x),
                           .w = w,
                           .rstd = rstd,
                           .dy = part(dy),
                           .dx = dx_here,
                           .dw = dw_here,
                           .dots = dots,
                           .total = d});
    for (int64_t j = 0; j < d / 2; ++j) {
      EXPECT_NEAR(dw_here.as<double>()[j], dw.as<double>()[first + j], 1e-14);
      for (int64_t i = 0; i < t; ++i) {
        const auto at = [&](const Tensor& m, int64_t col) { return m.as<double>()[i * m.row_stride + col]; };
        EXPECT_NEAR(at(y, j), at(whole.y, first + j), 1e-14);
        EXPECT_NEAR(at(dx_here, j), at(dx, first + j), 1e-14);
      }
    }
  }
}

TEST(RefGradient, OfAttentionSinks) {
  Given s;
  const AttentionSink f = testing::make_attention_sink(s.o, 3, 2, 4);
  const AttentionSink after{.sinks = f.sinks, .o = s.copy(f.o), .lse = s.copy(f.lse)};
  s.run(after);
  const Tensor dout = s.o.act(3, 8), dsinks = s.o.gradient({2}, false);
  s.run(AttentionSinkBackward{.sinks = f.sinks, .o = after.o, .lse = after.lse, .dout = dout, .dsinks = dsinks});
  EXPECT_LT(complex_step_error(s.o, f, {{f.o, dout}}, {{f.sinks, dsinks}}), kRounding);
}

TEST(RefGradient, OfSoftCap) {
  Given s;
  const Tensor x = s.o.stats(3, 5, testing::normal(3)), dy = s.o.act(3, 5), dx = s.o.act_out(3, 5);
  const SoftCap f{.x = x, .y = s.o.stats(3, 5), .cap = 2};
  s.run(f);
  s.run(SoftCapBackward{.y = f.y, .dy = dy, .dx = dx, .cap = 2});
  EXPECT_LT(complex_step_error(s.o, f, {{f.y, dy}}, {{x, dx}}), kRounding);
}

TEST(RefGradient, OfRopeIsTheInverse) {
  for (bool inverse : {false, true}) {
    Given s;
    const Tensor x = s.o.act(3, 8), dy = s.o.act(3, 8), dx = s.copy(dy);
    const Tensor positions = s.o.index(std::vector<int32_t>{5, 0, 2}, tokens(Spmd::Invariant));
    const Tensor table = s.o.weight({6, 4}, testing::normal());  // rotations or not: the adjoint holds
    s.run(Rope{.x = dx, .positions = positions, .table = table, .inverse = !inverse});
    const Rope f{.x = x, .positions = positions, .table = table, .inverse = inverse};
    EXPECT_LT(complex_step_error(s.o, f, {{x, dy}}, {{x, dx}}), kRounding);
    Rope part{
        .x = x, .positions = positions, .table = table, .inverse = inverse, .dim = 8, .first = 3, .interleaved = true};
    Rope back = part;
    back.x = s.copy(dy), back.inverse = !inverse;
    s.run(back);
    EXPECT_LT(complex_step_error(s.o, part, {{x, dy}}, {{x, back.x}}), kRounding);
  }
}

TEST(RefGradient, OfLatentKeys) {
  Given s;
  const testing::LatentKeysCase c{.t = 3, .heads = 2, .own = 3, .shared = 2, .value = 4};
  const LatentKeys f = testing::make_latent_keys(s.o, c);
  const LatentKeysBackward backward = testing::make_latent_keys_backward(s.o, c);
  s.run(backward);
  EXPECT_LT(complex_step_error(s.o, f, {{f.k, backward.dk}, {f.v, backward.dv}},
                               {{f.kv, backward.dkv}, {f.shared, backward.dshared}}),
            kRounding);
}

// Only cases with few queries: each element of q, k and v costs a forward pass.
void expect_attention_gradients(bool of_many_keys) {
  for (testing::AttentionCase c : testing::attention_cases()) {
    int64_t queries = 0, keys = 0;
    for (const AttentionSpan& span : c.spans) {
      queries = std::max(queries, span.q_row + span.q_count);
      keys = std::max(keys, span.k_row + span.k_count);
    }
    constexpr int64_t kFew = 24;
    if (queries > kFew || (keys > kFew) != of_many_keys) continue;
    Given s;
    const Attention f = testing::make_attention(s.o, c);
    s.run(f);
    const Tensor dout = s.o.act(f.o.rows(), f.o.cols());
    const Tensor dq = s.o.act_out(f.q.rows(), f.q.cols()), dk = s.o.act_out(f.k.rows(), f.k.cols()),
                 dv = s.o.act_out(f.v.rows(), f.v.cols());
    s.run(AttentionBackward{.q = f.q,
                            .k = f.k,
                            .v = f.v,
                            .o = f.o,
                            .lse = f.lse,
                            .dout = dout,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .spans = f.spans,
                            .heads = f.heads,
                            .dropout = f.dropout});
    EXPECT_LT(complex_step_error(s.o, f, {{f.o, dout}}, {{f.q, dq}, {f.k, dk}, {f.v, dv}}), kRounding) << c.name;
  }
}
TEST(RefGradient, OfAttention) { expect_attention_gradients(false); }
TEST(RefGradientSlow, OfAttentionToACache) { expect_attention_gradients(true); }

TEST(RefGradient, OfGatedUnits) {
  for (GateKind kind : {GateKind::silu, GateKind::gelu_tanh, GateKind::clamped}) {
    const bool in_place = kind != GateKind::gelu_tanh;
    const double limit = kind == GateKind::clamped ? 0.5 : 0;  // most numbers are beyond
    Given s;
    const Tensor u = s.o.act(3, 8), u_in = s.copy(u), da = s.o.act(3, 4), du = in_place ? u_in : s.o.act_out(3, 8);
    s.run(GatedUnitBackward{.u = u_in, .da = da, .du = du, .kind = kind, .limit = limit});
    const GatedUnit f{.u = u, .a = s.o.act_out(3, 4), .kind = kind, .limit = limit};
    EXPECT_LT(complex_step_error(s.o, f, {{f.a, da}}, {{u, du}}), kRounding);
  }
}

TEST(RefGradient, OfBothGelus) {
  for (bool exact : {false, true}) {
    for (const char* place : {"", "x", "dy"}) {
      const std::string at = place;
      Given s;
      const Tensor x = s.o.act(3, 5, testing::normal(2)), dy = s.o.act(3, 5), x_in = s.copy(x), dy_in = s.copy(dy);
      const Tensor dx = at.empty() ? s.o.act_out(3, 5) : at == "x" ? x_in : dy_in;
      s.run(GeluBackward{.x = x_in, .dy = dy_in, .dx = dx, .exact = exact});
      const Gelu f{.x = x, .y = s.o.act_out(3, 5), .exact = exact};
      EXPECT_LT(complex_step_error(s.o, f, {{f.y, dy}}, {{x, dx}}), kRounding) << exact << place;
    }
  }
}

TEST(RefGradient, OfDropoutIsItself) {
  Given s;
  const Tensor x = s.o.act(4, 6), dy = s.o.act(4, 6), dx = s.o.act_out(4, 6);
  const Tensor numbers = s.o.index(std::vector<int64_t>{9, 2, 5, 6}, tokens(Spmd::Invariant));
  Dropout f{.x = x, .y = s.o.act_out(4, 6), .tokens = numbers, .dropout = {0.4, 5}, .first = 2, .total = 9};
  s.run(Dropout{.x = dy, .y = dx, .tokens = numbers, .dropout = {0.4, 5}, .first = 2, .total = 9});
  EXPECT_LT(complex_step_error(s.o, f, {{f.y, dy}}, {{x, dx}}), kRounding);
}

TEST(RefGradient, OfCrossEntropyIsItsSecondResult) {
  for (bool in_place : {false, true}) {
    Given s;
    CrossEntropy f = testing::make_cross_entropy(s.o, {.t = 5, .classes = 7, .name = "", .size = 2, .uncounted = 3});
    const Tensor logits = f.logits, scale = s.o.stats(5, [](uint64_t, int64_t) { return 0.125; });
    if (in_place) f.logits = f.dlogits = s.copy(f.logits);
    s.run(f);
    const Tensor dlogits = f.dlogits;
    f.logits = logits, f.dlogits = {};
    EXPECT_LT(complex_step_error(s.o, f, {{f.nll, scale}}, {{logits, dlogits}}), kRounding);
  }
}

TEST(RefGradient, LossesOfCutClassesAreThoseOfAllOfThem) {
  Given s;
  CrossEntropy whole = testing::make_cross_entropy(s.o, {.t = 5, .classes = 7, .name = "", .size = 2, .uncounted = 3});
  whole.scale = 0.125;
  s.run(whole);
  const std::array<int64_t, 4> cuts{0, 2, 3, 7};
  const Tensor parts = s.o.stats(15, 3, testing::unwritten());
  for (size_t r = 0; r < 3; ++r)
    s.run(CrossEntropyPart{.logits = whole.logits.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                           .targets = whole.targets,
                           .parts = parts.slice_rows(int64_t(r) * 5, 5),
                           .first = cuts[r]});
  for (size_t r = 0; r < 3; ++r) {
    const int64_t n = cuts[r + 1] - cuts[r];
    const Tensor nll = s.o.stats(5, testing::unwritten()), dlogits = s.o.act_out(5, n);
    s.run(CrossEntropyJoin{.parts = parts,
                           .logits = whole.logits.slice_cols(cuts[r], n),
                           .targets = whole.targets,
                           .weights = whole.weights,
                           .nll = nll,
                           .dlogits = dlogits,
                           .scale = whole.scale,
                           .first = cuts[r]});
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(nll.as<double>()[i], whole.nll.as<double>()[i], 1e-14);
      for (int64_t j = 0; j < n; ++j)
        EXPECT_NEAR(dlogits.as<double>()[i * dlogits.row_stride + j],
                    whole.dlogits.as<double>()[i * whole.dlogits.row_stride + cuts[r] + j], 1e-14);
    }
  }
}

// Classes cut over three ranks, each of which has its part: the logits' gradient is the derivative of what both losses
// come to, by steps through parts and join; and they are those of formulas over all classes.
TEST(RefGradient, OfDistillationOverCutClassesIsItsLossesDerivative) {
  const std::array<int64_t, 4> cuts{0, 2, 3, 7};
  const int64_t t = 5, n = 7;
  for (const Distillation& loss : {Distillation{2, 0.4, false}, {0.7, 0.8, true}}) {
    Given s;
    const DistillJoin whole = testing::make_distill_join(s.o, {t, n, 3, ""}, loss);
    const Tensor targets = s.o.index(std::vector<int32_t>{6, 0, 2, 3, 1}, tokens(Spmd::Invariant));
    const Tensor far = s.o.stats(t, n, testing::normal(20)), parts = s.o.stats(3 * t, 7, testing::unwritten());
    for (const Tensor& teacher : {whole.teacher, far}) {
      const auto run_ranks = [&](auto& on) {
        for (size_t r = 0; r < 3; ++r)
          on.run(DistillPart{.logits = whole.logits.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                             .teacher = teacher.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                             .targets = targets,
                             .parts = parts.slice_rows(int64_t(r) * t, t),
                             .loss = loss,
                             .first = cuts[r]});
        for (size_t r = 0; r < 3; ++r)
          on.run(DistillJoin{.parts = parts,
                             .logits = whole.logits.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                             .teacher = teacher.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                             .targets = targets,
                             .weights = whole.weights,
                             .nll = whole.nll,
                             .divergence = whole.divergence,
                             .dlogits = whole.dlogits.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                             .loss = loss,
                             .scale = 0.125,
                             .first = cuts[r]});
      };
      run_ranks(s);
      const auto at = [](const Tensor& x, int64_t i, int64_t j) { return x.as<double>()[i * x.row_stride + j]; };
      for (int64_t i = 0; i < t; ++i) {
        double sum = 0, soft = 0, of_teacher = 0, kl = 0;
        for (int64_t j = 0; j < n; ++j) {
          sum += std::exp(at(whole.logits, i, j));
          soft += std::exp(at(whole.logits, i, j) / loss.temperature);
          of_teacher += std::exp(at(teacher, i, j) / loss.temperature);
        }
        for (int64_t j = 0; j < n; ++j) {
          const double log_q = at(whole.logits, i, j) / loss.temperature - std::log(soft);
          const double log_t = at(teacher, i, j) / loss.temperature - std::log(of_teacher);
          kl += loss.reverse ? std::exp(log_q) * (log_q - log_t) : std::exp(log_t) * (log_t - log_q);
        }
        const double w = whole.weights.as<double>()[i];
        const double ce = std::log(sum) - at(whole.logits, i, targets.as<int32_t>()[i]);
        EXPECT_NEAR(whole.divergence.as<double>()[i], w * kl, 1e-12 * (1 + std::abs(kl)));
        EXPECT_NEAR(whole.nll.as<double>()[i], w * ce, 1e-12);
        for (int64_t j = 0; j < n; ++j) {
          testing::ComplexOperands z(s.o);
          z.at(whole.logits, i, j) += std::complex<double>(0, 1e-60);
          run_ranks(z);
          const double slope = loss.loss(z.at(whole.divergence, i, 0).imag(), z.at(whole.nll, i, 0).imag()) / 1e-60;
          EXPECT_NEAR(at(whole.dlogits, i, j), 0.125 * slope, kRounding) << i << " " << j;
        }
      }
    }
  }
}

// Likewise beside the largest logits of a teacher alone, and beside all of them, where the others have no mass: of one
// rank that has none of them, too.
TEST(RefGradient, OfATeachersLargestLogitsIsItsLossesDerivative) {
  const std::array<int64_t, 4> cuts{0, 2, 3, 7};
  const int64_t t = 5, n = 7;
  const Distillation loss{2, 0.4};
  const auto at = [](const Tensor& x, int64_t i, int64_t j) { return x.as<double>()[i * x.row_stride + j]; };
  for (const int64_t k : {1, 3, 7}) {
    Given s;
    const DistillJoin whole = testing::make_distill_join(s.o, {t, n, 3, ""}, loss);
    const auto soft = [&](const Tensor& x, int64_t i, int64_t j) { return std::exp(at(x, i, j) / loss.temperature); };
    const auto sum = [&](const Tensor& x, int64_t i) {
      double all = 0;
      for (int64_t j = 0; j < n; ++j) all += soft(x, i, j);
      return all;
    };
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < t; ++i) {
      std::vector<int32_t> row(size_t(n), 0);
      std::iota(row.begin(), row.end(), 0);
      std::sort(row.begin(), row.end(),
                [&](int a, int b) { return at(whole.teacher, i, a) > at(whole.teacher, i, b); });
      std::sort(row.begin(), row.begin() + k);
      ids.insert(ids.end(), row.begin(), row.begin() + k);
    }
    const Tensor targets = s.o.index(std::vector<int32_t>{6, 0, 2, 3, 1}, tokens(Spmd::Invariant));
    const Tensor parts = s.o.stats(3 * t, 7, testing::unwritten());
    const Tensor top_ids = s.o.index(ids, tokens(Spmd::Invariant)).reshape({t, k});
    const Tensor top = s.o.stats(t, k, [&](uint64_t, int64_t c) { return at(whole.teacher, c / k, ids[size_t(c)]); });
    const Tensor lse = s.o.stats(t, [&](uint64_t, int64_t i) { return std::log(sum(whole.teacher, i)); });
    const auto run_ranks = [&](auto& on) {
      for (size_t r = 0; r < 3; ++r)
        on.run(DistillTopPart{.logits = whole.logits.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                              .ids = top_ids,
                              .top = top,
                              .lse = lse,
                              .targets = targets,
                              .parts = parts.slice_rows(int64_t(r) * t, t),
                              .loss = loss,
                              .first = cuts[r]});
      for (size_t r = 0; r < 3; ++r)
        on.run(DistillTopJoin{.parts = parts,
                              .logits = whole.logits.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                              .ids = top_ids,
                              .top = top,
                              .lse = lse,
                              .targets = targets,
                              .weights = whole.weights,
                              .nll = whole.nll,
                              .divergence = whole.divergence,
                              .dlogits = whole.dlogits.slice_cols(cuts[r], cuts[r + 1] - cuts[r]),
                              .loss = loss,
                              .scale = 0.125,
                              .first = cuts[r]});
    };
    run_ranks(s);
    for (int64_t i = 0; i < t; ++i) {
      double kl = 0, rest = 1, own_rest = 1;
      for (int64_t c = 0; c < k; ++c) {
        const int64_t j = ids[size_t(i * k + c)];
        const double p = soft(whole.teacher, i, j) / sum(whole.teacher, i),
                     q = soft(whole.logits, i, j) / sum(whole.logits, i);
        kl += p * std::log(p / q);
        rest -= p;
        own_rest -= q;
      }
      if (k < n) kl += rest * std::log(rest / own_rest);
      EXPECT_NEAR(whole.divergence.as<double>()[i], whole.weights.as<double>()[i] * kl, 1e-12 * (1 + kl)) << k;
      for (int64_t j = 0; j < n; ++j) {
        testing::ComplexOperands z(s.o);
        z.at(whole.logits, i, j) += std::complex<double>(0, 1e-60);
        run_ranks(z);
        const double slope = loss.loss(z.at(whole.divergence, i, 0).imag(), z.at(whole.nll, i, 0).imag()) / 1e-60;
        EXPECT_NEAR(at(whole.dlogits, i, j), 0.125 * slope, kRounding) << k << " " << i << " " << j;
      }
    }
  }
}

TEST(RefGradient, OfAddRowIsBiasGrad) {
  Given s;
  const Tensor b = s.o.weight({4}), y = s.o.act(3, 4), dy = s.o.act(3, 4), db = s.o.gradient({4}, false);
  s.run(BiasGrad{.dy = dy, .db = db});
  EXPECT_LT(complex_step_error(s.o, AddRow{.b = b, .y = y}, {{y, dy}}, {{b, db}, {y, dy}}), kRounding);
}

TEST(RefGradient, OfScaleColumnsAreItselfAndBiasGrad) {
  Given s;
  const Tensor x = s.o.act(3, 4), w = s.o.stat_weight({4}), y = s.o.act_out(3, 4);
  const Tensor dy = s.o.act(3, 4), dx = s.o.act_out(3, 4), dw = s.o.gradient({4}, false);
  s.run(ScaleColumns{.x = dy, .w = w, .y = dx});
  s.run(BiasGrad{.dy = dy, .db = dw, .x = x});
  EXPECT_LT(complex_step_error(s.o, ScaleColumns{.x = x, .w = w, .y = y}, {{y, dy}}, {{x, dx}, {w, dw}}), kRounding);
}

// The test itself: a wrong gradient shows.
TEST(RefGradient, TestsSeeAWrongGradient) {
  Given s;
  const Tensor x = s.o.act(2, 3), dy = s.o.act(2, 3), dx = s.o.act_out(2, 3);
  s.run(GeluBackward{.x = x, .dy = dy, .dx = dx, .exact = true});
  const Gelu f{.x = x, .y = s.o.act_out(2, 3), .exact = true};
  dx.as<double>()[1] += 1e-9;
  EXPECT_GT(complex_step_error(s.o, f, {{f.y, dy}}, {{x, dx}}), 1e-10);
}

}  // namespace
}  // namespace weft
