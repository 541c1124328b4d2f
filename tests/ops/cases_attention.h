// Cases of attention and rotary positions.   h, g query and key heads of width e, with values of width u
#pragma once
#include "ops/trial.h"

namespace weft::testing {

struct AttentionCase {
  std::string name;
  std::vector<AttentionSpan> spans;
  AttentionHeads heads;
  double dropout = 0;
  double size = 1;  // of q: large scores make a sharp softmax
};

inline AttentionHeads heads_of(int64_t q, int64_t kv, int64_t dim, int64_t window = 0) {
  return {.q = q, .kv = kv, .dim = dim, .first = 0, .total = q, .scale = 1 / std::sqrt(double(dim)), .window = window};
}

// The same with values and results of another width.
inline AttentionHeads heads_of(const AttentionHeads& h, int64_t v_dim) {
  AttentionHeads wide = h;
  wide.v_dim = v_dim;
  return wide;
}

// Documents one after the other in a micro-batch.
inline std::vector<AttentionSpan> packed(const std::vector<int64_t>& lengths) {
  std::vector<AttentionSpan> spans;
  int64_t row = 0;
  for (size_t i = 0; i < lengths.size(); row += lengths[i++]) {
    spans.push_back(
        {.q_row = row, .q_count = lengths[i], .k_row = row, .k_count = lengths[i], .sample = int64_t(i) + 3});
  }
  return spans;
}
// The last `queries` positions of one document, whose keys are all in a cache.
inline std::vector<AttentionSpan> cached(int64_t queries, int64_t keys) {
  return {{.q_count = queries, .k_count = keys, .q_position = keys - queries}};
}

inline std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases{
      {"one token", packed({1}), heads_of(1, 1, 4)},
      {"one document", packed({9}), heads_of(2, 2, 8)},
      {"grouped heads", packed({19}), heads_of(4, 2, 5)},
      {"short documents", packed({1, 5, 3}), heads_of(4, 2, 4, 3)},
      {"one key head", packed({33}), heads_of(3, 1, 16)},
      {"documents", packed({1, 7, 64, 3, 20}), heads_of(4, 2, 16)},
      {"window 1", packed({6, 11}), heads_of(2, 1, 4, 1)},
      {"window", packed({40, 70}), heads_of(2, 2, 16, 13)},
      {"window beyond", packed({21}), heads_of(2, 2, 8, 64)},
      {"decoding", cached(1, 57), heads_of(4, 2, 16)},
      {"decoding in a window", cached(1, 57), heads_of(4, 4, 8, 10)},
      {"prefill after a cache", cached(17, 80), heads_of(2, 1, 16)},
      {"sharp", packed({50}), heads_of(2, 2, 16), 0, 12},
      {"long", packed({300}), heads_of(2, 1, 64)},
      {"long window", packed({257, 129}), heads_of(2, 2, 32, 100)},
      {"wide heads", packed({140, 5}), heads_of(1, 1, 128)},
      {"wide heads in a window", packed({70}), heads_of(2, 1, 80, 20)},
      {"prefill of wide heads", cached(30, 100), heads_of(1, 1, 128)},
      {"dropout", packed({23, 40}), heads_of(4, 2, 8), 0.25},
      {"dropout in a window", packed({130}), heads_of(2, 2, 16, 33), 0.1},
      {"narrow values", packed({9, 4}), heads_of(heads_of(2, 1, 6), 4)},
      {"wide values", packed({11}), heads_of(heads_of(2, 2, 5), 7)},
      {"narrow values, documents", packed({1, 7, 64, 3, 20}), heads_of(heads_of(4, 2, 24), 16)},
      {"wide values in a window", packed({40, 70}), heads_of(heads_of(2, 2, 16, 13), 40)},
      {"latent heads", packed({150}), heads_of(heads_of(2, 2, 192), 128)},
      {"latent heads in a window", packed({140, 5}), heads_of(heads_of(2, 1, 136, 30), 72)},
      {"narrow values, dropout", packed({23, 40}), heads_of(heads_of(4, 2, 24), 8), 0.25},
      {"decoding with narrow values", cached(1, 57), heads_of(heads_of(4, 1, 40), 32)},
      {"prefill from a latent", cached(25, 70), heads_of(heads_of(4, 1, 576), 512)},
  };
  for (const double size : {1.0, 8.0}) {  // small scores, and such that the cap cuts
    AttentionHeads capped = heads_of(4, 2, 16, size > 1 ? 20 : 0);
    capped.softcap = 3;
    cases.push_back({size > 1 ? "capped, in a window" : "capped", packed({1, 40, 70}), capped, 0, size});
    cases.push_back({size > 1 ? "capped, small, sharp" : "capped, small", packed({11}), capped, 0.2, size});
  }
  AttentionHeads later = heads_of(2, 1, 8);
  later.first = 4, later.total = 8, later.scale = 0.7;
  cases.push_back({"dropout, heads 4 and 5 of 8", packed({3, 10}), later, 0.5});
  // Positions apart: two runs of a document's queries, of which the first sees fewer of the same keys.
  std::vector<AttentionSpan> pieces{
      {.q_row = 0, .q_count = 6, .k_row = 0, .k_count = 12, .q_position = 4, .k_position = 0, .sample = 1},
      {.q_row = 6, .q_count = 5, .k_row = 3, .k_count = 9, .q_position = 9, .k_position = 3, .sample = 1}};
  cases.push_back({"pieces that share keys", pieces, heads_of(4, 2, 8)});
  cases.push_back({"pieces, dropout", pieces, heads_of(4, 2, 8), 0.3});
  return cases;
}

