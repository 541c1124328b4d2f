// Cases of matrix products and tables.   m, n, k as in Matmul; t tokens, d width, V vocabulary
#pragma once
#include <array>

#include "ops/trial.h"

namespace weft::testing {

struct ProductCase {
  int64_t m, n, k;
  bool trans_a = false, trans_b = false, accumulate = false, bias = false, stat_out = false;
};

inline std::string name_of_case(const ProductCase& c) {
  return fmt::format("[{} {} {}]{}{}{}{}{}", c.m, c.n, c.k, c.trans_a ? " a^T" : "", c.trans_b ? " b^T" : "",
                     c.accumulate ? " +=" : "", c.bias ? " bias" : "", c.stat_out ? " into stat" : "");
}

// A product of tokens by weights; with a^T, of two activations into a weight's gradient.
inline Matmul make_product(Operands& o, const ProductCase& c) {
  Matmul op;
  op.trans_a = c.trans_a, op.trans_b = c.trans_b, op.accumulate = c.accumulate;
  const Shape b = c.trans_b ? Shape(c.n, c.k) : Shape(c.k, c.n);
  op.a = c.trans_a ? o.act(c.k, c.m) : o.act(c.m, c.k);
  op.b = c.trans_a && !c.trans_b ? o.act(c.k, c.n) : o.weight(b);
  const Fill before = c.accumulate ? normal() : unwritten();
  if (c.trans_a)
    op.out = o.gradient({c.m, c.n}, c.accumulate);
  else
    op.out = c.stat_out ? o.stats(c.m, c.n, before) : o.act(c.m, c.n, before);
  if (c.bias) op.bias = o.weight({c.n});
  return op;
}

inline void add_products(OpCases& to, const Variant& v) {
  std::vector<ProductCase> cases;
  for (const auto& size : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {1, 33, 7}, {5, 1, 64}, {7, 13, 19}, {16, 16, 16}, {33, 65, 31}, {64, 48, 129}}) {
    const int64_t m = size[0], n = size[1], k = size[2];
    cases.push_back({m, n, k});
    cases.push_back({.m = m, .n = n, .k = k, .trans_b = true, .bias = true});
    cases.push_back({.m = m, .n = n, .k = k, .trans_a = true});
    cases.push_back({.m = m, .n = n, .k = k, .trans_a = true, .accumulate = true});
    cases.push_back({.m = m, .n = n, .k = k, .trans_b = true, .accumulate = true});
    cases.push_back({.m = m, .n = n, .k = k, .trans_b = true, .stat_out = true});
  }
  cases.push_back({.m = 257, .n = 384, .k = 129, .trans_b = true, .bias = true});
  cases.push_back({.m = 192, .n = 130, .k = 300, .trans_a = true, .accumulate = true});
  cases.push_back({.m = 130, .n = 257, .k = 260});
  cases.push_back({.m = 9, .n = 24, .k = 1043});  // what a GPU cuts in two
  cases.push_back({.m = 9, .n = 1043, .k = 24, .trans_b = true, .bias = true});
  cases.push_back({.m = 9, .n = 1043, .k = 24, .trans_b = true, .stat_out = true});
  for (const ProductCase& c : cases) add_case(to, v, name_of_case(c), [c](Operands& o) { return make_product(o, c); });
}

inline void add_bias_grads(OpCases& to, const Variant& v) {
  for (const auto& size : std::vector<std::array<int64_t, 2>>{{1, 1}, {3, 17}, {65, 5}, {130, 67}, {517, 96}}) {
    const int64_t t = size[0], n = size[1];
    for (bool accumulate : {false, true})
      for (bool factors : {false, true})
        add_case(to, v, fmt::format("[{} {}]{}{}", t, n, accumulate ? " +=" : "", factors ? " x" : ""),
                 [=](Operands& o) {
                   return BiasGrad{.dy = o.act(t, n),
                                   .db = o.gradient({n}, accumulate),
                                   .accumulate = accumulate,
                                   .x = factors ? o.act(t, n) : Tensor{}};
                 });
  }
}

// Ids that repeat; some below `first` and some beyond the last row where a part of the vocabulary is here.
inline Tensor some_ids(Operands& o, int64_t t, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < t; ++i) ids.push_back(int32_t(random_bits(17, uint64_t(i)) % uint32_t(vocabulary)));
  return o.index(ids, tokens(Spmd::Invariant));
}

struct TableCase {
  int64_t t, d, rows, first = 0, vocabulary = 0;
  bool accumulate = false;
};
inline void add_tables(OpCases& to, const Variant& v) {
  for (const TableCase& c : {TableCase{1, 1, 1},
                             {5, 7, 3},
                             {40, 33, 11, 4, 23},
                             {40, 33, 11, 4, 23, true},
                             {300, 64, 50},
                             {600, 16, 20},
                             {300, 64, 50, 0, 0, true},
                             {300, 65, 50, 0, 0, true}}) {
    const int64_t vocabulary = c.vocabulary ? c.vocabulary : c.rows;
    const std::string name = fmt::format("[{} {}] of {} rows from {}", c.t, c.d, c.rows, c.first);
    add_case(to, v, name + (c.accumulate ? " +=" : ""), [=](Operands& o) {
      return Embed{.ids = some_ids(o, c.t, vocabulary),
                   .table = o.weight({c.rows, c.d}),
                   .out = o.act(c.t, c.d, c.accumulate ? normal() : unwritten()),
                   .first = c.first,
                   .accumulate = c.accumulate};
    });
    if (c.accumulate) continue;
    add_case(to, v, name, [=](Operands& o) {
      return EmbedBackward{.ids = some_ids(o, c.t, vocabulary),
                           .dy = o.act(c.t, c.d),
                           .dtable = o.gradient({c.rows, c.d}, true),
                           .first = c.first};
    });
  }
}

}  // namespace weft::testing
