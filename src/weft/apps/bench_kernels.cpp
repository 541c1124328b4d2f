#include "weft/apps/bench_scaling.h"

#include <algorithm>
#include <iostream>
#include <vector>

#include "weft/apps/backends.h"
#include "weft/apps/ordinary_numbers.h"
#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/device/host_parts.h"
#include "weft/ops/cost.h"
#include "weft/ops/rules.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr int64_t kWidth = 4096;                                    // d
constexpr int64_t kHeads = 32, kKeyHeads = 8, kHeadWidth = 128;     // h, g, e
constexpr int64_t kLargestVocabulary = 32768, kTokensOfALogit = 8;  // V; logits are of one token in so many
constexpr int64_t kExperts = 8, kChosen = 2;
constexpr int64_t kLongestSequence = 2048;
constexpr int kIssuedAtOnce = 10;  // to a device that runs them later, so that no wait lies between two

// Operands of one op at a time, t tokens of width d, in an arena that may only count.
struct Operands {
  Arena& arena;
  Precision precision;
  int64_t t;
  int64_t vocabulary() const { return std::min(kLargestVocabulary, 2 * t); }

  Tensor act(int64_t n) { return make(precision.compute, {t, n}, kTokens); }
  Tensor stat(Shape shape) { return make(precision.stat, shape, kTokens); }
  Tensor weight(Shape shape) { return make(precision.compute, shape, kWeights); }
  Tensor gradient(Shape shape) { return make(precision.stat, shape, kWeights.dual()); }
  Tensor state(int64_t n) { return make(precision.stat, {n}, kWeights); }
  Tensor total() { return make(DType::f64, {1}, kTokens); }
  template <class T>
  Tensor index(int64_t n, int64_t below) {
    const Tensor x = arena.alloc(dtype_of<T>, {n}, kTokens);
    fill(x, [&](const Tensor& part, int64_t first) {
      for (int64_t i = 0; i < part.rows(); ++i)
        part.as<T>()[i] = T(random_bits(rng_key(1, "index"), uint64_t(first + i)) % uint32_t(below));
    });
    return x;
  }
  // For each token the numbers of kChosen experts, or rows of theirs.
  Tensor chosen(int64_t below) {
    const Tensor x = arena.alloc(DType::i32, {t, kChosen}, kTokens);
    fill(x, [&](const Tensor& part, int64_t first) {
      for (int64_t i = 0; i < part.elements(); ++i)
        part.as<int32_t>()[i] =
            int32_t(random_bits(rng_key(1, "chosen"), uint64_t(first * kChosen + i)) % uint32_t(below));
    });
    return x;
  }
  // For each of n tokens the first k classes.
  Tensor first_classes(int64_t n, int64_t k) {
    const Tensor x = arena.alloc(DType::i32, {n, k}, kTokens);
    fill(x, [&](const Tensor& part, int64_t) {
      for (int64_t i = 0; i < part.elements(); ++i) part.as<int32_t>()[i] = int32_t(i % k);
    });
    return x;
  }
  // Every expert has as many rows.
  Tensor offsets() {
    const Tensor x = arena.alloc(DType::i32, {kExperts + 1}, kTokens);
    fill(x, [&](const Tensor& part, int64_t first) {
      for (int64_t i = 0; i < part.rows(); ++i) part.as<int32_t>()[i] = int32_t((first + i) * t * kChosen / kExperts);
    });
    return x;
  }
  Tensor weights_of_1(int64_t n) {
    const Tensor x = arena.alloc(DType::f32, {n}, kTokens);
    fill(x, [](const Tensor& part, int64_t) { std::fill_n(part.as<float>(), part.rows(), 1.0f); });
    return x;
  }

  // Filled with numbers of ordinary size: a CPU may be slower with others.
  Tensor make(DType dtype, Shape shape, Placement place) {
    const Tensor x = arena.alloc(dtype, shape, place);
    fill(x, [](const Tensor& part, int64_t) {
      fill_with_ordinary_numbers(static_cast<std::byte*>(part.data), size_t(part.bytes()));
    });
    return x;
  }
  void fill(const Tensor& x, const HostPart& f) const {
    if (x.data != nullptr) write_parts(*arena.memory(), x, f);
  }

  static constexpr Placement kTokens = tokens(Spmd::Invariant), kWeights = weights(Spmd::Invariant);
};

