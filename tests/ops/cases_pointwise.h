// Cases of activations, dropout, cross-entropy, sums and copies.   t tokens, n columns, f inner width, V vocabulary
#pragma once
#include <array>

#include "ops/trial.h"

namespace weft::testing {

using Sizes = std::vector<std::array<int64_t, 2>>;
inline Sizes pointwise_sizes() { return {{1, 1}, {3, 7}, {5, 33}, {64, 48}, {131, 133}}; }

inline void add_activations(OpCases& to, const Variant& v) {
  for (const auto& size : pointwise_sizes()) {
    const int64_t t = size[0], f = size[1];
    const std::string name = fmt::format("[{} {}]", t, f);
    const Fill wide = normal(3);  // both tails
    for (GateKind kind : {GateKind::silu, GateKind::gelu_tanh, GateKind::clamped}) {
      const std::string of = name + (kind == GateKind::silu      ? " silu"
                                     : kind == GateKind::clamped ? " clamped"
                                                                 : " gelu");
      const double limit = kind == GateKind::clamped ? 2.5 : 0;
      add_case(to, v, of, [=](Operands& o) {
        return GatedUnit{.u = o.act(t, 2 * f, wide), .a = o.act_out(t, f), .kind = kind, .limit = limit};
      });
      for (bool in_place : {false, true}) {
        add_case(to, v, of + (in_place ? " in place" : ""), [=](Operands& o) {
          const Tensor u = o.act(t, 2 * f, wide);
          return GatedUnitBackward{
              .u = u, .da = o.act(t, f), .du = in_place ? u : o.act_out(t, 2 * f), .kind = kind, .limit = limit};
        });
      }
    }
    for (bool exact : {false, true}) {
      const std::string kind = name + (exact ? " erf" : " tanh");
      add_case(to, v, kind,
               [=](Operands& o) { return Gelu{.x = o.act(t, f, wide), .y = o.act_out(t, f), .exact = exact}; });
      for (const char* place : {"", " into x", " into dy"}) {
        add_case(to, v, kind + place, [=, at = std::string(place)](Operands& o) {
          const Tensor x = o.act(t, f, wide), dy = o.act(t, f);
          return GeluBackward{.x = x,
                              .dy = dy,
                              .dx = at.empty()        ? o.act_out(t, f)
                                    : at == " into x" ? x
                                                      : dy,
                              .exact = exact};
        });
      }
    }
  }
}

// Logits far above the cap and far below, gradients where they are.
inline void add_soft_caps(OpCases& to, const Variant& v) {
  for (const auto& size : pointwise_sizes()) {
    const int64_t t = size[0], n = size[1];
    const std::string name = fmt::format("[{} {}]", t, n);
    for (bool in_place : {false, true}) {
      const std::string where = name + (in_place ? " in place" : "");
      add_case(to, v, where, [=](Operands& o) {
        const Tensor x = o.stats(t, n, normal(6));
        return SoftCap{.x = x, .y = in_place ? x : o.stats(t, n), .cap = 5};
      });
      add_case(to, v, where, [=](Operands& o) {
        const Tensor dy = o.act(t, n), y = o.stats(t, n, uniform(-4.9, 4.9));
        return SoftCapBackward{.y = y, .dy = dy, .dx = in_place ? dy : o.act_out(t, n), .cap = 5};
      });
    }
  }
}

inline void add_dropouts(OpCases& to, const Variant& v) {
  for (const auto& size : pointwise_sizes()) {
    const int64_t t = size[0], n = size[1];
    for (double p : {0.0, 0.1, 0.75}) {
      for (int64_t first : {0, 5}) {  // columns that are here of a wider matrix
        for (bool in_place : {false, true}) {
          if (p == 0 && in_place) continue;  // nothing to do
          const auto build = [=](Operands& o) {
            std::vector<int64_t> numbers;
            for (int64_t i = 0; i < t; ++i) numbers.push_back((int64_t{1} << 33) + i * 3);
            const Tensor x = o.act(t, n);
            return Dropout{.x = x,
                           .y = in_place ? x : o.act_out(t, n),
                           .tokens = o.index(numbers, tokens(Spmd::Invariant)),
                           .dropout = {.p = p, .key = 77},
                           .first = first,
                           .total = first == 0 ? n : n + 9};
          };
          add_case(to, v, fmt::format("[{} {}] p {} from {}{}", t, n, p, first, in_place ? " in place" : ""), build);
        }
      }
    }
  }
}

// `by`: which factors there are, and whether the result lies in x.
inline ScaleColumns make_scaled_columns(Operands& o, int64_t t, int64_t n, const std::string& by) {
  const auto has = [&](const char* what) { return by.find(what) != std::string::npos; };
  ScaleColumns op{};
  op.x = o.act(t, n);
  if (has("w")) op.w = o.stat_weight({n});
  if (has("squares")) op.squares = o.stat_weight({n}, uniform(0.1, 4));
  op.y = has("in place") ? op.x : o.act_out(t, n);
  return op;
}

struct LossCase {
  int64_t t, classes;
  std::string name;
  double size = 1;        // of logits
  int64_t uncounted = 0;  // one in so many
  bool gradient = true, in_place = false;
};
inline CrossEntropy make_cross_entropy(Operands& o, const LossCase& c) {
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < c.t; ++i) targets.push_back(int32_t(random_bits(5, uint64_t(i)) % uint32_t(c.classes)));
  const Fill weights = [c](uint64_t, int64_t i) {
    return c.uncounted == 0 || i % c.uncounted != 1 % c.uncounted ? double(2 - i % 4) * 0.75 : 0.0;
  };
  CrossEntropy op{.logits = o.stats(c.t, c.classes, normal(c.size)),
                  .targets = o.index(targets, tokens(Spmd::Invariant)),
                  .weights = o.stats(c.t, weights),
                  .nll = o.stats(c.t)};
  if (c.gradient) op.dlogits = c.in_place ? op.logits : o.act_out(c.t, c.classes);
  op.scale = 0.125;
  return op;
}
inline void add_cross_entropies(OpCases& to, const Variant& v) {
  for (LossCase c : {LossCase{1, 1, "one class"},
                     {3, 5, "small"},
                     {9, 67, "odd, some uncounted", 1, 3},
                     {9, 67, "none counted", 1, 1},
                     {33, 1031, "large"},
                     {33, 1031, "large, sharp", 20, 4},
                     {9, 67, "loss alone", 1, 3, false}}) {
    if (c.name == "none counted") c.uncounted = 1;
    add_case(to, v, fmt::format("{} [{} {}]", c.name, c.t, c.classes),
             [c](Operands& o) { return make_cross_entropy(o, c); });
    if (is_narrow(v.compute) || !c.gradient) continue;
    c.in_place = true;
    add_case(to, v, fmt::format("{} in place [{} {}]", c.name, c.t, c.classes),
             [c](Operands& o) { return make_cross_entropy(o, c); });
  }
}

