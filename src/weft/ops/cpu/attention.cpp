#include "weft/ops/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/attention_kernels.h"
#include "weft/ops/cpu/team.h"

namespace weft::cpu {
namespace {

// A part of a span that one thread computes for a head, and how much work it is. There are at most as many as rows: how
// an op's spans will be cut is not known when its memory is planned.
struct Item {
  int64_t cost;
  int32_t span, part;
};
bool costlier(const Item& a, const Item& b) {
  return a.cost != b.cost ? a.cost > b.cost : a.span != b.span ? a.span < b.span : a.part < b.part;
}
// Items in memory that the caller provides.
struct Items {
  Item* at;
  int64_t count = 0;
  void add(int64_t cost, int64_t span, int64_t part) { at[count++] = {cost, int32_t(span), int32_t(part)}; }
  // Large ones first, so that threads end together.
  void sort() { std::sort(at, at + count, costlier); }
};

// Blocks of kStripKeys keys by position.
int64_t num_key_blocks(const AttentionSpan& s) {
  return s.k_count == 0 ? 0 : (s.k_position + s.k_count - 1) / kStripKeys - s.k_position / kStripKeys + 1;
}
Range key_block(const AttentionSpan& s, int64_t i) {
  const int64_t start = (s.k_position / kStripKeys + i) * kStripKeys - s.k_position;
  return {std::max<int64_t>(0, start), std::min(s.k_count, start + kStripKeys)};
}
// Pairs of a query and a key.
int64_t cost_of(const AttentionHeads& h, const QueryBlock& b) { return Strips(h, b).keys().size() * b.queries; }
int64_t cost_of(const AttentionHeads& h, const AttentionSpan& s) {
  int64_t cost = 0;
  for (int64_t i = 0; i < QueryBlocks(h).count(s); ++i) cost += cost_of(h, QueryBlocks(h).at(s, 0, 0, i));
  return cost;
}

// Queries that may see these keys.
int64_t cost_of_keys(const AttentionHeads& h, const AttentionSpan& s, Range keys) {
  const int64_t first = s.q_position - s.k_position;  // the key at the first query's position
  const int64_t begin = std::max<int64_t>(0, keys.begin - first);
  const int64_t end = h.window ? std::min(s.q_count, keys.end - 1 + h.window - first) : s.q_count;
  return std::max<int64_t>(0, end - begin);
}

void add_query_blocks(const AttentionHeads& h, std::span<const AttentionSpan> spans, Items& items) {
  for (size_t i = 0; i < spans.size(); ++i)
    for (int64_t b = 0; b < QueryBlocks(h).count(spans[i]); ++b)
      items.add(cost_of(h, QueryBlocks(h).at(spans[i], 0, 0, b)), int64_t(i), b);
  items.sort();
}

int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

class Forward {
 public:
  Forward(const Attention& op, int threads, std::byte* memory)
      : op_(op), threads_(threads), blocks_(op.heads), items_{reinterpret_cast<Item*>(memory)} {
    floats_ = reinterpret_cast<float*>(memory + items_bytes(op));
  }
  static int64_t bytes(const Attention& op, int threads) {
    return items_bytes(op) + threads * 4 * forward_block_floats(op.heads.dim);
  }
  void run() {
    add_query_blocks(op_.heads, op_.spans, items_);
    const int64_t lists = op_.heads.kv * blocks_.sets();
    for_tasks(threads_, items_.count * lists, [&](int64_t task, int thread) {
      const Item& item = items_.at[task / lists];
      const int64_t kv = task % lists / blocks_.sets(), set = task % blocks_.sets();
      forward_block(op_, blocks_.at(op_.spans[size_t(item.span)], kv, set, item.part),
                    floats_ + thread * forward_block_floats(op_.heads.dim));
    });
  }

 private:
  static int64_t items_bytes(const Attention& op) {
    return rounded(op.q.rows() * int64_t(sizeof(Item)));  // a block has a row
  }