// visit(variant, op), of every op that runs over tokens.
template <class Visit>
void each_of_layers(Operands& o, const Visit& visit) {
  const int64_t d = kWidth, t = o.t, qkv = (kHeads + 2 * kKeyHeads) * kHeadWidth;
  const auto one = [&](const char* variant, const auto& make) {
    const Scope scope(o.arena);
    visit(variant, make());
  };
  one("", [&] { return Embed{o.index<int32_t>(t, o.vocabulary()), o.weight({o.vocabulary(), d}), o.act(d)}; });
  one("", [&] {
    return EmbedBackward{o.index<int32_t>(t, o.vocabulary()), o.act(d), o.gradient({o.vocabulary(), d})};
  });
  one("rms, of a sum", [&] {
    return Norm{
        .x = o.act(d), .delta = o.act(d), .sum = o.act(d), .w = o.weight({d}), .y = o.act(d), .rstd = o.stat({t})};
  });
  one("layer", [&] {
    return Norm{
        .x = o.act(d), .w = o.weight({d}), .b = o.weight({d}), .y = o.act(d), .mean = o.stat({t}), .rstd = o.stat({t})};
  });
  one("rms", [&] { return NormApply{.x = o.act(d), .w = o.weight({d}), .rstd = o.stat({t}), .y = o.act(d)}; });
  one("rms, with a carry", [&] {
    return NormBackward{.x = o.act(d),
                        .w = o.weight({d}),
                        .rstd = o.stat({t}),
                        .dy = o.act(d),
                        .carry = o.act(d),
                        .dx = o.act(d),
                        .dw = o.gradient({d})};
  });
  one("layer", [&] {
    return NormBackward{.x = o.act(d),
                        .w = o.weight({d}),
                        .mean = o.stat({t}),
                        .rstd = o.stat({t}),
                        .dy = o.act(d),
                        .dx = o.act(d),
                        .dw = o.gradient({d}),
                        .db = o.gradient({d})};
  });
  one("", [&] { return HeadNorm{o.act(d), o.weight({kHeadWidth}), o.act(d), o.stat({t, kHeads})}; });
  one("", [&] {
    return HeadNormBackward{o.act(d), o.weight({kHeadWidth}),  o.stat({t, kHeads}), o.act(d),
                            o.act(d), o.gradient({kHeadWidth})};
  });
  one("", [&] {
    return Rope{o.act(d), o.index<int32_t>(t, kLongestSequence),
                o.make(o.precision.stat, {kLongestSequence, kHeadWidth}, {})};
  });
  one("", [&] { return RowDots{.x = o.act(d), .y = o.act(d), .w = o.weight({d}), .out = o.stat({t, 1})}; });
  one("", [&] { return AttentionMerge{o.act(d), o.stat({t, kHeads}), o.stat({t, d}), o.stat({t, kHeads})}; });
  one("", [&] { return AttentionSink{o.weight({kHeads}), o.act(d), o.stat({t, kHeads})}; });
  one("", [&] {
    return AttentionSinkBackward{o.weight({kHeads}), o.act(d), o.stat({t, kHeads}), o.act(d), o.gradient({kHeads})};
  });
  one("silu", [&] { return GatedUnit{o.act(2 * d), o.act(d)}; });
  one("silu", [&] { return GatedUnitBackward{o.act(2 * d), o.act(d), o.act(2 * d)}; });
  one("", [&] { return SoftCap{o.stat({t, d}), o.stat({t, d}), 30}; });
  one("", [&] { return SoftCapBackward{o.stat({t, d}), o.act(d), o.act(d), 30}; });
  one("tanh", [&] { return Gelu{o.act(d), o.act(d)}; });
  one("tanh", [&] { return GeluBackward{o.act(d), o.act(d), o.act(d)}; });
  one("", [&] {
    return Dropout{
        .x = o.act(d), .y = o.act(d), .tokens = o.index<int64_t>(t, 1 << 30), .dropout = {0.1, 7}, .total = d};
  });
  one("", [&] { return BiasGrad{o.act(qkv), o.gradient({qkv})}; });
  one("", [&] { return AddRow{o.weight({d}), o.act(d)}; });
  one("", [&] { return ScaleColumns{.x = o.act(d), .w = o.make(o.precision.stat, {d}, o.kWeights), .y = o.act(d)}; });
  one("", [&] { return Add{o.act(d), o.act(d), o.act(d)}; });
  one("", [&] { return Axpby{.x = o.act(d), .y = o.act(d), .out = o.act(d), .a = 0.5, .b = 0.5}; });
}

// Keys and values of heads of 128 + 64 columns, whose values have 128.
template <class Visit>
void each_of_latents(Operands& o, const Visit& visit) {
  const int64_t own = kHeads * kHeadWidth, shared = kHeadWidth / 2, k = own + kHeads * shared;
  const Scope scope(o.arena);
  const LatentKeys op{.kv = o.act(2 * own), .shared = o.act(shared), .k = o.act(k), .v = o.act(own), .heads = kHeads};
  visit("", op);
  visit("", LatentKeysBackward{.dk = op.k, .dv = op.v, .dkv = op.kv, .dshared = op.shared, .heads = kHeads});
}