// q | k | v as columns of one matrix where the counts agree, as the model has them.
inline Attention make_attention(Operands& o, const AttentionCase& c) {
  int64_t tq = 0, tk = 0;
  for (const AttentionSpan& s : c.spans) tq = std::max(tq, s.q_row + s.q_count), tk = std::max(tk, s.k_row + s.k_count);
  const int64_t q = c.heads.q * c.heads.dim, k = c.heads.kv * c.heads.dim, v = c.heads.kv * c.heads.value_dim();
  Attention op{.q = {}, .k = {}, .v = {}, .o = {}, .lse = {}, .spans = o.keep(c.spans), .heads = c.heads};
  if (tq == tk && c.size == 1) {
    const Tensor qkv = o.act(tq, q + k + v);
    op.q = qkv.slice_cols(0, q), op.k = qkv.slice_cols(q, k), op.v = qkv.slice_cols(q + k, v);
  } else {
    op.q = o.act(tq, q, normal(c.size)), op.k = o.act(tk, k), op.v = o.act(tk, v);
  }
  op.o = o.act_out(tq, c.heads.q * c.heads.value_dim());
  op.lse = o.stats(tq, c.heads.q);
  op.dropout = {.p = c.dropout, .key = c.dropout > 0 ? uint64_t{0x1234567890abcdef} : 0};
  return op;
}

inline AttentionBackward make_attention_backward(Operands& o, const AttentionCase& c) {
  const Attention f = make_attention(o, c);
  o.derive(f);
  const int64_t q = f.q.cols(), k = f.k.cols(), v = f.v.cols();
  const Tensor dout = o.act(f.q.rows(), f.o.cols());
  Tensor dq, dk, dv;
  if (f.q.rows() == f.k.rows()) {
    const Tensor d = o.act_out(f.q.rows(), q + k + v);
    dq = d.slice_cols(0, q), dk = d.slice_cols(q, k), dv = d.slice_cols(q + k, v);
  } else {
    dq = o.act_out(f.q.rows(), q), dk = o.act_out(f.k.rows(), k), dv = o.act_out(f.k.rows(), v);
  }
  return {.q = f.q,
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
          .dropout = f.dropout};
}

inline AttentionMerge make_attention_merge(Operands& o, int64_t t, int64_t heads, int64_t dim) {
  return {.o = o.act(t, heads * dim),
          .lse = o.stats(t, heads, normal(5)),
          .sum = o.stats(t, heads * dim, normal(1)),
          .sum_lse = o.stats(t, heads, normal(5))};
}

inline void add_attentions(OpCases& to, const Variant& v) {
  for (const AttentionCase& c : attention_cases()) {
    add_case(to, v, c.name, [c](Operands& o) { return make_attention(o, c); });
    if (c.spans[0].q_position == 0 || c.spans.size() > 1)  // no gradient flows to a cache
      add_case(to, v, c.name, [c](Operands& o) { return make_attention_backward(o, c); });
  }
}

inline void add_attention_merges(OpCases& to, const Variant& v) {
  for (const auto& size : std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {5, 3, 8}, {67, 4, 20}, {200, 2, 64}}) {
    const auto [t, h, e] = size;
    add_case(to, v, fmt::format("[{} {}x{}]", t, h, e),
             [t = t, h = h, e = e](Operands& o) { return make_attention_merge(o, t, h, e); });
  }
}

