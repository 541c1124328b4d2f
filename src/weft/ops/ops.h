// Every kernel of weft as a value: what it reads, what it writes, and the formula. A Backend runs them.
//   t  tokens here     d  width of the stream     V  vocabulary     f  inner width of the MLP
//   h, g  query and key heads here     e  width of a head     u  of a head's values and results: usually e
//   "compute" tensors are f32, bf16, f16 or f64 (one of them per model); "stat" tensors are f32, or f64 in a f64 model;
//   gradients of weights and optimizer state are stat tensors too.
// Outputs never alias inputs unless a comment says so. A tensor that does not exist (`!t`) is an option not taken.
// Equal ops do the same with the same memory.
#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "weft/tensor/tensor.h"

namespace weft {

enum class Role : uint8_t { in, out, inout };
struct Field {
  std::string_view name;
  const Tensor* tensor;
  Role role;
};

// out = op(a) op(b) + bias, or out += op(a) op(b).   op(a) [m, k], op(b) [k, n], out [m, n], bias [n] or none.
// a, b, bias compute; out compute or stat. Sums over k are kept in f32 (f64) until the end. Any row stride.
struct Matmul {
  static constexpr std::string_view kName = "matmul";
  Tensor a, b, out;
  bool trans_a = false, trans_b = false, accumulate = false;
  Tensor bias = {};
  int64_t m() const { return out.rows(); }
  int64_t n() const { return out.cols(); }
  int64_t k() const { return trans_a ? a.rows() : a.cols(); }
  auto fields() const {
    return std::array{Field{"a", &a, Role::in}, Field{"b", &b, Role::in}, Field{"bias", &bias, Role::in},
                      Field{"out", &out, accumulate ? Role::inout : Role::out}};
  }
  bool operator==(const Matmul&) const = default;
};

// db[j] (+)= sum over rows of dy[., j]; or of dy[., j] x[., j] where x exists: then it is the gradient of a factor of
// the columns of x.   dy, x [t, n] compute, db [n] stat. Rows are summed in fixed chunks.
struct BiasGrad {
  static constexpr std::string_view kName = "bias_grad";
  Tensor dy, db;
  bool accumulate = false;
  Tensor x = {};
  auto fields() const {
    return std::array{Field{"dy", &dy, Role::in}, Field{"x", &x, Role::in},
                      Field{"db", &db, accumulate ? Role::inout : Role::out}};
  }
  bool operator==(const BiasGrad&) const = default;
};

// out[i] (+)= table[ids[i] - first].   ids i32 [t]; table [rows, d], out [t, d] compute.
// Ids outside [first, first + rows) contribute zero: another rank holds their row.
struct Embed {
  static constexpr std::string_view kName = "embed";
  Tensor ids, table, out;
  int64_t first = 0;
  bool accumulate = false;
  auto fields() const {
    return std::array{Field{"ids", &ids, Role::in}, Field{"table", &table, Role::in},
                      Field{"out", &out, accumulate ? Role::inout : Role::out}};
  }
  bool operator==(const Embed&) const = default;
};

// dtable[ids[i] - first] += dy[i], in the order of i for each row, whatever the number of threads.   dtable stat.
struct EmbedBackward {
  static constexpr std::string_view kName = "embed_backward";
  Tensor ids, dy, dtable;
  int64_t first = 0;
  auto fields() const {
    return std::array{Field{"ids", &ids, Role::in}, Field{"dy", &dy, Role::in}, Field{"dtable", &dtable, Role::inout}};
  }
  bool operator==(const EmbedBackward&) const = default;
};

// s = x + delta (s = x where delta is none); y = (s - mean) rstd (offset + w) + b, over each row.
// Layer norm (Ba et al. 2016) where `mean` exists: mean(s), rstd = 1 / sqrt(var(s) + eps).
// RMS norm (Zhang & Sennrich 2019, eq. 4) where it does not: mean = 0, rstd = 1 / sqrt(mean(s^2) + eps).
// x, delta, sum, y [t, d] and w, b [d] compute; mean, rstd [t] stat. `sum` receives s and exists iff delta does; it may
// be x or delta.
struct Norm {
  static constexpr std::string_view kName = "norm";
  Tensor x, delta = {}, sum = {}, w, b = {}, y, mean = {}, rstd;
  double eps = 0, offset = 0;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in},        Field{"delta", &delta, Role::in}, Field{"w", &w, Role::in},
                      Field{"b", &b, Role::in},        Field{"sum", &sum, Role::out},    Field{"y", &y, Role::out},
                      Field{"mean", &mean, Role::out}, Field{"rstd", &rstd, Role::out}};
  }
  bool operator==(const Norm&) const = default;
};

