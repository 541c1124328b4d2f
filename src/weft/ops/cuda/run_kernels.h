// From an op to its kernels: run(launcher, op). The launcher is a GPU's stream, or for tests a loop over the blocks:
//   launcher.launch(num_blocks, kernel)       calls kernel(block) for each block of the grid, after what was launched
//   launcher.launch_tiles(num_blocks, kernel) the same, for a kernel of tiles (tile_block.h)
//   launcher.has_shared(bytes)                whether a block may have so much memory for tiles
//   launcher.template memory<E>(count)        workspace till the op's end, as its WorkspaceModel says
//   launcher.copied(span)                     a span of the host, readable by kernels till the op's end
#pragma once
#include <algorithm>
#include <vector>

#include "weft/ops/cuda/attention.h"
#include "weft/ops/cuda/attention_tiles.h"
#include "weft/ops/cuda/cross_entropy.h"
#include "weft/ops/cuda/matmul_tiles.h"
#include "weft/ops/cuda/norm.h"
#include "weft/ops/cuda/pointwise.h"
#include "weft/ops/cuda/update.h"

namespace weft::gpu {

inline int64_t blocks_of(int64_t n, int64_t each) { return (n + each - 1) / each; }

template <class L, class T, class F>
void each_element(L& launcher, const Tensor& out, T, const F& f) {
  const EachElement<T, F> kernel{rows<T>(out), f};
  launcher.launch((is_vector(out) ? 1 : out.rows()) * kernel.runs_of_row(), kernel);
}

template <class L>
void run(L& launcher, const Matmul& op) {
  by_float(op.a.dtype, [&](auto t) {
    using T = decltype(t);
    const auto launch = [&](auto o) {
      using Out = decltype(o);
      const MatmulTile<T, Out> kernel{
          rows<const T>(op.a), rows<const T>(op.b), rows<Out>(op.out), flat<T>(op.bias), op.m(), op.k(),
          op.trans_a,          op.trans_b,          op.accumulate};
      launcher.launch(blocks_of(op.m(), kernel.kSide) * kernel.tiles_of_row(), kernel);
    };
    op.out.dtype == op.a.dtype ? launch(T{}) : launch(float{});
  });
}

template <class L>
void run(L& launcher, const BiasGrad& op) {
  by_float(op.dy.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t each = rows_of_chunk(op.dy.rows()), chunks = blocks_of(op.dy.rows(), each), cols = op.dy.cols();
    float* parts = launcher.template memory<float>(chunks * cols);
    launcher.launch(chunks, ChunkSums<T>{rows<const T>(op.dy), op.dy.rows(), each, parts});
    launcher.launch(blocks_of(cols, kLanes), ColumnSums{parts, chunks, cols, flat<float>(op.db), op.accumulate});
  });
}

template <class L>
void run(L& launcher, const Embed& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    const Rows<const T> before = op.accumulate ? rows<const T>(op.out) : Rows<const T>{};
    each_element(launcher, op.out, t,
                 Embedded<T>{flat<int32_t>(op.ids), rows<const T>(op.table), before, op.first, op.table.rows()});
  });
}
template <class L>
void run(L& launcher, const EmbedBackward& op) {
  by_float(op.dy.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.dy.rows(), EmbedSlopes<T>{flat<int32_t>(op.ids), op.dy.rows(), rows<const T>(op.dy),
                                                 rows<float>(op.dtable), op.first, op.dtable.rows()});
  });
}

template <class T>
HeadRows<T> whole_rows(const Tensor& x) {
  return {rows<T>(x), 1, x.cols()};
}
template <class T>
HeadRows<T> head_rows(const Tensor& x, int64_t dim) {
  return {rows<T>(x), x.cols() / dim, dim};
}
inline RowNumbers numbers(const Tensor& x, int64_t heads = 1) {
  if (!x) return {};
  if (heads == 1) return {{x.as<float>(), 1, x.shape.rank() == 1 ? 1 : x.row_stride}, 1};
  return {rows<float>(x), heads};
}