inline AttentionSink make_attention_sink(Operands& o, int64_t t, int64_t h, int64_t e) {
  return {.sinks = o.weight({h}, normal(2)), .o = o.act(t, h * e), .lse = o.stats(t, h, normal(2))};
}
inline AttentionSinkBackward make_attention_sink_backward(Operands& o, int64_t t, int64_t h, int64_t e,
                                                          bool accumulate) {
  const AttentionSink f = make_attention_sink(o, t, h, e);
  o.derive(f);
  return {.sinks = f.sinks,
          .o = f.o,
          .lse = f.lse,
          .dout = o.act(t, h * e),
          .dsinks = o.gradient({h}, accumulate),
          .accumulate = accumulate};
}
inline void add_attention_sinks(OpCases& to, const Variant& v) {
  for (const auto& size : std::vector<std::array<int64_t, 3>>{{1, 1, 2}, {5, 3, 6}, {67, 4, 16}, {130, 2, 64}}) {
    const int64_t t = size[0], h = size[1], e = size[2];
    const std::string name = fmt::format("[{} {}x{}]", t, h, e);
    add_case(to, v, name, [=](Operands& o) { return make_attention_sink(o, t, h, e); });
    for (bool accumulate : {false, true})
      add_case(to, v, name + (accumulate ? " +=" : ""),
               [=](Operands& o) { return make_attention_sink_backward(o, t, h, e, accumulate); });
  }
}

// Heads that turn in part, in halves or in neighbouring pairs.
struct RopeCase {
  int64_t t, h, e, turned, first;
  bool inverse, interleaved;
};
inline std::string name_of_case(const RopeCase& c) {
  return fmt::format("[{} {}x{}]{}{}{}", c.t, c.h, c.e,
                     c.turned < c.e ? fmt::format(" {} from {}", c.turned, c.first) : "",
                     c.interleaved ? " interleaved" : "", c.inverse ? " inverse" : "");
}
inline Rope make_rope(Operands& o, const RopeCase& c) {
  const int64_t positions = 31, r = c.turned;
  std::vector<int32_t> at;
  for (int64_t i = 0; i < c.t; ++i) at.push_back(int32_t((i * 7 + 2) % positions));
  const Fill angle = [r](uint64_t, int64_t i) {
    const int64_t column = i % r % (r / 2);
    const double a = double(i / r) * std::pow(1e4, -2 * double(column) / double(r));
    return i % r < r / 2 ? std::cos(a) : std::sin(a);
  };
  return {.x = o.act(c.t, c.h * c.e),
          .positions = o.index(at, tokens(Spmd::Invariant)),
          .table = o.make(o.stat(), {positions, r}, weights(Spmd::Invariant), angle),
          .inverse = c.inverse,
          .dim = c.turned < c.e ? c.e : 0,
          .first = c.first,
          .interleaved = c.interleaved};
}

inline void add_ropes(OpCases& to, const Variant& v) {
  for (const auto& size : std::vector<std::array<int64_t, 3>>{{1, 1, 2}, {5, 3, 6}, {67, 4, 16}, {40, 2, 64}}) {
    const int64_t t = size[0], h = size[1], e = size[2];
    for (bool inverse : {false, true}) {
      for (bool interleaved : {false, true}) {
        RopeCase c{t, h, e, e, 0, inverse, interleaved};
        add_case(to, v, name_of_case(c), [c](Operands& o) { return make_rope(o, c); });
        if (e < 6) continue;
        c.turned = e / 4 * 2, c.first = interleaved ? e - c.turned : 0;
        add_case(to, v, name_of_case(c), [c](Operands& o) { return make_rope(o, c); });
      }
    }
  }
}

struct LatentKeysCase {
  int64_t t, heads, own, shared, value;
};
inline LatentKeys make_latent_keys(Operands& o, const LatentKeysCase& c) {
  const Tensor latent = o.act(c.t, c.shared + 5);  // shared lies beside other numbers
  return {.kv = o.act(c.t, c.heads * (c.own + c.value)),
          .shared = latent.slice_cols(5, c.shared),
          .k = o.act_out(c.t, c.heads * (c.own + c.shared)),
          .v = o.act_out(c.t, c.heads * c.value),
          .heads = c.heads};
}
inline LatentKeysBackward make_latent_keys_backward(Operands& o, const LatentKeysCase& c) {
  return {.dk = o.act(c.t, c.heads * (c.own + c.shared)),
          .dv = o.act(c.t, c.heads * c.value),
          .dkv = o.act_out(c.t, c.heads * (c.own + c.value)),
          .dshared = o.act_out(c.t, c.shared + 5).slice_cols(5, c.shared),
          .heads = c.heads};
}
inline void add_latent_keys(OpCases& to, const Variant& v) {
  for (const LatentKeysCase& c : {LatentKeysCase{1, 1, 1, 2, 1},
                                  {5, 3, 7, 4, 2},
                                  {67, 4, 12, 8, 10},
                                  {33, 2, 128, 64, 128},
                                  {3, 16, 32, 40, 8}}) {
    const std::string name = fmt::format("[{} {}x({}+{}, {})]", c.t, c.heads, c.own, c.shared, c.value);
    add_case(to, v, name, [c](Operands& o) { return make_latent_keys(o, c); });
    add_case(to, v, name, [c](Operands& o) { return make_latent_keys_backward(o, c); });
  }
}

}  // namespace weft::testing