// y again, from x (the sum s of the forward pass) and its statistics.
struct NormApply {
  static constexpr std::string_view kName = "norm_apply";
  Tensor x, w, b = {}, mean = {}, rstd, y;
  double offset = 0;  // of w
  auto fields() const {
    return std::array{Field{"x", &x, Role::in},       Field{"w", &w, Role::in},       Field{"b", &b, Role::in},
                      Field{"mean", &mean, Role::in}, Field{"rstd", &rstd, Role::in}, Field{"y", &y, Role::out}};
  }
  bool operator==(const NormApply&) const = default;
};

// dx = carry + J^T dy (carry: the gradient that reaches x beside the norm; none = 0). dw (+)=, db (+)= as asked.
// dx may be dy or carry. dw, db [d] stat. Rows are summed in fixed chunks.
struct NormBackward {
  static constexpr std::string_view kName = "norm_backward";
  Tensor x, w, mean = {}, rstd, dy, carry = {}, dx, dw, db = {};
  bool accumulate = false;  // dw, db
  double offset = 0;        // of w
  auto fields() const {
    const Role sum = accumulate ? Role::inout : Role::out;
    return std::array{Field{"x", &x, Role::in},       Field{"w", &w, Role::in},   Field{"mean", &mean, Role::in},
                      Field{"rstd", &rstd, Role::in}, Field{"dy", &dy, Role::in}, Field{"carry", &carry, Role::in},
                      Field{"dx", &dx, Role::out},    Field{"dw", &dw, sum},      Field{"db", &db, sum}};
  }
  bool operator==(const NormBackward&) const = default;
};

// RMS norm of each head: x, y [t, h e]; w [e]; rstd [t, h] stat. y may be x only where no backward follows.
// Where rows are cut over ranks (h = 1), `squares` [t, 1] stat gives the sum of x^2 over all `total` numbers of a row.
struct HeadNorm {
  static constexpr std::string_view kName = "head_norm";
  Tensor x, w, y, rstd;
  double eps = 0, offset = 0;
  Tensor squares = {};
  int64_t total = 0;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"w", &w, Role::in}, Field{"squares", &squares, Role::in},
                      Field{"y", &y, Role::out}, Field{"rstd", &rstd, Role::out}};
  }
  bool operator==(const HeadNorm&) const = default;
};
// dx may be dy. dw [e] stat. Rows are summed in fixed chunks. Of cut rows, `dots` [t, 1] stat gives the sum of
// (offset + w) x dy over all `total` numbers of a row.
struct HeadNormBackward {
  static constexpr std::string_view kName = "head_norm_backward";
  Tensor x, w, rstd, dy, dx, dw;
  bool accumulate = false;  // dw
  double offset = 0;
  Tensor dots = {};
  int64_t total = 0;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in},
                      Field{"w", &w, Role::in},
                      Field{"rstd", &rstd, Role::in},
                      Field{"dy", &dy, Role::in},
                      Field{"dots", &dots, Role::in},
                      Field{"dx", &dx, Role::out},
                      Field{"dw", &dw, accumulate ? Role::inout : Role::out}};
  }
  bool operator==(const HeadNormBackward&) const = default;
};
// out[i] = sum over the columns here of w[j] x[i][j] y[i][j], w = 1 where it is none.   x, y [t, n], w [n] compute;
// out [t, 1] stat. Ranks that have other columns add theirs.
struct RowDots {
  static constexpr std::string_view kName = "row_dots";
  Tensor x, y, w = {}, out;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"y", &y, Role::in}, Field{"w", &w, Role::in},
                      Field{"out", &out, Role::out}};
  }
  bool operator==(const RowDots&) const = default;
};