// Losses over classes that `ranks` ranks have parts of, as one of them computes them.
struct PartCase {
  int64_t t, classes, ranks;
  std::string name;
};
inline CrossEntropyPart make_cross_entropy_part(Operands& o, const PartCase& c) {
  std::vector<int32_t> targets;  // some of them are other ranks'
  for (int64_t i = 0; i < c.t; ++i)
    targets.push_back(int32_t(random_bits(5, uint64_t(i)) % uint32_t(c.ranks * c.classes)));
  return {.logits = o.stats(c.t, c.classes, normal(3)),
          .targets = o.index(targets, tokens(Spmd::Invariant)),
          .parts = o.stats(c.t, 3),
          .first = c.classes};
}
inline CrossEntropyJoin make_cross_entropy_join(Operands& o, const PartCase& c, bool gradient) {
  const CrossEntropyPart part = make_cross_entropy_part(o, c);
  const Fill weights = [](uint64_t, int64_t i) { return i % 4 != 1 ? 0.5 * double(i % 3) - 1 : 0.0; };
  // The largest logit of a rank is above any here; sums are at least 1.
  const Fill parts = [](uint64_t key, int64_t i) {
    return (i % 3 == 2 ? 0.0 : 1.0) + 11 * (i % 3 == 0) + random_uniform(key, uint64_t(i));
  };
  CrossEntropyJoin op{.parts = o.stats(c.ranks * c.t, 3, parts),
                      .logits = part.logits,
                      .targets = part.targets,
                      .weights = o.stats(c.t, weights),
                      .nll = o.stats(c.t),
                      .scale = 0.125,
                      .first = part.first};
  if (gradient) op.dlogits = o.act_out(c.t, c.classes);
  return op;
}
// A student's losses likewise; `ranks` may be one.
inline DistillPart make_distill_part(Operands& o, const PartCase& c, const Distillation& loss) {
  const CrossEntropyPart part = make_cross_entropy_part(o, c);
  return {.logits = part.logits,
          .teacher = o.stats(c.t, c.classes, normal(3)),
          .targets = part.targets,
          .parts = o.stats(c.t, DistillPart::kNumbers),
          .loss = loss,
          .first = part.first};
}
inline DistillJoin make_distill_join(Operands& o, const PartCase& c, const Distillation& loss, bool in_place = false) {
  const DistillPart part = make_distill_part(o, c, loss);
  const Fill weights = [](uint64_t, int64_t i) { return i % 4 != 1 ? 0.5 * double(i % 3) - 1 : 0.0; };
  // The largest logits of a rank are above any here, but not so far that a gradient has no digits in f16; sums are at
  // least 1.
  const Fill parts = [largest = c.classes == 1 ? 4.0 : 12.0](uint64_t key, int64_t i) {
    const int64_t number = i % DistillPart::kNumbers;
    const double least = number == 0 || number == 4 ? largest : number == 2 || number == 6 ? 0 : 1;
    return least + random_uniform(key, uint64_t(i));
  };
  return {.parts = o.stats(c.ranks * c.t, DistillPart::kNumbers, parts),
          .logits = part.logits,
          .teacher = part.teacher,
          .targets = part.targets,
          .weights = o.stats(c.t, weights),
          .nll = o.stats(c.t),
          .divergence = o.stats(c.t),
          .dlogits = in_place ? part.logits : o.act_out(c.t, c.classes),
          .loss = loss,
          .scale = 0.125,
          .first = part.first};
}
inline void add_distillations(OpCases& to, const Variant& v) {
  for (const PartCase& c :
       {PartCase{1, 1, 1, "one class"}, {3, 5, 2, "small"}, {9, 67, 3, "odd"}, {33, 1031, 4, "large"}})
    for (const Distillation& loss : {Distillation{2, 0.5, false}, {0.7, 0.3, true}, {1, 1, true}, {3, 0, false}}) {
      if (c.t != 9 && (loss.alpha == 0 || loss.alpha == 1)) continue;
      const std::string name = fmt::format("{} [{} {}], {} at {}, {}", c.name, c.t, c.classes,
                                           loss.reverse ? "reverse" : "forward", loss.temperature, loss.alpha);
      add_case(to, v, "part, " + name, [=](Operands& o) { return make_distill_part(o, c, loss); });
      add_case(to, v, "join, " + name, [=](Operands& o) { return make_distill_join(o, c, loss); });
      if (!is_narrow(v.compute))
        add_case(to, v, "join in place, " + name, [=](Operands& o) { return make_distill_join(o, c, loss, true); });
    }
}