// Each token has two of 8 experts, which are a quarter as wide as the stream.
template <class Visit>
void each_of_experts(Operands& o, const Visit& visit) {
  const int64_t d = kWidth, f = d / 4, t = o.t, n = t * kChosen, e = kExperts;
  const auto one = [&](const char* variant, const auto& make) {
    const Scope scope(o.arena);
    visit(variant, make());
  };
  const auto rows = [&](int64_t width) { return o.make(o.precision.compute, {n, width}, Operands::kTokens); };
  const auto load = [&] { return o.stat({1, e}); };
  one("softmax", [&] { return Route{.logits = o.stat({t, e}), .ids = o.chosen(e), .weights = o.stat({t, kChosen})}; });
  one("softmax", [&] {
    return RouteBackward{.logits = o.stat({t, e}),
                         .ids = o.chosen(e),
                         .dweights = o.stat({t, kChosen}),
                         .load = load(),
                         .dlogits = o.act(e),
                         .balance = {.load_scale = 1, .sample_tokens = t}};
  });
  one("", [&] {
    return RouterSums{.logits = o.stat({t, e}),
                      .ids = o.chosen(e),
                      .load = load(),
                      .sums = o.make(DType::f64, {RouterSums::size(e)}, Operands::kTokens),
                      .sample_tokens = t};
  });
  one("", [&] { return ExpertLoad{.ids = o.chosen(e), .load = load(), .sample_tokens = t}; });
  one("", [&] { return GroupRows{o.chosen(e), o.index<int32_t>(n, n), o.chosen(n), o.offsets()}; });
  one("", [&] { return GatherRows{.x = o.act(d), .order = o.index<int32_t>(n, n), .out = rows(d), .per = kChosen}; });
  one("", [&] { return SumRows{.x = rows(d), .places = o.chosen(n), .out = o.act(d)}; });
  one("", [&] { return ScaleRows{.x = rows(d), .scale = o.stat({n}), .y = rows(d)}; });
  one("", [&] { return ScaleRowsBackward{rows(d), o.stat({n}), rows(d), rows(d), o.stat({n})}; });
  one("", [&] {
    return GroupedMatmul{.x = rows(d), .w = o.weight({e * f, d}), .offsets = o.offsets(), .out = rows(f)};
  });
  one("", [&] {
    return GroupedWeightGrad{.dy = rows(f), .x = rows(d), .offsets = o.offsets(), .dw = o.gradient({e * f, d})};
  });
}

template <class Visit>
void each_of_attention_and_products(Operands& o, const Visit& visit) {
  const int64_t q = kHeads * kHeadWidth, kv = kKeyHeads * kHeadWidth;
  std::vector<AttentionSpan> spans;
  for (int64_t at = 0; at < o.t; at += kLongestSequence) {
    const int64_t n = std::min(kLongestSequence, o.t - at);
    spans.push_back({.q_row = at, .q_count = n, .k_row = at, .k_count = n});
  }
  const AttentionHeads heads{.q = kHeads, .kv = kKeyHeads, .dim = kHeadWidth, .total = kHeads, .scale = 0.088};
  const Scope scope(o.arena);
  const Attention op{.q = o.act(q),
                     .k = o.act(kv),
                     .v = o.act(kv),
                     .o = o.act(q),
                     .lse = o.stat({o.t, kHeads}),
                     .spans = spans,
                     .heads = heads};
  visit("sequences of 2048", op);
  visit("sequences of 2048", AttentionBackward{.q = op.q,
                                               .k = op.k,
                                               .v = op.v,
                                               .o = op.o,
                                               .lse = op.lse,
                                               .dout = o.act(q),
                                               .dq = o.act(q),
                                               .dk = o.act(kv),
                                               .dv = o.act(kv),
                                               .spans = spans,
                                               .heads = heads});
  visit("d to d", Matmul{.a = op.q, .b = o.weight({kWidth, kWidth}), .out = op.o, .trans_b = true});
}