// Rotates, in place, R numbers of each head of width e, those from `first` on, by the angles of row positions[.] of
// `table`: pair i is (x[i], x[i + R/2]), or (x[2 i], x[2 i + 1]) where `interleaved`. The rest of a head stays.
// x [t, h e] compute; positions i32 [t]; table [P, R] stat: R/2 cosines, then R/2 sines. `inverse` is the adjoint.
struct Rope {
  static constexpr std::string_view kName = "rope";
  Tensor x, positions, table;
  bool inverse = false;
  int64_t dim = 0;  // e; 0: R
  int64_t first = 0;
  bool interleaved = false;
  int64_t head_dim() const { return dim > 0 ? dim : table.cols(); }
  auto fields() const {
    return std::array{Field{"positions", &positions, Role::in}, Field{"table", &table, Role::in},
                      Field{"x", &x, Role::inout}};
  }
  bool operator==(const Rope&) const = default;
};

// Keys and values of latent attention: of each head, k = [kv's first columns | shared], v = kv's other columns.
// kv [t, h (n + u)]; shared [t, r]; k [t, h (n + r)]; v [t, h u] compute.          DeepSeek-V2, 2024, eq. 15-17
struct LatentKeys {
  static constexpr std::string_view kName = "latent_keys";
  Tensor kv, shared, k, v;
  int64_t heads = 0;
  auto fields() const {
    return std::array{Field{"kv", &kv, Role::in}, Field{"shared", &shared, Role::in}, Field{"k", &k, Role::out},
                      Field{"v", &v, Role::out}};
  }
  bool operator==(const LatentKeys&) const = default;
};
// The adjoint: dshared is the sum over heads, in their order.
struct LatentKeysBackward {
  static constexpr std::string_view kName = "latent_keys_backward";
  Tensor dk, dv, dkv, dshared;
  int64_t heads = 0;
  auto fields() const {
    return std::array{Field{"dk", &dk, Role::in}, Field{"dv", &dv, Role::in}, Field{"dkv", &dkv, Role::out},
                      Field{"dshared", &dshared, Role::out}};
  }
  bool operator==(const LatentKeysBackward&) const = default;
};

