// Ops of mixtures of experts (ops.h says what holds of all ops).
//   t tokens here   E experts of a layer   k experts of a token   n rows: pairs of a token and one of its experts
//   d, f widths     G experts whose weights are here
// Index tensors are i32. An index below 0 is of a pair that goes nowhere: it reads as zeros.
#pragma once
#include "weft/ops/ops.h"

namespace weft {

inline constexpr int64_t kMostExperts = 1024;     // of a layer
inline constexpr int64_t kMostExpertGroups = 64;  // that a router chooses among
// Added to a sum of sigmoids by which is divided (DeepSeek-V3): all of them may be 0 in f32.
inline constexpr double kLeastSumOfScores = 1e-20;

// How a token's experts are chosen and weighed.
struct Routing {
  bool sigmoid = false;    // scores s = sigmoid(logits), else softmax over all experts
  bool normalise = false;  // the weights of a token's experts are divided by their sum
  double scale = 1;        // ... and multiplied by this
  // Experts are chosen among those of the `top_groups` best of `groups` equal groups: those with the best expert, or
  // with the best sum of two.
  int64_t groups = 1, top_groups = 1;
  bool by_two = false;
  bool operator==(const Routing&) const = default;
  double least_sum() const { return sigmoid ? kLeastSumOfScores : 0; }
};

// ids[i] = the k experts with the largest s + bias, the best first, of equal ones the first; weights[i] = their s,
// normalised and scaled.   logits [t, E], bias [E] or none, weights [t, k] or none, all stat; ids [t, k].
struct Route {
  static constexpr std::string_view kName = "route";
  Tensor logits, bias = {}, ids, weights = {};
  Routing routing = {};
  auto fields() const {
    return std::array{Field{"logits", &logits, Role::in}, Field{"bias", &bias, Role::in}, Field{"ids", &ids, Role::out},
                      Field{"weights", &weights, Role::out}};
  }
  bool operator==(const Route&) const = default;
};

// Losses that are sums over tokens, which pull a router towards balance: with p = s / sum s of a token,
//   load_scale sum_e load[sample][e] p_e + whole_scale sum_e whole[e] p_e + z_scale (logsumexp(logits))^2
struct Balance {
  double load_scale = 0, whole_scale = 0, z_scale = 0;
  int64_t first = 0, sample_tokens = 1;  // token i here is of sample (first + i) / sample_tokens of `load`
  bool operator==(const Balance&) const = default;
};

// dlogits: of the weights' gradient, and of `balance`.   dweights [t, k], load [samples, E], whole [E] or none stat;
// dlogits [t, E] compute. The choice itself has no gradient.
struct RouteBackward {
  static constexpr std::string_view kName = "route_backward";
  Tensor logits, ids, dweights, load, whole = {}, dlogits;
  Routing routing = {};
  Balance balance = {};
  auto fields() const {
    return std::array{Field{"logits", &logits, Role::in},     Field{"ids", &ids, Role::in},
                      Field{"dweights", &dweights, Role::in}, Field{"load", &load, Role::in},
                      Field{"whole", &whole, Role::in},       Field{"dlogits", &dlogits, Role::out}};
  }
  bool operator==(const RouteBackward&) const = default;
};

// What the tokens of a router add up to.   sums f64 [kScalars + 2 E]: of sum_e load p_e, of logsumexp^2, of the entropy
// of p; of each expert the tokens that chose it, and its p. Tokens are summed in fixed chunks.
struct RouterSums {
  static constexpr std::string_view kName = "router_sums";
  static constexpr int64_t kScalars = 3;
  static constexpr int64_t size(int64_t experts) { return kScalars + 2 * experts; }
  Tensor logits, ids, load, sums;
  bool sigmoid = false;
  int64_t first = 0, sample_tokens = 1;  // as in Balance
  auto fields() const {
    return std::array{Field{"logits", &logits, Role::in}, Field{"ids", &ids, Role::in}, Field{"load", &load, Role::in},
                      Field{"sums", &sums, Role::inout}};
  }
  bool operator==(const RouterSums&) const = default;
};

// load[q][e] (+)= scale x the number of pairs with expert e among the tokens of sample q, `sample_tokens` each.
// ids [t, k]; load [samples, E] stat.
struct ExpertLoad {
  static constexpr std::string_view kName = "expert_load";
  Tensor ids, load;
  double scale = 1;
  int64_t sample_tokens = 1;
  bool accumulate = false;
  auto fields() const {
    return std::array{Field{"ids", &ids, Role::in}, Field{"load", &load, accumulate ? Role::inout : Role::out}};
  }
  bool operator==(const ExpertLoad&) const = default;
};

// The order of pairs by (expert, token, place among the token's).   ids [t, k]; order [t k]: of row r the pair
// token x k + place; places [t, k]: of a pair its row; offsets [E + 1]: rows [offsets[e], offsets[e + 1]) are e's.
struct GroupRows {
  static constexpr std::string_view kName = "group_rows";
  Tensor ids, order, places, offsets;
  auto fields() const {
    return std::array{Field{"ids", &ids, Role::in}, Field{"order", &order, Role::out},
                      Field{"places", &places, Role::out}, Field{"offsets", &offsets, Role::out}};
  }
  bool operator==(const GroupRows&) const = default;
};

// out[r] = x[order[r] / per].   order: n; out [n, d], x [., d], both compute or stat.
struct GatherRows {
  static constexpr std::string_view kName = "gather_rows";
  Tensor x, order, out;
  int64_t per = 1;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"order", &order, Role::in}, Field{"out", &out, Role::out}};
  }
  bool operator==(const GatherRows&) const = default;
};
// The adjoint: out[i] = sum over j of x[places[i][j]], in the order of j.   places [t, k]; out [t, d], x [n, d]
// compute.
struct SumRows {
  static constexpr std::string_view kName = "sum_rows";
  Tensor x, places, out;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"places", &places, Role::in}, Field{"out", &out, Role::out}};
  }
  bool operator==(const SumRows&) const = default;
};