  const Attention& op_;
  int threads_;
  QueryBlocks blocks_;
  Items items_;
  float* floats_;
};

// Gradients of keys are summed over the blocks of rows that see them, in order; each thread sums keys of its own. It
// visits whole spans and heads (5 products for each block and strip), or, where those are too few for the threads,
// writes dq by blocks of rows and then dk and dv by blocks of keys (7 products). Every sum is the same in both.
class Backward {
 public:
  Backward(const AttentionBackward& op, int threads, std::byte* memory)
      : op_(op), threads_(threads), blocks_(op.heads), items_{reinterpret_cast<Item*>(memory)} {
    float* floats = reinterpret_cast<float*>(memory + items_bytes(op));
    floats_ = floats + sum_floats(op);
    if (sums_in_place(op))
      sums_ = {op.dk.as<float>(), op.dv.as<float>(), op.dk.row_stride, op.dv.row_stride};
    else
      sums_ = {floats, floats + sum_floats(op) / 2, sum_width(op), sum_width(op)};
  }
  static int64_t bytes(const AttentionBackward& op, int threads) {
    return items_bytes(op) + 4 * (sum_floats(op) + threads * backward_block_floats(op.heads.dim));
  }

  void run() {
    if (!keys_disjoint()) return run_by_heads();
    if (whole_spans_balance()) return run_by_spans();
    run_by_queries();
    run_by_keys();
  }

 private:
  // f32 heads of whole vectors are summed where they belong.
  static bool sums_in_place(const AttentionBackward& op) {
    return op.dk.dtype == DType::f32 && padded(op.heads.dim) == op.heads.dim;
  }
  static int64_t sum_width(const AttentionBackward& op) { return op.heads.kv * padded(op.heads.dim); }
  static int64_t sum_floats(const AttentionBackward& op) {
    return sums_in_place(op) ? 0 : 2 * op.k.rows() * sum_width(op);
  }
  static int64_t items_bytes(const AttentionBackward& op) {
    return rounded(std::max(op.q.rows(), op.k.rows()) * int64_t(sizeof(Item)));
  }

  // Or out of order, which costs no more than time.
  bool keys_disjoint() const {
    for (size_t i = 1; i < op_.spans.size(); ++i)
      if (op_.spans[i].k_row < op_.spans[i - 1].k_row + op_.spans[i - 1].k_count) return false;
    return true;
  }
  // Whether whole spans and heads keep the threads busy enough to be worth 5 products instead of 7.
  bool whole_spans_balance() {
    int64_t sum = 0, most = 0;
    items_.count = 0;
    for (size_t i = 0; i < op_.spans.size(); ++i)
      if (op_.spans[i].k_count > 0) items_.add(cost_of(op_.heads, op_.spans[i]), int64_t(i), 0);
    for (int64_t i = 0; i < items_.count; ++i) sum += items_.at[i].cost, most = std::max(most, items_.at[i].cost);
    items_.sort();
    const double tasks = double(items_.count * op_.heads.kv), total = double(sum * op_.heads.kv);
    const double listed = total / threads_ + double(most) * (1 - 1.0 / threads_);
    const double alike = std::ceil(tasks / threads_) * double(most);
    return std::min(listed, alike) * 5 <= total / threads_ * 7;
  }

  // Rows [first, first + n) of the sums of one head.
  KeySums sums_at(int64_t first, int64_t kv) const {
    const int64_t at = kv * padded(op_.heads.dim);
    return {sums_.dk + first * sums_.dk_stride + at, sums_.dv + first * sums_.dv_stride + at, sums_.dk_stride,
            sums_.dv_stride};
  }
  void begin_sums(int64_t kv, int64_t first, int64_t n) const {
    const KeySums sums = sums_at(first, kv);
    for (int64_t j = 0; j < n; ++j) {
      std::fill_n(sums.dk + j * sums.dk_stride, padded(op_.heads.dim), 0.0f);
      std::fill_n(sums.dv + j * sums.dv_stride, padded(op_.heads.dim), 0.0f);
    }
  }
  template <class T>
  void write_sums(int64_t kv, int64_t first, int64_t n) const {
    const KeySums sums = sums_at(first, kv);
    const auto dk = rows_of<T>(op_.dk), dv = rows_of<T>(op_.dv);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t c = 0, at = kv * op_.heads.dim; c < op_.heads.dim; ++c) {
        dk[first + j][at + c] = T(sums.dk[j * sums.dk_stride + c]);
        dv[first + j][at + c] = T(sums.dv[j * sums.dv_stride + c]);
      }
  }
  void end_sums(int64_t kv, int64_t first, int64_t n) const {
    if (sums_in_place(op_)) return;
    is_bf16(op_.dk) ? write_sums<bf16>(kv, first, n) : write_sums<float>(kv, first, n);
  }

