#include "weft/tokenize/merges.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kShort = 96;  // up to here, looking at all pairs is faster than a heap

uint64_t pair_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

size_t merge_short(const MergeTable& table, std::span<int32_t> ids) {
  uint32_t ranks[kShort];
  int32_t results[kShort];
  const auto look = [&](size_t i, size_t n) {
    const auto merge = i + 1 < n ? table.find(ids[i], ids[i + 1]) : MergeTable::Merge{};
    ranks[i] = merge.rank;
    results[i] = merge.result;
  };
  size_t n = ids.size();
  for (size_t i = 0; i < n; ++i) look(i, n);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i < n; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == MergeTable::kNever) break;
    ids[best] = results[best];
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    look(best, n);
    if (best > 0) look(best - 1, n);
  }
  return n;
}

// The top of the heap is the least rank, of these the leftmost.
bool is_later(const MergeSpace::Candidate& a, const MergeSpace::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

constexpr uint32_t kEnd = UINT32_MAX;

// Symbols are a linked list; a merged pair leaves its right one dead (id -1). Candidates that no longer stand are
// recognised when their turn comes: the pair has another rank by then.
size_t merge_long(const MergeTable& table, std::span<int32_t> ids, MergeSpace& space) {
  auto& symbols = space.symbols;
  auto& heap = space.heap;
  symbols.clear();
  heap.clear();
  for (size_t i = 0; i < ids.size(); ++i)
    symbols.push_back({ids[i], i == 0 ? kEnd : uint32_t(i - 1), i + 1 == ids.size() ? kEnd : uint32_t(i + 1)});
  const auto merge_at = [&](uint32_t at) {
    const auto& s = symbols[at];
    return s.id < 0 || s.after == kEnd ? MergeTable::Merge{} : table.find(s.id, symbols[s.after].id);
  };
  const auto offer = [&](uint32_t at) {
    if (const auto merge = merge_at(at); merge.rank != MergeTable::kNever) heap.push_back({merge.rank, at});
  };
  for (uint32_t i = 0; i < symbols.size(); ++i) offer(i);
  std::make_heap(heap.begin(), heap.end(), is_later);
  const auto push = [&](uint32_t at) {
    const size_t before = heap.size();
    offer(at);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), is_later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), is_later);
    const auto [rank, at] = heap.back();
    heap.pop_back();
    const auto merge = merge_at(at);
    if (merge.rank != rank) continue;
    auto& left = symbols[at];
    auto& right = symbols[left.after];
    left.id = merge.result;
    right.id = -1;
    left.after = right.after;
    if (left.after != kEnd) symbols[left.after].before = at;
    if (left.before != kEnd) push(left.before);
    push(at);
  }
  size_t n = 0;
  for (uint32_t at = 0; at != kEnd; at = symbols[at].after) ids[n++] = symbols[at].id;
  return n;
}

}  // namespace

MergeTable::MergeTable(size_t expected) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, expected + expected / 2));
  slots_.resize(slots);
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  WEFT_CHECK(left >= 0 && right >= 0 && merge.rank != kNever, "a pair is made of ids, and merges at some rank");
  if ((size_ + 1) * 4 > slots_.size() * 3) {
    MergeTable larger(slots_.size());
    for (const Slot& slot : slots_)
      if (slot.pair != kFree) larger.add(int32_t(slot.pair >> 32), int32_t(slot.pair), slot.merge);
    *this = std::move(larger);
  }
  const uint64_t pair = pair_of(left, right);
  size_t i = first_slot(pair);
  for (; slots_[i].pair != kFree; i = (i + 1) & (slots_.size() - 1))
    if (slots_[i].pair == pair) return;
  slots_[i] = {pair, merge};
  ++size_;
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  for (size_t i = first_slot(pair); slots_[i].pair != kFree; i = (i + 1) & (slots_.size() - 1))
    if (slots_[i].pair == pair) return slots_[i].merge;
  return {};
}

size_t merge_all(const MergeTable& table, std::span<int32_t> ids, MergeSpace& space) {
  WEFT_CHECK(ids.size() < kEnd, "a piece of {} symbols", ids.size());
  return ids.size() <= kShort ? merge_short(table, ids) : merge_long(table, ids, space);
}

}  // namespace weft