// y[r] = g(scale[r]) x[r], g the identity or a sigmoid.   x, y [n, f] compute; scale [n] stat. y may be x.
struct ScaleRows {
  static constexpr std::string_view kName = "scale_rows";
  Tensor x, scale, y;
  bool sigmoid = false;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"scale", &scale, Role::in}, Field{"y", &y, Role::out}};
  }
  bool operator==(const ScaleRows&) const = default;
};
// dx = g(scale) dy; dscale[r] = g'(scale[r]) <dy[r], x[r]>.   dscale [n] stat. dx may be dy.
struct ScaleRowsBackward {
  static constexpr std::string_view kName = "scale_rows_backward";
  Tensor x, scale, dy, dx, dscale;
  bool sigmoid = false;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"scale", &scale, Role::in}, Field{"dy", &dy, Role::in},
                      Field{"dx", &dx, Role::out}, Field{"dscale", &dscale, Role::out}};
  }
  bool operator==(const ScaleRowsBackward&) const = default;
};

// Products of the rows of each expert with its weights: w holds those of G experts, w.rows() / G rows W each.
// out[r] = W x[r] (turned: W^T x[r]) for the rows of the expert; 0 for rows behind the last expert's.
// x [n, .], w, out [n, .] compute; offsets [G + 1] says which rows are whose. Sums are kept in f32 (f64) until the end.
struct GroupedMatmul {
  static constexpr std::string_view kName = "grouped_matmul";
  Tensor x, w, offsets, out;
  bool turned = false;
  int64_t groups() const { return offsets.elements() - 1; }
  int64_t rows_of_group() const { return w.rows() / groups(); }
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"w", &w, Role::in}, Field{"offsets", &offsets, Role::in},
                      Field{"out", &out, Role::out}};
  }
  bool operator==(const GroupedMatmul&) const = default;
};
// dW (+)= sum over the rows of the expert of dy[r] x[r]^T, for each expert.   dy [n, dw.rows() / G], x [n, dw.cols()]
// compute; dw stat.
struct GroupedWeightGrad {
  static constexpr std::string_view kName = "grouped_weight_grad";
  Tensor dy, x, offsets, dw;
  bool accumulate = false;
  int64_t groups() const { return offsets.elements() - 1; }
  int64_t rows_of_group() const { return dw.rows() / groups(); }
  auto fields() const {
    return std::array{Field{"dy", &dy, Role::in}, Field{"x", &x, Role::in}, Field{"offsets", &offsets, Role::in},
                      Field{"dw", &dw, accumulate ? Role::inout : Role::out}};
  }
  bool operator==(const GroupedWeightGrad&) const = default;
};

}  // namespace weft