// Queries that may see keys: runs of consecutive positions of one document.
struct AttentionSpan {
  int64_t q_row = 0, q_count = 0;          // rows of q and o
  int64_t k_row = 0, k_count = 0;          // rows of k and v
  int64_t q_position = 0, k_position = 0;  // in the document, of the first query and the first key
  int64_t sample = 0;                      // global index of the sample: keys the random numbers of dropout
  bool operator==(const AttentionSpan&) const = default;
};
inline bool operator==(std::span<const AttentionSpan> a, std::span<const AttentionSpan> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
struct AttentionHeads {
  int64_t q = 0, kv = 0, dim = 0;  // query head i reads key head i / (q / kv)
  int64_t first = 0, total = 0;    // the heads here are [first, first + q) of `total`: keys the random numbers
  double scale = 1;                // of q k^T
  int64_t window = 0;              // query at position p sees keys in (p - window, p]; 0: all up to p
  int64_t v_dim = 0;               // of values and results; 0: dim
  int64_t value_dim() const { return v_dim > 0 ? v_dim : dim; }
  double softcap = 0;  // scaled scores s become softcap tanh(s / softcap); 0: they stay
  bool operator==(const AttentionHeads&) const = default;
};
// Zeroed with probability p, else scaled by 1 / (1 - p). Which ones is a function of the key and the global element.
struct DropoutSpec {
  double p = 0;
  uint64_t key = 0;
  bool operator==(const DropoutSpec&) const = default;
};

// o = dropout(softmax(scale q k^T)) v, causal by position, for each span and head; lse = log-sum-exp of the scaled
// scores.   q [tq, h e]; k [tk, g e]; v [tk, g u]; o [tq, h u] compute; lse [tq, h] stat. Every row of q is in exactly
// one span; every query sees at least one key. Never holds a tq x tk buffer.   Dao et al. 2022 Dropout: element (query
// position a, key position b) of head i of a sample uses
//   random_bits(rng_key(key, sample * total + first + i), a << 32 | b) < p 2^32  ->  zero.
struct Attention {
  static constexpr std::string_view kName = "attention";
  Tensor q, k, v, o, lse;
  std::span<const AttentionSpan> spans;
  AttentionHeads heads;
  DropoutSpec dropout = {};
  auto fields() const {
    return std::array{Field{"q", &q, Role::in}, Field{"k", &k, Role::in}, Field{"v", &v, Role::in},
                      Field{"o", &o, Role::out}, Field{"lse", &lse, Role::out}};
  }
  bool operator==(const Attention&) const = default;
};
// Writes dq, dk, dv (rows of k in several spans receive the sum). Every row of k is in at least one span.
struct AttentionBackward {
  static constexpr std::string_view kName = "attention_backward";
  Tensor q, k, v, o, lse, dout, dq, dk, dv;
  std::span<const AttentionSpan> spans;
  AttentionHeads heads;
  DropoutSpec dropout = {};
  auto fields() const {
    return std::array{Field{"q", &q, Role::in},    Field{"k", &k, Role::in},     Field{"v", &v, Role::in},
                      Field{"o", &o, Role::in},    Field{"lse", &lse, Role::in}, Field{"dout", &dout, Role::in},
                      Field{"dq", &dq, Role::out}, Field{"dk", &dk, Role::out},  Field{"dv", &dv, Role::out}};
  }
  bool operator==(const AttentionBackward&) const = default;
};

// Attention over some keys, `sum` with `sum_lse`, becomes that over these and others, whose attention is `o` with
// `lse`:
//   l = log(exp(sum_lse) + exp(lse));  sum = exp(sum_lse - l) sum + exp(lse - l) o;  sum_lse = l
// for each row and head.   o [t, h e] compute; sum [t, h e], lse, sum_lse [t, h] stat.
struct AttentionMerge {
  static constexpr std::string_view kName = "attention_merge";
  Tensor o, lse, sum, sum_lse;
  auto fields() const {
    return std::array{Field{"o", &o, Role::in}, Field{"lse", &lse, Role::in}, Field{"sum", &sum, Role::inout},
                      Field{"sum_lse", &sum_lse, Role::inout}};
  }
  bool operator==(const AttentionMerge&) const = default;
};

// One more logit for each head, with no value, in the softmax of an Attention: lse' = log(exp(lse) + exp(sink)),
// o' = o exp(lse - lse'). AttentionBackward then takes o' and lse'.   sinks [h], o [t, h e] compute; lse [t, h] stat
struct AttentionSink {
  static constexpr std::string_view kName = "attention_sink";
  Tensor sinks, o, lse;
  auto fields() const {
    return std::array{Field{"sinks", &sinks, Role::in}, Field{"o", &o, Role::inout}, Field{"lse", &lse, Role::inout}};
  }
  bool operator==(const AttentionSink&) const = default;
};
// dsinks[h] (+)= - sum over rows of exp(sink - lse') (dout . o').   dsinks [h] stat. Rows are summed in fixed chunks.
struct AttentionSinkBackward {
  static constexpr std::string_view kName = "attention_sink_backward";
  Tensor sinks, o, lse, dout, dsinks;
  bool accumulate = false;
  auto fields() const {
    return std::array{Field{"sinks", &sinks, Role::in}, Field{"o", &o, Role::in}, Field{"lse", &lse, Role::in},
                      Field{"dout", &dout, Role::in}, Field{"dsinks", &dsinks, accumulate ? Role::inout : Role::out}};
  }
  bool operator==(const AttentionSinkBackward&) const = default;
};

// a = f(gate) up, f(x) = x sigmoid(x) (silu) or GELU by tanh.   u [t, 2 f]: gate | up; a [t, f].          Shazeer 2020
// clamped: a = f(min(gate, limit)) (1 + max(-limit, min(up, limit))), f(x) = x sigmoid(1.702 x); gates and ups take
// turns in u.     gpt-oss, 2025
enum class GateKind : uint8_t { silu, gelu_tanh, clamped };
inline constexpr double kClampedSlope = 1.702;
struct GatedUnit {
  static constexpr std::string_view kName = "gated_unit";
  Tensor u, a;
  GateKind kind = GateKind::silu;
  double limit = 0;  // of clamped
  auto fields() const { return std::array{Field{"u", &u, Role::in}, Field{"a", &a, Role::out}}; }
  bool operator==(const GatedUnit&) const = default;
};
struct GatedUnitBackward {  // du may be u
  static constexpr std::string_view kName = "gated_unit_backward";
  Tensor u, da, du;
  GateKind kind = GateKind::silu;
  double limit = 0;
  auto fields() const {
    return std::array{Field{"u", &u, Role::in}, Field{"da", &da, Role::in}, Field{"du", &du, Role::out}};
  }
  bool operator==(const GatedUnitBackward&) const = default;
};

// GELU: x Phi(x) exactly (erf), or its tanh approximation.       Hendrycks & Gimpel 2016
struct Gelu {
  static constexpr std::string_view kName = "gelu";
  Tensor x, y;
  bool exact = false;
  auto fields() const { return std::array{Field{"x", &x, Role::in}, Field{"y", &y, Role::out}}; }
  bool operator==(const Gelu&) const = default;
};
struct GeluBackward {  // dx may be x or dy
  static constexpr std::string_view kName = "gelu_backward";
  Tensor x, dy, dx;
  bool exact = false;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"dy", &dy, Role::in}, Field{"dx", &dx, Role::out}};
  }
  bool operator==(const GeluBackward&) const = default;
};

