// How attention is cut into tiles. Cuts follow from positions in the document, never from threads or rows.
//   set    query heads that read one key head, up to kMostHeads of them
//   block  up to kBlockRows rows: row = query * heads + head, of consecutive queries of a span and the heads of a set
//   strip  a run of keys that a block is multiplied with at once
// Keys are counted from the first of their span.
#pragma once
#include <algorithm>

#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

inline constexpr int64_t kBlockRows = 64, kStripKeys = 64;
inline constexpr int64_t kEdgeKeys = 16;  // in a strip that some rows see in part: hidden elements are computed too
inline constexpr int64_t kMostHeads = 16;

struct QueryBlock {
  const AttentionSpan* span = nullptr;
  int64_t kv = 0;                  // key head
  int64_t head = 0, heads = 0;     // query heads
  int64_t query = 0, queries = 0;  // of the span
  int64_t rows() const { return queries * heads; }
  int64_t first_row() const { return span->q_row + query; }  // of the tensor q
  int64_t position() const { return span->q_position + query; }
  int64_t key_at() const { return position() - span->k_position; }  // the key at the first query's position
};

// The blocks of an op.
class QueryBlocks {
 public:
  explicit QueryBlocks(const AttentionHeads& h)
      : group_(h.q / h.kv),
        sets_((group_ + kMostHeads - 1) / kMostHeads),
        heads_((group_ + sets_ - 1) / sets_),
        queries_(kBlockRows / heads_) {}

  int64_t sets() const { return sets_; }  // of a key head
  int64_t count(const AttentionSpan& s) const {
    return s.q_count == 0 ? 0 : (s.q_position + s.q_count - 1) / queries_ - s.q_position / queries_ + 1;
  }
  QueryBlock at(const AttentionSpan& s, int64_t kv, int64_t set, int64_t i) const {
    const int64_t start = (s.q_position / queries_ + i) * queries_ - s.q_position;
    const int64_t begin = std::max<int64_t>(0, start), end = std::min(s.q_count, start + queries_);
    const int64_t heads = std::min(heads_, group_ - set * heads_);
    return {&s, kv, kv * group_ + set * heads_, heads, begin, end - begin};
  }

 private:
  int64_t group_, sets_, heads_, queries_;
};

struct Strip {
  int64_t key = 0, keys = 0;
  int64_t begin = 0, end = 0;  // rows of the block that see some of them
  bool partly = false;         // a row may not see all of them
};

// The strips of a block, in the order of their keys.
class Strips {
 public:
  Strips(const AttentionHeads& h, const QueryBlock& b)
      : window_(h.window), heads_(b.heads), queries_(b.queries), offset_(b.span->k_position), first_(b.key_at()) {
    const int64_t count = b.span->k_count, last = first_ + queries_ - 1;
    seen_ = {window_ ? std::max<int64_t>(0, first_ - window_ + 1) : 0, std::min(count, last + 1)};
    const int64_t from = window_ ? std::max<int64_t>(0, last - window_ + 1) : 0;
    whole_ = {up(from, kEdgeKeys), std::min(count, first_ + 1)};
    if (whole_.end < count) whole_.end = down(whole_.end, kEdgeKeys);
    if (from == 0) whole_.begin = 0;
    if (whole_.size() <= 0) whole_ = {seen_.end, seen_.end};
  }

  Range keys() const { return seen_; }  // that any row sees
  // The strip that begins at a key of `keys()`, of keys before `end`.
  Strip at(int64_t key, int64_t end) const {
    Strip s;
    s.key = key;
    s.partly = key < whole_.begin || key >= whole_.end;
    const int64_t part_end = key < whole_.begin ? whole_.begin : s.partly ? seen_.end : whole_.end;
    const int64_t next = down(key, s.partly ? kEdgeKeys : kStripKeys) + (s.partly ? kEdgeKeys : kStripKeys);
    s.keys = std::min({next, part_end, end}) - key;
    s.begin = std::max<int64_t>(0, key - first_) * heads_;
    s.end = (window_ ? std::min(queries_, key + s.keys - 1 + window_ - first_) : queries_) * heads_;
    return s;
  }

 private:
  // The nearest key not after (not before) this one whose position is a multiple of n.
  int64_t down(int64_t key, int64_t n) const { return (key + offset_) / n * n - offset_; }
  int64_t up(int64_t key, int64_t n) const { return down(key + n - 1, n); }

  int64_t window_, heads_, queries_, offset_, first_;
  Range seen_, whole_;
};

// Where the tile of kStripKeys positions that a key lies in ends. No strip crosses it.
inline int64_t tile_end(const AttentionSpan& s, int64_t key) {
  return ((s.k_position + key) / kStripKeys + 1) * kStripKeys - s.k_position;
}

// f(strip) for the strips of a block with these keys, in order.
template <class F>
void for_strips(const AttentionHeads& h, const QueryBlock& b, Range keys, const F& f) {
  const Strips strips(h, b);
  const int64_t end = std::min(keys.end, strips.keys().end);
  for (int64_t key = std::max(keys.begin, strips.keys().begin); key < end;) {
    const Strip s = strips.at(key, end);
    f(s);
    key += s.keys;
  }
}

}  // namespace weft::cpu