template <class L>
void run(L& launcher, const Norm& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.x.rows(),
                    NormRow<T>{whole_rows<T>(op.x), whole_rows<T>(op.delta), whole_rows<T>(op.sum), whole_rows<T>(op.y),
                               flat<T>(op.w), flat<T>(op.b), numbers(op.mean), numbers(op.rstd), float(op.eps)});
  });
}
template <class L>
void run(L& launcher, const NormApply& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.x.rows(), NormRowAgain<T>{whole_rows<T>(op.x), whole_rows<T>(op.y), flat<T>(op.w), flat<T>(op.b),
                                                 numbers(op.mean), numbers(op.rstd)});
  });
}
// For rows [num_rows, width], or for heads.
template <class L, class T>
void norm_backward(L& launcher, NormRowsBackward<T> kernel, float* dw, float* db, bool accumulate) {
  kernel.chunk_rows = rows_of_chunk(kernel.num_rows);
  const int64_t chunks = blocks_of(kernel.num_rows, kernel.chunk_rows), width = kernel.x.width;
  kernel.dw_parts = launcher.template memory<float>(chunks * width);
  if (db != nullptr) kernel.db_parts = launcher.template memory<float>(chunks * width);
  launcher.launch(chunks, kernel);
  const int64_t blocks = blocks_of(width, kLanes);
  launcher.launch(blocks, ColumnSums{kernel.dw_parts, chunks, width, dw, accumulate});
  if (db != nullptr) launcher.launch(blocks, ColumnSums{kernel.db_parts, chunks, width, db, accumulate});
}
template <class L>
void run(L& launcher, const NormBackward& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    norm_backward<L, T>(launcher,
                        {whole_rows<T>(op.x), whole_rows<T>(op.dy), whole_rows<T>(op.carry), whole_rows<T>(op.dx),
                         flat<T>(op.w), numbers(op.mean), numbers(op.rstd), op.x.rows(), 0, nullptr, nullptr},
                        flat<float>(op.dw), flat<float>(op.db), op.accumulate);
  });
}
template <class L>
void run(L& launcher, const HeadNorm& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t e = op.w.elements(), heads = op.x.cols() / e;
    launcher.launch(op.x.rows() * heads, NormRow<T>{head_rows<T>(op.x, e),
                                                    {},
                                                    {},
                                                    head_rows<T>(op.y, e),
                                                    flat<T>(op.w),
                                                    nullptr,
                                                    {},
                                                    numbers(op.rstd, heads),
                                                    float(op.eps)});
  });
}
template <class L>
void run(L& launcher, const HeadNormBackward& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t e = op.w.elements(), heads = op.x.cols() / e;
    norm_backward<L, T>(launcher,
                        {head_rows<T>(op.x, e),
                         head_rows<T>(op.dy, e),
                         {},
                         head_rows<T>(op.dx, e),
                         flat<T>(op.w),
                         {},
                         numbers(op.rstd, heads),
                         op.x.rows() * heads,
                         0,
                         nullptr,
                         nullptr},
                        flat<float>(op.dw), nullptr, op.accumulate);
  });
}

template <class L>
void run(L& launcher, const Rope& op) {
  by_float(op.x.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.x.rows(),
                    Rotated<T>{rows<T>(op.x), flat<int32_t>(op.positions), rows<const float>(op.table), op.inverse});
  });
}