// Beside the k largest logits of a teacher, of two ranks' classes at least, with half of the mass for the others.
struct TopCase {
  PartCase part;
  int64_t k;
  Distillation loss;
};
inline DistillTopPart make_distill_top_part(Operands& o, const TopCase& c) {
  const CrossEntropyPart part = make_cross_entropy_part(o, c.part);
  const int64_t t = c.part.t, all = std::max<int64_t>(2, c.part.ranks) * c.part.classes;
  std::vector<int32_t> ids;
  std::vector<double> lse;
  for (int64_t i = 0; i < t * c.k; ++i) {
    const int64_t begin = all * (i % c.k) / c.k, end = all * (i % c.k + 1) / c.k;
    ids.push_back(int32_t(begin + int64_t(random_bits(7, uint64_t(i)) % uint64_t(end - begin))));
  }
  const auto logit = [](int64_t i) { return 6 * random_uniform(9, uint64_t(i)) - 3; };
  for (int64_t i = 0; i < t; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < c.k; ++j) sum += std::exp(logit(i * c.k + j) / c.loss.temperature);
    lse.push_back(std::log(2 * sum));
  }
  return {.logits = part.logits,
          .ids = o.index(ids, tokens(Spmd::Invariant)).reshape({t, c.k}),
          .top = o.stats(t, c.k, [=](uint64_t, int64_t i) { return logit(i); }),
          .lse = o.stats(t, [=](uint64_t, int64_t i) { return lse[size_t(i)]; }),
          .targets = part.targets,
          .parts = o.stats(t, DistillTopPart::kNumbers),
          .loss = c.loss,
          .first = part.first};
}
inline DistillTopJoin make_distill_top_join(Operands& o, const TopCase& c, bool in_place = false) {
  const DistillTopPart part = make_distill_top_part(o, c);
  const Fill weights = [](uint64_t, int64_t i) { return i % 4 != 1 ? 0.5 * double(i % 3) - 1 : 0.0; };
  // As make_distill_join; all ranks' masses together are below 1, and what the others have is below the whole.
  const Fill parts = [=, largest = c.part.classes == 1 ? 4.0 : 12.0](uint64_t key, int64_t i) {
    const int64_t number = i % DistillTopPart::kNumbers;
    const double least = number == 0 ? largest : number == 1 || number == 3 ? 1 : number == 4 ? 0.25 : 0;
    return least + random_uniform(key, uint64_t(i)) * (number == 4   ? 0.5
                                                       : number == 5 ? 1.0 / double(c.part.ranks)
                                                                     : 1);
  };
  return {.parts = o.stats(c.part.ranks * c.part.t, DistillTopPart::kNumbers, parts),
          .logits = part.logits,
          .ids = part.ids,
          .top = part.top,
          .lse = part.lse,
          .targets = part.targets,
          .weights = o.stats(c.part.t, weights),
          .nll = o.stats(c.part.t),
          .divergence = o.stats(c.part.t),
          .dlogits = in_place ? part.logits : o.act_out(c.part.t, c.part.classes),
          .loss = c.loss,
          .scale = 0.125,
          .first = part.first};
}
inline void add_top_distillations(OpCases& to, const Variant& v) {
  for (const TopCase& c : {TopCase{{1, 1, 1, "one class"}, 1, {2, 0.5}},
                           {{3, 5, 2, "small"}, 10, {0.7, 0.3}},
                           {{9, 67, 3, "odd"}, 1, {1, 1}},
                           {{9, 67, 3, "odd"}, 20, {3, 0}},
                           {{33, 1031, 4, "large"}, 64, {2, 0.5}}}) {
    const std::string name = fmt::format("{} [{} {}], {} at {}, {}", c.part.name, c.part.t, c.part.classes, c.k,
                                         c.loss.temperature, c.loss.alpha);
    add_case(to, v, "part, " + name, [=](Operands& o) { return make_distill_top_part(o, c); });
    add_case(to, v, "join, " + name, [=](Operands& o) { return make_distill_top_join(o, c); });
    if (!is_narrow(v.compute))
      add_case(to, v, "join in place, " + name, [=](Operands& o) { return make_distill_top_join(o, c, true); });
  }
}