// y = cap tanh(x / cap). y may be x.   x, y [t, n] stat
struct SoftCap {
  static constexpr std::string_view kName = "soft_cap";
  Tensor x, y;
  double cap = 1;
  auto fields() const { return std::array{Field{"x", &x, Role::in}, Field{"y", &y, Role::out}}; }
  bool operator==(const SoftCap&) const = default;
};
// dx = dy (1 - (y / cap)^2), from the result y. dx may be dy.   y [t, n] stat; dy, dx [t, n] compute
struct SoftCapBackward {
  static constexpr std::string_view kName = "soft_cap_backward";
  Tensor y, dy, dx;
  double cap = 1;
  auto fields() const {
    return std::array{Field{"y", &y, Role::in}, Field{"dy", &dy, Role::in}, Field{"dx", &dx, Role::out}};
  }
  bool operator==(const SoftCapBackward&) const = default;
};

// y = x with elements zeroed or scaled; its own adjoint. y may be x.   x, y [t, n] compute; tokens i64 [t], the global
// number of each token (sample * seq_length + position). Column j is column first + j of `total`:
//   random_bits(key, tokens[i] * total + first + j) < p 2^32  ->  zero.
struct Dropout {
  static constexpr std::string_view kName = "dropout";
  Tensor x, y, tokens;
  DropoutSpec dropout;
  int64_t first = 0, total = 0;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"tokens", &tokens, Role::in}, Field{"y", &y, Role::out}};
  }
  bool operator==(const Dropout&) const = default;
};