  // Every block of rows of a span and the query heads that read a key head, in order.
  void visit(const AttentionSpan& s, int64_t kv, const BackwardTask& task, int thread) const {
    for (int64_t set = 0; set < blocks_.sets(); ++set)
      for (int64_t i = 0; i < blocks_.count(s); ++i) visit(blocks_.at(s, kv, set, i), task, thread);
  }
  void visit(const QueryBlock& block, const BackwardTask& task, int thread) const {
    backward_block(op_, block, task, floats_ + thread * backward_block_floats(op_.heads.dim));
  }

  void run_by_heads() {
    for_tasks(threads_, op_.heads.kv, [&](int64_t kv, int thread) {
      begin_sums(kv, 0, op_.k.rows());
      for (const AttentionSpan& s : op_.spans) visit(s, kv, {{0, s.k_count}, sums_at(s.k_row, kv), true}, thread);
      end_sums(kv, 0, op_.k.rows());
    });
  }
  void run_by_spans() {
    for_tasks(threads_, items_.count * op_.heads.kv, [&](int64_t task, int thread) {
      const AttentionSpan& s = op_.spans[size_t(items_.at[task / op_.heads.kv].span)];
      const int64_t kv = task % op_.heads.kv;
      begin_sums(kv, s.k_row, s.k_count);
      visit(s, kv, {{0, s.k_count}, sums_at(s.k_row, kv), true}, thread);
      end_sums(kv, s.k_row, s.k_count);
    });
  }
  void run_by_queries() {
    items_.count = 0;
    add_query_blocks(op_.heads, op_.spans, items_);
    const int64_t lists = op_.heads.kv * blocks_.sets();
    for_tasks(threads_, items_.count * lists, [&](int64_t task, int thread) {
      const Item& item = items_.at[task / lists];
      const AttentionSpan& s = op_.spans[size_t(item.span)];
      const int64_t kv = task % lists / blocks_.sets(), set = task % blocks_.sets();
      visit(blocks_.at(s, kv, set, item.part), {{0, s.k_count}, {}, true}, thread);
    });
  }
  void run_by_keys() {
    items_.count = 0;
    for (size_t i = 0; i < op_.spans.size(); ++i)
      for (int64_t b = 0; b < num_key_blocks(op_.spans[i]); ++b)
        items_.add(cost_of_keys(op_.heads, op_.spans[i], key_block(op_.spans[i], b)), int64_t(i), b);
    items_.sort();
    for_tasks(threads_, items_.count * op_.heads.kv, [&](int64_t task, int thread) {
      const Item& item = items_.at[task / op_.heads.kv];
      const AttentionSpan& s = op_.spans[size_t(item.span)];
      const int64_t kv = task % op_.heads.kv;
      const Range keys = key_block(s, item.part);
      begin_sums(kv, s.k_row + keys.begin, keys.size());
      visit(s, kv, {keys, sums_at(s.k_row, kv), false}, thread);
      end_sums(kv, s.k_row + keys.begin, keys.size());
    });
  }

  const AttentionBackward& op_;
  int threads_;
  QueryBlocks blocks_;
  Items items_;
  float* floats_;
  KeySums sums_;
};

}  // namespace

int64_t attention_bytes(const Attention& op, int threads) { return Forward::bytes(op, threads); }
int64_t attention_bytes(const AttentionBackward& op, int threads) { return Backward::bytes(op, threads); }

void attention(const Attention& op, int threads, std::byte* workspace) { Forward(op, threads, workspace).run(); }
void attention_backward(const AttentionBackward& op, int threads, std::byte* workspace) {
  Backward(op, threads, workspace).run();
}

}  // namespace weft::cpu