inline void add_cut_cross_entropies(OpCases& to, const Variant& v) {
  for (const PartCase& c :
       {PartCase{1, 1, 2, "one class a rank"}, {3, 5, 2, "small"}, {9, 67, 3, "odd"}, {33, 1031, 4, "large"}}) {
    add_case(to, v, fmt::format("part, {} [{} {}]", c.name, c.t, c.classes),
             [c](Operands& o) { return make_cross_entropy_part(o, c); });
    for (bool gradient : {false, true})
      add_case(to, v, fmt::format("join{}, {} [{} {}]", gradient ? " and gradient" : "", c.name, c.t, c.classes),
               [c, gradient](Operands& o) { return make_cross_entropy_join(o, c, gradient); });
  }
}

inline void add_sums_and_copies(OpCases& to, const Variant& v) {
  for (const auto& size : pointwise_sizes()) {
    const int64_t t = size[0], n = size[1];
    const std::string name = fmt::format("[{} {}]", t, n);
    for (const char* place : {"", " into x", " into y"}) {
      add_case(to, v, name + place, [=, at = std::string(place)](Operands& o) {
        const Tensor x = o.act(t, n), y = o.act(t, n);
        return Add{.x = x, .y = y, .out = at.empty() ? o.act_out(t, n) : at == " into x" ? x : y};
      });
    }
    add_case(to, v, name + " stat", [=](Operands& o) {
      return Add{.x = o.stats(t, n, normal()), .y = o.stats(t, n, normal()), .out = o.stats(t, n)};
    });
    for (const char* place : {"", " into x", " into y", " stat", " alone"}) {
      add_case(to, v, name + place, [=, at = std::string(place)](Operands& o) {
        const bool stat = at == " stat";
        const Tensor x = stat ? o.stats(t, n, normal()) : o.act(t, n), y = stat ? o.stats(t, n, normal()) : o.act(t, n);
        const Tensor out = stat ? o.stats(t, n) : o.act_out(t, n);
        return Axpby{.x = x,
                     .y = at == " alone" ? Tensor{} : y,
                     .out = at == " into x"   ? x
                            : at == " into y" ? y
                                              : out,
                     .a = 3.4445,
                     .b = -0.25};
      });
    }
    add_case(to, v, name, [=](Operands& o) { return AddRow{.b = o.weight({n}), .y = o.act(t, n)}; });
    for (const std::string by : {"w", "squares", "w, squares", "w in place"})
      add_case(to, v, name + " by " + by, [=](Operands& o) { return make_scaled_columns(o, t, n, by); });
    add_case(to, v, name, [=](Operands& o) { return Copy{.from = o.act(t, n), .to = o.act_out(t, n)}; });
    add_case(to, v, name + " stat to compute",
             [=](Operands& o) { return Copy{.from = o.stats(t, n, normal()), .to = o.act_out(t, n)}; });
    add_case(to, v, name + " compute to stat",
             [=](Operands& o) { return Copy{.from = o.act(t, n), .to = o.stats(t, n)}; });
    if (n == 1) {
      add_case(to, v, name + " of a vector",
               [=](Operands& o) { return Copy{.from = o.stats(t, normal()), .to = o.act_out(t, 1)}; });
      add_case(to, v, name + " to a vector", [=](Operands& o) { return Copy{.from = o.act(t, 1), .to = o.stats(t)}; });
    }
    add_case(to, v, name, [=](Operands& o) { return Zero{.x = o.act_out(t, n)}; });
    add_case(to, v, name + " stat", [=](Operands& o) { return Zero{.x = o.stats(t, n)}; });
    add_case(to, v, name, [=](Operands& o) { return Ones{.x = o.act_out(t, n)}; });
  }
}

}  // namespace weft::testing