template <class L, class Op>
Sight sight_of(L& launcher, const Op& op) {
  WEFT_CHECK(op.heads.dim <= kMostHeadDim, "heads of {}", op.heads.dim);
  const Kept k = kept(op.dropout);
  return {launcher.copied(op.spans), int64_t(op.spans.size()), op.heads, k.key, k.dropped, k.scale};
}
// Whether rows of heads can be copied in pieces of 16 bytes.
inline bool in_pieces(const AttentionHeads& heads, std::initializer_list<const Tensor*> all) {
  return heads.dim % 8 == 0 && heads.dim <= 128 && std::all_of(all.begin(), all.end(), [](const Tensor* x) {
           return size_of(x->dtype) == 2 && x->row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x->data) % 16 == 0;
         });
}
struct Tiles {
  TileList list;
  int64_t count;
};
// Tiles over the queries of each span, or over its keys.
template <class L>
Tiles tiles_of(L& launcher, std::span<const AttentionSpan> spans, int64_t AttentionSpan::*rows) {
  std::vector<int64_t> first(1, 0);
  for (const AttentionSpan& s : spans) first.push_back(first.back() + blocks_of(s.*rows, kTileRows));
  return {{launcher.copied(std::span<const int64_t>(first)), int64_t(spans.size())}, first.back()};
}
// f.template operator()<E>() with the width that kernels of tiles are made for.
template <class F>
void by_width(int64_t dim, const F& f) {
  dim <= 64 ? f.template operator()<64>() : f.template operator()<128>();
}

template <class L>
void run(L& launcher, const Attention& op) {
  const Sight sight = sight_of(launcher, op);
  const Tiles tiles = tiles_of(launcher, op.spans, &AttentionSpan::q_count);
  by_float(op.q.dtype, [&](auto t) {
    using T = decltype(t);
    const Rows<const T> q = rows<const T>(op.q), k = rows<const T>(op.k), v = rows<const T>(op.v);
    if constexpr (sizeof(T) == 2) {
      if (in_pieces(op.heads, {&op.q, &op.k, &op.v}) && launcher.has_shared(AttentionTile<T, 128>::kSharedBytes))
        return by_width(op.heads.dim, [&]<int E>() {
          launcher.launch_tiles(
              tiles.count * op.heads.q,
              AttentionTile<T, E>{q, k, v, rows<T>(op.o), rows<float>(op.lse), sight, tiles.list, tiles.count});
        });
    }
    launcher.launch(op.q.rows() * op.heads.q, AttentionRow<T>{q, k, v, rows<T>(op.o), rows<float>(op.lse), sight});
  });
}

// Whether every row of keys is in only one span; false also if only sorting could tell.
inline bool keys_apart(std::span<const AttentionSpan> spans) {
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].k_row < spans[i - 1].k_row + spans[i - 1].k_count) return false;
  return true;
}

template <class L>
void run(L& launcher, const AttentionBackward& op) {
  const Sight sight = sight_of(launcher, op);
  const Tiles of_queries = tiles_of(launcher, op.spans, &AttentionSpan::q_count);
  const Tiles of_keys = tiles_of(launcher, op.spans, &AttentionSpan::k_count);
  const int64_t queries = op.q.rows() * op.heads.q;
  const Rows<float> weighted{launcher.template memory<float>(queries), op.heads.q, op.heads.q};
  by_float(op.q.dtype, [&](auto t) {
    using T = decltype(t);
    const Rows<const T> q = rows<const T>(op.q), k = rows<const T>(op.k), v = rows<const T>(op.v),
                        o = rows<const T>(op.o), dout = rows<const T>(op.dout);
    const Rows<const float> lse = rows<const float>(op.lse);
    if constexpr (sizeof(T) == 2) {
      if (keys_apart(op.spans) && in_pieces(op.heads, {&op.q, &op.k, &op.v, &op.o, &op.dout}) &&
          launcher.has_shared(AttentionTileKeys<T, 128>::kSharedBytes))
        return by_width(op.heads.dim, [&]<int E>() {
          TileGradient<T> of{q, k, v, o, dout, lse, weighted, sight, of_queries.list};
          launcher.launch_tiles(of_queries.count * op.heads.q,
                                AttentionTileQueries<T, E>{of, rows<T>(op.dq), of_queries.count});
          of.tiles = of_keys.list;
          launcher.launch_tiles(of_keys.count * op.heads.kv,
                                AttentionTileKeys<T, E>{of, rows<T>(op.dk), rows<T>(op.dv), of_keys.count});
        });
    }
    const AttentionGradient<T> of{q, k, v, dout, lse, weighted, sight};
    launcher.launch(blocks_of(queries, kThreads),
                    WeightedOutputs<T>{dout, o, weighted, op.q.rows(), op.heads.q, op.heads.dim});
    launcher.launch(queries, AttentionRowBackward<T>{of, rows<T>(op.dq)});
    launcher.launch(op.k.rows() * op.heads.kv, AttentionKeyBackward<T>{of, rows<T>(op.dk), rows<T>(op.dv)});
  });
}