// nll[i] = weights[i] (logsumexp(logits[i]) - logits[i][targets[i]]);
// dlogits[i] = scale weights[i] (softmax(logits[i]) - onehot(targets[i])); not computed where there is none.
// Where weights[i] is 0 both are 0, whatever the logits are.
// logits [t, V] stat; targets i32 [t]; weights, nll [t] stat; dlogits [t, V] compute, may be logits.
struct CrossEntropy {
  static constexpr std::string_view kName = "cross_entropy";
  Tensor logits, targets, weights, nll, dlogits = {};
  double scale = 1;
  auto fields() const {
    return std::array{Field{"logits", &logits, Role::in}, Field{"targets", &targets, Role::in},
                      Field{"weights", &weights, Role::in}, Field{"nll", &nll, Role::out},
                      Field{"dlogits", &dlogits, Role::out}};
  }
  bool operator==(const CrossEntropy&) const = default;
};

// Cross-entropy over classes that the ranks have parts of, in two ops. First, of the classes here, for each token:
// parts[i] = (m, sum of exp(logits[i] - m), logits[i][targets[i] - first] or 0 where that class is elsewhere),
// m = max(logits[i]).   logits [t, v] stat, parts [t, 3] stat.
struct CrossEntropyPart {
  static constexpr std::string_view kName = "cross_entropy_part";
  Tensor logits, targets, parts;
  int64_t first = 0;
  auto fields() const {
    return std::array{Field{"logits", &logits, Role::in}, Field{"targets", &targets, Role::in},
                      Field{"parts", &parts, Role::out}};
  }
  bool operator==(const CrossEntropyPart&) const = default;
};
// Then, from the parts of all ranks, parts [ranks t, 3] rank by rank: nll and dlogits as CrossEntropy has them, dlogits
// of the classes here.
struct CrossEntropyJoin {
  static constexpr std::string_view kName = "cross_entropy_join";
  Tensor parts, logits, targets, weights, nll, dlogits = {};
  double scale = 1;
  int64_t first = 0;
  auto fields() const {
    return std::array{Field{"parts", &parts, Role::in},     Field{"logits", &logits, Role::in},
                      Field{"targets", &targets, Role::in}, Field{"weights", &weights, Role::in},
                      Field{"nll", &nll, Role::out},        Field{"dlogits", &dlogits, Role::out}};
  }
  bool operator==(const CrossEntropyJoin&) const = default;
};

// out = x + y, same dtype and shape. out may be x or y.
struct Add {
  static constexpr std::string_view kName = "add";
  Tensor x, y, out;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"y", &y, Role::in}, Field{"out", &out, Role::out}};
  }
  bool operator==(const Add&) const = default;
};
// out = a x + b y, or a x where y is none; same dtype and shape. out may be x or y.
struct Axpby {
  static constexpr std::string_view kName = "axpby";
  Tensor x, y = {}, out;
  double a = 1, b = 0;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"y", &y, Role::in}, Field{"out", &out, Role::out}};
  }
  bool operator==(const Axpby&) const = default;
};
// y[i] += b for each row i: a bias that follows a sum over ranks.   b [n], y [t, n] compute.
struct AddRow {
  static constexpr std::string_view kName = "add_row";
  Tensor b, y;
  auto fields() const { return std::array{Field{"b", &b, Role::in}, Field{"y", &y, Role::inout}}; }
  bool operator==(const AddRow&) const = default;
};
// y[i][j] = x[i][j] w[j] / sqrt(squares[j]); w or squares may be none: that factor is then 1. y may be x.
// x, y [t, n] compute or stat; w, squares [n] stat.
struct ScaleColumns {
  static constexpr std::string_view kName = "scale_columns";
  Tensor x, w = {}, squares = {}, y;
  auto fields() const {
    return std::array{Field{"x", &x, Role::in}, Field{"w", &w, Role::in}, Field{"squares", &squares, Role::in},
                      Field{"y", &y, Role::out}};
  }
  bool operator==(const ScaleColumns&) const = default;
};
// to = from, rounded to nearest even where `to` is narrower.
struct Copy {
  static constexpr std::string_view kName = "copy";
  Tensor from, to;
  auto fields() const { return std::array{Field{"from", &from, Role::in}, Field{"to", &to, Role::out}}; }
  bool operator==(const Copy&) const = default;
};
struct Zero {
  static constexpr std::string_view kName = "zero";
  Tensor x;
  auto fields() const { return std::array{Field{"x", &x, Role::out}}; }
  bool operator==(const Zero&) const = default;
};
struct Ones {
  static constexpr std::string_view kName = "ones";
  Tensor x;
  auto fields() const { return std::array{Field{"x", &x, Role::out}}; }
  bool operator==(const Ones&) const = default;
};