template <class Visit>
void each_of_losses_and_updates(Operands& o, const Visit& visit) {
  const int64_t rows = std::max<int64_t>(1, o.t / kTokensOfALogit), n = o.t * kWidth / 2;
  const auto one = [&](const char* variant, const auto& make) {
    const Scope scope(o.arena);
    visit(variant, make());
  };
  const auto dlogits = [&] { return o.make(o.precision.compute, {rows, o.vocabulary()}, Operands::kTokens); };
  one("", [&] {
    return CrossEntropy{.logits = o.stat({rows, o.vocabulary()}),
                        .targets = o.index<int32_t>(rows, o.vocabulary()),
                        .weights = o.weights_of_1(rows),
                        .nll = o.stat({rows}),
                        .dlogits = dlogits()};
  });
  one("of half the classes", [&] {
    return CrossEntropyPart{o.stat({rows, o.vocabulary()}), o.index<int32_t>(rows, 2 * o.vocabulary()),
                            o.stat({rows, 3})};
  });
  one("of half the classes", [&] {
    return CrossEntropyJoin{.parts = o.stat({2 * rows, 3}),
                            .logits = o.stat({rows, o.vocabulary()}),
                            .targets = o.index<int32_t>(rows, 2 * o.vocabulary()),
                            .weights = o.weights_of_1(rows),
                            .nll = o.stat({rows}),
                            .dlogits = dlogits()};
  });
  one("of half the classes", [&] {
    return DistillPart{o.stat({rows, o.vocabulary()}), o.stat({rows, o.vocabulary()}),
                       o.index<int32_t>(rows, 2 * o.vocabulary()), o.stat({rows, DistillPart::kNumbers})};
  });
  one("of half the classes", [&] {
    return DistillJoin{.parts = o.stat({2 * rows, DistillPart::kNumbers}),
                       .logits = o.stat({rows, o.vocabulary()}),
                       .teacher = o.stat({rows, o.vocabulary()}),
                       .targets = o.index<int32_t>(rows, 2 * o.vocabulary()),
                       .weights = o.weights_of_1(rows),
                       .nll = o.stat({rows}),
                       .divergence = o.stat({rows}),
                       .dlogits = dlogits()};
  });
  const int64_t top = std::min<int64_t>(64, o.vocabulary());
  one("of half the classes", [&] {
    return DistillTopPart{.logits = o.stat({rows, o.vocabulary()}),
                          .ids = o.first_classes(rows, top),
                          .top = o.stat({rows, top}),
                          .lse = o.stat({rows}),
                          .targets = o.index<int32_t>(rows, 2 * o.vocabulary()),
                          .parts = o.stat({rows, DistillTopPart::kNumbers})};
  });
  one("of half the classes", [&] {
    return DistillTopJoin{.parts = o.stat({2 * rows, DistillTopPart::kNumbers}),
                          .logits = o.stat({rows, o.vocabulary()}),
                          .ids = o.first_classes(rows, top),
                          .top = o.stat({rows, top}),
                          .lse = o.stat({rows}),
                          .targets = o.index<int32_t>(rows, 2 * o.vocabulary()),
                          .weights = o.weights_of_1(rows),
                          .nll = o.stat({rows}),
                          .divergence = o.stat({rows}),
                          .dlogits = dlogits()};
  });
  one("f32 to compute", [&] { return Copy{o.state(n), o.weight({n})}; });
  one("f32", [&] { return Zero{o.state(n)}; });
  one("f32", [&] { return Ones{o.state(n)}; });
  one("", [&] { return Sum{o.state(n), o.total()}; });
  one("", [&] { return SumSquares{o.state(n), o.total()}; });
  one("", [&] { return CountNonfinite{o.state(n), o.total()}; });
  const bool rounds = o.precision.compute != o.precision.stat;
  one("", [&] {
    return AdamW{.w = o.state(n),
                 .grad = o.state(n),
                 .m = o.state(n),
                 .v = o.state(n),
                 .value = rounds ? o.weight({n}) : Tensor{},
                 .lr = 1e-4,
                 .weight_decay = 0.1};
  });
  const CodeBlocks whole{.cols = n, .stride = n};
  const auto of_blocks = [&] { return o.state(whole.num_blocks(n)); };
  const auto codes = [&] { return o.index<uint8_t>(n, kCodes).placed(weights(Spmd::Invariant)); };
  one("", [&] {
    return AdamW8Max{.grad = o.state(n),
                     .m = codes(),
                     .v = codes(),
                     .m_absmax = of_blocks(),
                     .v_absmax = of_blocks(),
                     .m_max = of_blocks(),
                     .v_max = of_blocks(),
                     .at = whole};
  });
  one("", [&] {
    return AdamW8{.w = o.state(n),
                  .grad = o.state(n),
                  .m = codes(),
                  .v = codes(),
                  .m_absmax = of_blocks(),
                  .v_absmax = of_blocks(),
                  .m_max = of_blocks(),
                  .v_max = of_blocks(),
                  .value = rounds ? o.weight({n}) : Tensor{},
                  .at = whole,
                  .lr = 1e-4,
                  .weight_decay = 0.1};
  });
  one("", [&] { return MaxRows{.x = o.stat({4, n / 4}), .out = o.stat({n / 4})}; });
  const auto coded = [&](const char* name, WeightCodes as) {
    const CodedRectangle at{.as = as, .rows = kWidth, .cols = kWidth, .stride = kWidth};
    one(name, [&] {
      return Dequantise{.codes = o.index<uint8_t>(at.num_codes(), kCodes).placed(weights(Spmd::Invariant)),
                        .maxima = o.index<uint8_t>(at.num_maxima(), kCodes).placed(weights(Spmd::Invariant)),
                        .scales = o.state(at.num_scales()),
                        .out = o.weight({kWidth, kWidth}),
                        .at = at};
    });
  };
  coded("nf4", WeightCodes::nf4);
  coded("int8", WeightCodes::int8);
  one("", [&] {
    return Sgd{.w = o.state(n),
               .grad = o.state(n),
               .buf = o.state(n),
               .value = rounds ? o.weight({n}) : Tensor{},
               .lr = 1e-4,
               .momentum = 0.9,
               .step = 2};
  });
}