template <class L>
void run(L& launcher, const AttentionMerge& op) {
  const Rows<const float> lse = rows<const float>(op.lse), sum_lse = rows<const float>(op.sum_lse);
  by_float(op.o.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(
        launcher, op.sum, float{},
        AttentionMerged<T>{rows<const T>(op.o), lse, rows<const float>(op.sum), sum_lse, op.o.cols() / op.lse.cols()});
  });
  each_element(launcher, op.sum_lse, float{}, LogAddExp{sum_lse, lse});
}

template <class L>
void run(L& launcher, const Swiglu& op) {
  by_float(op.a.dtype, [&](auto t) {
    each_element(launcher, op.a, t, SwigluOf<decltype(t)>{rows<const decltype(t)>(op.u), op.a.cols()});
  });
}
template <class L>
void run(L& launcher, const SwigluBackward& op) {
  by_float(op.da.dtype, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.da.rows() * blocks_of(op.da.cols(), kRun),
                    SwigluSlopes<T>{rows<const T>(op.u), rows<const T>(op.da), rows<T>(op.du)});
  });
}
template <class L>
void run(L& launcher, const Gelu& op) {
  by_float(op.y.dtype, [&](auto t) {
    each_element(launcher, op.y, t, GeluOf<decltype(t)>{rows<const decltype(t)>(op.x), op.exact});
  });
}
template <class L>
void run(L& launcher, const GeluBackward& op) {
  by_float(op.dx.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.dx, t, GeluSlope<T>{rows<const T>(op.x), rows<const T>(op.dy), op.exact});
  });
}
template <class L>
void run(L& launcher, const Dropout& op) {
  by_float(op.y.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.y, t,
                 DroppedOut<T>{rows<const T>(op.x), flat<int64_t>(op.tokens), op.first, op.total, kept(op.dropout)});
  });
}

template <class T, class Op>
Losses<T> losses_of(const Op& op, int64_t first) {
  return {rows<const float>(op.logits),
          flat<int32_t>(op.targets),
          flat<float>(op.weights),
          flat<float>(op.nll),
          rows<T>(op.dlogits),
          float(op.scale),
          first};
}
// f(T{}) of the type of a tensor that may be absent: then f32.
template <class F>
void by_float_of(const Tensor& x, const F& f) {
  by_float(x ? x.dtype : DType::f32, f);
}
template <class L>
void run(L& launcher, const CrossEntropy& op) {
  by_float_of(op.dlogits, [&](auto t) {
    launcher.launch(op.logits.rows(), CrossEntropyRow<decltype(t)>{losses_of<decltype(t)>(op, 0)});
  });
}
template <class L>
void run(L& launcher, const CrossEntropyPart& op) {
  launcher.launch(op.logits.rows(), CrossEntropyPartRow{rows<const float>(op.logits), flat<int32_t>(op.targets),
                                                        rows<float>(op.parts), op.first});
}
template <class L>
void run(L& launcher, const CrossEntropyJoin& op) {
  by_float_of(op.dlogits, [&](auto t) {
    using T = decltype(t);
    launcher.launch(op.logits.rows(), CrossEntropyJoinRow<T>{losses_of<T>(op, op.first), rows<const float>(op.parts),
                                                             op.parts.rows(), op.logits.rows()});
  });
}