// Reductions of a whole contiguous tensor to one f64, over fixed chunks in a fixed order: the same bits for any number
// of threads. out f64 [1], written.
// SumSquares adds runs of kSumLeaf elements in a binary tree (node (level, index) sums the leaves
// [index << level, (index + 1) << level)), so that ranks which hold aligned parts of x can sum them apart.
inline constexpr int64_t kSumLeaf = 256;
struct Sum {
  static constexpr std::string_view kName = "sum";
  Tensor x, out;  // x stat or f64
  auto fields() const { return std::array{Field{"x", &x, Role::in}, Field{"out", &out, Role::out}}; }
  bool operator==(const Sum&) const = default;
};
struct SumSquares {
  static constexpr std::string_view kName = "sum_squares";
  Tensor x, out;
  auto fields() const { return std::array{Field{"x", &x, Role::in}, Field{"out", &out, Role::out}}; }
  bool operator==(const SumSquares&) const = default;
};
struct CountNonfinite {  // x compute or stat
  static constexpr std::string_view kName = "count_nonfinite";
  Tensor x, out;
  auto fields() const { return std::array{Field{"x", &x, Role::in}, Field{"out", &out, Role::out}}; }
  bool operator==(const CountNonfinite&) const = default;
};

// AdamW with decoupled decay (Loshchilov & Hutter 2019, algorithm 2, as PyTorch scales it):
//   g = grad_scale grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w -= lr weight_decay w;  w -= lr (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps)
// w, grad, m, v [n] stat; value, where it exists, receives w rounded to compute. One pass over memory.
struct AdamW {
  static constexpr std::string_view kName = "adamw";
  Tensor w, grad, m, v, value = {};
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, grad_scale = 1;
  int64_t step = 1;  // from 1
  auto fields() const {
    return std::array{Field{"grad", &grad, Role::in}, Field{"w", &w, Role::inout}, Field{"m", &m, Role::inout},
                      Field{"v", &v, Role::inout}, Field{"value", &value, Role::out}};
  }
  bool operator==(const AdamW&) const = default;
};
// g = grad_scale grad + weight_decay w;  buf = momentum buf + g (buf = g at step 1);  w -= lr buf (nesterov: none).
struct Sgd {
  static constexpr std::string_view kName = "sgd";
  Tensor w, grad, buf, value = {};
  double lr = 0, momentum = 0, weight_decay = 0, grad_scale = 1;
  int64_t step = 1;
  auto fields() const {
    return std::array{Field{"grad", &grad, Role::in}, Field{"w", &w, Role::inout}, Field{"buf", &buf, Role::inout},
                      Field{"value", &value, Role::out}};
  }
  bool operator==(const Sgd&) const = default;
};

}  // namespace weft

#include "weft/ops/blockwise_ops.h"
#include "weft/ops/distill_ops.h"
#include "weft/ops/expert_ops.h"
#include "weft/ops/weight_codes.h"