template <class Visit>
void each_kernel(Operands o, const Visit& visit) {
  each_of_layers(o, visit);
  each_of_latents(o, visit);
  each_of_experts(o, visit);
  each_of_attention_and_products(o, visit);
  each_of_losses_and_updates(o, visit);
}

template <class Op>
double best_seconds(const Machine& machine, const Op& op, int64_t iters) {
  rules::check(op);
  Arena workspace("workspace", machine.workspace_model->of(op), machine.memory);
  const auto backend = machine.make_backend(workspace);
  backend->run(op);
  backend->wait_all();
  const int issued = machine.late ? kIssuedAtOnce : 1;
  double best = 1e30;
  for (int64_t i = 0; i < iters; ++i) {
    const double began = now_s();
    for (int j = 0; j < issued; ++j) backend->run(op);
    backend->wait_all();
    best = std::min(best, (now_s() - began) / issued);
  }
  return best;
}

std::string part_of(double rate, double whole) { return whole > 0 ? fmt::format("{:.2f}", rate / whole) : "-"; }

}  // namespace

int bench_kernels(const BenchOptions& o) {
  if (!o.recipe.empty())
    throw ConfigError("bench kernels takes no recipe; --backend, --precision and --tokens say what");
  if (!o.layouts.empty() || !o.trace.empty() || o.ops)
    throw ConfigError("--layouts, --trace and --ops are of `weft bench scaling` and `weft bench step`");
  ModelOptions on;
  on.backend = o.backend.value_or("cpu"), on.precision = o.precision.value_or("bf16"),
  on.threads = o.threads.value_or(0);
  const Machine machine = machine_for(on);
  Arena counted("operands");
  const Operands operands{counted, precision_of(on), o.tokens.value_or(1 << 14)};
  each_kernel(operands, [](const char*, const auto&) {});
  Arena arena("operands", counted.peak(), machine.memory);
  const double bandwidth = machine.measure_bandwidth();
  const double rate = machine.measure_matmul_rate(operands.precision.compute);
  std::cout << fmt::format("{}\n{} tokens of width {}, {}; measured: {:.1f} GB/s, matrix products {:.2f} TFLOP/s\n\n",
                           machine.description, operands.t, kWidth, name_of(operands.precision.compute),
                           bandwidth / 1e9, rate / 1e12)
            << fmt::format("{:<20} {:<20} {:>10} {:>10} {:>10} {:>9} {:>10} {:>12}\n", "kernel", "", "MiB", "ms",
                           "GB/s", "of copy", "TFLOP/s", "of products");
  each_kernel({arena, operands.precision, operands.t}, [&](const char* variant, const auto& op) {
    const OpCost cost = cost_of(op);
    const double s = best_seconds(machine, op, o.iters), bytes = double(cost.bytes_read + cost.bytes_written);
    const bool computes = cost.flops > 0;
    std::cout << fmt::format("{:<20} {:<20} {:>10.1f} {:>10.3f} {:>10.1f} {:>9} {:>10} {:>12}\n", op.kName, variant,
                             bytes / (1 << 20), s * 1e3, bytes / s / 1e9, part_of(bytes / s, bandwidth),
                             computes ? fmt::format("{:.2f}", cost.flops / s / 1e12) : "",
                             computes ? part_of(cost.flops / s, rate) : "")
              << std::flush;
  });
  return kExitOk;
}

}  // namespace weft