template <class L>
void run(L& launcher, const Add& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.out, t, Sums<T>{rows<const T>(op.x), rows<const T>(op.y), 1, 1});
  });
}
template <class L>
void run(L& launcher, const Axpby& op) {
  by_float(op.out.dtype, [&](auto t) {
    using T = decltype(t);
    each_element(launcher, op.out, t, Sums<T>{rows<const T>(op.x), rows<const T>(op.y), float(op.a), float(op.b)});
  });
}
template <class L>
void run(L& launcher, const AddRow& op) {
  by_float(op.y.dtype, [&](auto t) {
    each_element(launcher, op.y, t, RowAdded<decltype(t)>{rows<decltype(t)>(op.y), flat<decltype(t)>(op.b)});
  });
}
template <class L>
void run(L& launcher, const Copy& op) {
  by_float(op.to.dtype, [&](auto to) {
    by_float(op.from.dtype, [&](auto from) {
      each_element(launcher, op.to, to, Copied<decltype(from)>{rows<const decltype(from)>(op.from)});
    });
  });
}

template <class L, class T, class F>
void reduce(L& launcher, const Tensor& x, const Tensor& out, T, const F& f) {
  const int64_t n = x.elements(), runs = blocks_of(n, kReduceRun);
  double* parts = launcher.template memory<double>(runs);
  launcher.launch(runs, RunSums<T, F>{flat<T>(x), n, parts, f});
  launcher.launch(1, TreeTotal{parts, runs, flat<double>(out)});
}
template <class L>
void run(L& launcher, const Sum& op) {
  op.x.dtype == DType::f64 ? reduce(launcher, op.x, op.out, double{}, AsItIs())
                           : reduce(launcher, op.x, op.out, float{}, AsItIs());
}
template <class L>
void run(L& launcher, const CountNonfinite& op) {
  by_float(op.x.dtype, [&](auto t) { reduce(launcher, op.x, op.out, t, IsNotFinite()); });
}
template <class L>
void run(L& launcher, const SumSquares& op) {
  const int64_t n = op.x.elements(), leaves = blocks_of(n, kSumLeaf);
  double* parts = launcher.template memory<double>(leaves);
  launcher.launch(leaves, LeafSquares{flat<float>(op.x), n, parts});
  launcher.launch(1, TreeTotal{parts, leaves, flat<double>(op.out)});
}

template <class L>
void run(L& launcher, const AdamW& op) {
  by_float_of(op.value, [&](auto t) {
    using T = decltype(t);
    const double c1 = 1 - std::pow(op.beta1, double(op.step)), c2 = 1 - std::pow(op.beta2, double(op.step));
    launcher.launch(
        blocks_of(op.w.elements(), AdamWStep<T>::kRunOfUpdate),
        AdamWStep<T>{flat<float>(op.w), flat<float>(op.m), flat<float>(op.v), flat<float>(op.grad), flat<T>(op.value),
                     op.w.elements(), float(op.lr), float(op.beta1), float(op.beta2), float(op.eps),
                     float(op.weight_decay), float(op.grad_scale), float(1 / c1), float(1 / c2)});
  });
}
template <class L>
void run(L& launcher, const Sgd& op) {
  by_float_of(op.value, [&](auto t) {
    using T = decltype(t);
    launcher.launch(
        blocks_of(op.w.elements(), SgdStep<T>::kRunOfUpdate),
        SgdStep<T>{flat<float>(op.w), flat<float>(op.buf), flat<float>(op.grad), flat<T>(op.value), op.w.elements(),
                   float(op.lr), float(op.momentum), float(op.weight_decay), float(op.grad_scale), op.step == 1});
  });
}

}  // namespace weft::gpu
