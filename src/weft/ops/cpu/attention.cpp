#include "weft/ops/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/attention_amx.h"
#include "weft/ops/cpu/attention_kernels.h"
#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/cpu/team.h"

namespace weft::cpu {
namespace {

const AttentionKernels& kernels_for(const Tensor& q, AttentionUnits units) {
  static constexpr AttentionKernels kVectors{forward_floats, forward_blocks, backward_floats,
                                             begin_keys,     backward_block, end_keys};
  const AttentionKernels* tiles = q.dtype == DType::bf16 && units == AttentionUnits::tiles ? tile_kernels() : nullptr;
  return tiles != nullptr ? *tiles : kVectors;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t rounded(int64_t bytes) { return ceil_div(bytes, 64) * 64; }

// Tasks of alike cost that belong together: those of a span, or of a chunk of keys.
struct Item {
  int64_t cost = 0;   // of all its tasks
  int64_t first = 0;  // task
  int32_t index = 0;  // of the span or chunk
  int32_t tasks = 0;
};
// In the caller's memory, with one row of q or k per item: how spans will be cut is unknown when memory is planned.
class Items {
 public:
  explicit Items(std::byte* memory) : at_(reinterpret_cast<Item*>(memory)) {}
  static int64_t bytes(int64_t rows) { return rounded(rows * int64_t(sizeof(Item))); }

  void clear() { count_ = tasks_ = 0; }
  void add(int64_t cost, int64_t index, int64_t tasks) {
    at_[count_++] = {cost, 0, int32_t(index), int32_t(tasks)};
    tasks_ += tasks;
  }
  // Costly items first, so that threads end together.
  void order() {
    std::sort(at_, at_ + count_,
              [](const Item& a, const Item& b) { return a.cost != b.cost ? a.cost > b.cost : a.index < b.index; });
    for (int64_t i = 0, first = 0; i < count_; first += at_[i++].tasks) at_[i].first = first;
  }
  int64_t tasks() const { return tasks_; }
  const Item& of_task(int64_t task) const {
    return *std::prev(std::upper_bound(at_, at_ + count_, task, [](int64_t t, const Item& i) { return t < i.first; }));
  }
  // When `threads` threads that take tasks in order finish, in units of cost.
  double finish(int threads) const {
    double total = 0, largest = 0;
    for (const Item* i = at_; i < at_ + count_; ++i)
      total += double(i->cost), largest = std::max(largest, double(i->cost) / i->tasks);
    return std::min(total / threads + largest * (1 - 1.0 / threads), std::ceil(double(tasks_) / threads) * largest);
  }
  double total() const {
    double sum = 0;
    for (const Item* i = at_; i < at_ + count_; ++i) sum += double(i->cost);
    return sum;
  }

 private:
  Item* at_;
  int64_t count_ = 0, tasks_ = 0;
};

// Pairs of a query and a key.
int64_t cost_of(const AttentionHeads& h, const AttentionSpan& s) {
  const QueryBlocks blocks(h);
  int64_t cost = 0;
  for (int64_t i = 0; i < blocks.count(s); ++i) {
    const QueryBlock b = blocks.at(s, 0, 0, i);
    cost += Strips(h, b).keys().size() * b.queries;
  }
  return cost * h.kv;
}

// Blocks of a span and set that one task takes, so that they share tiles of keys.
struct Group {
  int64_t kv, set, begin, end;
};
int64_t groups_of(const QueryBlocks& blocks, const AttentionSpan& s) { return ceil_div(blocks.count(s), kGroupBlocks); }
// Tasks of a key head follow each other: its keys stay in the caches. Those that see most keys come first.
Group group_of(const QueryBlocks& blocks, const AttentionSpan& s, int64_t task) {
  const int64_t groups = groups_of(blocks, s), list = task / groups, group = groups - 1 - task % groups;
  return {list / blocks.sets(), list % blocks.sets(), group * kGroupBlocks,
          std::min((group + 1) * kGroupBlocks, blocks.count(s))};
}
void add_groups(const AttentionHeads& h, std::span<const AttentionSpan> spans, Items& items) {
  const QueryBlocks blocks(h);
  for (size_t i = 0; i < spans.size(); ++i)
    if (spans[i].q_count > 0)
      items.add(cost_of(h, spans[i]), int64_t(i), h.kv * blocks.sets() * groups_of(blocks, spans[i]));
  items.order();
}

bool is_one_query(const Attention& op, const AttentionSpan& s) { return s.q_count == 1 && op.dropout.p == 0; }
int64_t floats_of_thread(const Attention& op, const AttentionKernels& kernels) {
  return std::max(kernels.forward_floats(op.heads), (one_query_floats(op.heads) + 15) / 16 * 16);
}

void run_forward(const Attention& op, int threads, AttentionUnits units, std::byte* workspace) {
  const AttentionKernels& kernels = kernels_for(op.q, units);
  Items items(workspace);
  float* memory = reinterpret_cast<float*>(workspace + Items::bytes(op.q.rows()));
  const QueryBlocks blocks(op.heads);
  add_groups(op.heads, op.spans, items);
  for_tasks(threads, items.tasks(), [&](int64_t task, int thread) {
    const Item& item = items.of_task(task);
    const AttentionSpan& span = op.spans[size_t(item.index)];
    const Group group = group_of(blocks, span, task - item.first);
    float* own = memory + thread * floats_of_thread(op, kernels);
    if (is_one_query(op, span)) return one_query(op, blocks.at(span, group.kv, group.set, group.begin), own);
    QueryBlock group_blocks[size_t(kGroupBlocks)];
    for (int64_t i = group.begin; i < group.end; ++i)
      group_blocks[i - group.begin] = blocks.at(span, group.kv, group.set, i);
    kernels.forward_blocks(op, {group_blocks, size_t(group.end - group.begin)}, own);
  });
}

// Each thread sums the gradients of keys of its own, over the blocks of rows that see them, in order. It takes whole
// spans and key heads (5 products for each block and strip); where those are too few for the threads, or share rows of
// keys, dq is written by groups of blocks and then dk and dv by chunks of keys (7 products). Sums are the same in both.
class Backward {
 public:
  Backward(const AttentionBackward& op, int threads, const AttentionKernels& kernels, std::byte* workspace)
      : op_(op), threads_(threads), kernels_(kernels), blocks_(op.heads), items_(workspace) {
    float* floats = reinterpret_cast<float*>(workspace + items_bytes(op));
    unfinished_ = rows_unfinished(op) ? Rows<float>{floats, op.q.rows(), op.q.cols(), op.q.cols()} : in_place(op.dq);
    memory_ = floats + unfinished_floats(op);
  }
  static int64_t bytes(const AttentionBackward& op, int threads, const AttentionKernels& kernels) {
    return items_bytes(op) + 4 * (unfinished_floats(op) + threads * kernels.backward_floats(op.heads, most_rows(op)));
  }

  void run() {
    if (keys_disjoint() && whole_spans_balance()) return run_by_spans();
    run_by_queries();
    run_by_keys();
  }

 private:
  static int64_t items_bytes(const AttentionBackward& op) { return Items::bytes(std::max(op.q.rows(), op.k.rows())); }
  static int64_t most_rows(const AttentionBackward& op) { return std::min(chunk_rows(op.heads), op.k.rows()); }
  // Whether rows of dq may have to wait between chunks in memory of their own: f32 rows wait in dq.
  static bool rows_unfinished(const AttentionBackward& op) {
    return op.dq.dtype != DType::f32 && op.k.rows() + kStripKeys > chunk_rows(op.heads);
  }
  static int64_t unfinished_floats(const AttentionBackward& op) {
    return rows_unfinished(op) ? ceil_div(op.q.elements(), 16) * 16 : 0;
  }
  static Rows<float> in_place(const Tensor& dq) { return dq.dtype == DType::f32 ? rows_of<float>(dq) : Rows<float>{}; }

  // Or out of order, which costs no more than time.
  bool keys_disjoint() const {
    for (size_t i = 1; i < op_.spans.size(); ++i)
      if (op_.spans[i].k_row < op_.spans[i - 1].k_row + op_.spans[i - 1].k_count) return false;
    return true;
  }
  bool whole_spans_balance() {
    items_.clear();
    for (size_t i = 0; i < op_.spans.size(); ++i)
      if (op_.spans[i].k_count > 0) items_.add(cost_of(op_.heads, op_.spans[i]), int64_t(i), op_.heads.kv);
    items_.order();
    return 5 * items_.finish(threads_) <= 7 * items_.total() / threads_;
  }

  void run_by_spans() {
    for_tasks(threads_, items_.tasks(), [&](int64_t task, int thread) {
      const Item& item = items_.of_task(task);
      const AttentionSpan& span = op_.spans[size_t(item.index)];
      for_chunks(span, task - item.first, [&](const KeyChunk& chunk) {
        kernels_.begin_keys(op_, chunk, memory(thread));
        visit(span, BackwardTask{chunk, true, true, unfinished_}, thread);
        kernels_.end_keys(op_, chunk, memory(thread));
      });
    });
  }
  void run_by_queries() {
    items_.clear();
    add_groups(op_.heads, op_.spans, items_);
    for_tasks(threads_, items_.tasks(), [&](int64_t task, int thread) {
      const Item& item = items_.of_task(task);
      const AttentionSpan& span = op_.spans[size_t(item.index)];
      const Group group = group_of(blocks_, span, task - item.first);
      for_chunks(span, group.kv, [&](const KeyChunk& chunk) {
        kernels_.begin_keys(op_, chunk, memory(thread));
        visit(span, group, BackwardTask{chunk, false, true, unfinished_}, thread);
      });
    });
  }
  void run_by_keys() {
    items_.clear();
    const int64_t tk = op_.k.rows(), few = tk * op_.heads.kv / (kTasksPerThread * threads_) / kStripKeys * kStripKeys;
    const int64_t rows = std::clamp(few, kStripKeys, chunk_rows(op_.heads));
    for (int64_t i = 0; i < ceil_div(tk, rows); ++i) items_.add(i, i, op_.heads.kv);
    items_.order();
    for_tasks(threads_, items_.tasks(), [&](int64_t task, int thread) {
      const Item& item = items_.of_task(task);
      const KeyChunk chunk{task - item.first, {item.index * rows, std::min(tk, (item.index + 1) * rows)}};
      kernels_.begin_keys(op_, chunk, memory(thread));
      for (const AttentionSpan& span : op_.spans)
        if (span.k_row < chunk.rows.end && chunk.rows.begin < span.k_row + span.k_count)
          visit(span, BackwardTask{chunk, true, false}, thread);
      kernels_.end_keys(op_, chunk, memory(thread));
    });
  }

  float* memory(int thread) const { return memory_ + thread * kernels_.backward_floats(op_.heads, most_rows(op_)); }
  // f(chunk) for the chunks of a span's keys. Tiles of keys, which begin at multiples of their size, lie in one each.
  template <class F>
  void for_chunks(const AttentionSpan& s, int64_t kv, const F& f) const {
    const int64_t most = chunk_rows(op_.heads);
    for (int64_t key = 0, end; key < s.k_count; key = end) {
      end = std::min(s.k_count, key + most - (s.k_position + key) % kStripKeys);
      f(KeyChunk{kv, {s.k_row + key, s.k_row + end}, (s.k_position + key) % (kStripKeys / 2)});
    }
  }
  // Every block of rows of a span and the query heads that read a key head, in order.
  void visit(const AttentionSpan& s, const BackwardTask& task, int thread) const {
    for (int64_t set = 0; set < blocks_.sets(); ++set)
      visit(s, {task.chunk.kv, set, 0, blocks_.count(s)}, task, thread);
  }
  void visit(const AttentionSpan& s, const Group& group, BackwardTask task, int thread) const {
    QueryBlock block = blocks_.at(s, group.kv, group.set, group.begin);
    for (int64_t i = group.begin; i < group.end; ++i) {
      const bool last = i + 1 == group.end;
      const QueryBlock next = last ? block : blocks_.at(s, group.kv, group.set, i + 1);
      task.next = last ? nullptr : &next;
      kernels_.backward_block(op_, block, task, memory(thread));
      block = next;
    }
  }

  static constexpr int64_t kTasksPerThread = 4;
  const AttentionBackward& op_;
  int threads_;
  const AttentionKernels& kernels_;
  QueryBlocks blocks_;
  Items items_;
  Rows<float> unfinished_;
  float* memory_;
};

}  // namespace

AttentionUnits attention_units(bool tiles) {
  return tiles && isa_of_kernels() == CpuIsa::amx ? AttentionUnits::tiles : AttentionUnits::vectors;
}

int64_t attention_bytes(const Attention& op, int threads, AttentionUnits units) {
  return Items::bytes(op.q.rows()) + threads * 4 * floats_of_thread(op, kernels_for(op.q, units));
}
int64_t attention_bytes(const AttentionBackward& op, int threads, AttentionUnits units) {
  return Backward::bytes(op, threads, kernels_for(op.q, units));
}

void attention(const Attention& op, int threads, AttentionUnits units, std::byte* workspace) {
  run_forward(op, threads, units, workspace);
}
void attention_backward(const AttentionBackward& op, int threads, AttentionUnits units, std::byte* workspace) {
  Backward(op, threads, kernels_for(op.q, units), workspace).run();
}

}  // namespace weft::cpu
