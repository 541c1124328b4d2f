#include "weft/tokenize/merges.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kShort = 96;  // up to here, looking at all pairs is faster than a heap

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

constexpr uint32_t kEnd = UINT32_MAX;

// The ids hold a linked list. A symbol of n places keeps its id in the first; the second and the last hold -n (one
// place, if n is 2), those between some negative number. So both neighbours are found without more memory. Places wait
// by the rank of the pair that begins there, in ascending order as they come; those that no longer stand are recognised
// when their turn comes: the pair has another rank by then. What a merge makes of the present rank or a lesser one goes
// first.
class LongMerge {
 public:
  LongMerge(const MergeTable& table, std::span<int32_t> ids) : table_(table), ids_(ids) {
    for (uint32_t i = 0; i < ids.size(); ++i) offer(i);
  }

  size_t run() {
    while (!waiting_.empty()) {
      auto next = waiting_.extract(waiting_.begin());
      rank_ = next.key();
      auto& places = next.mapped();
      if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
      for (uint32_t at : places) {
        merge_first(at);
        merge(rank_, at);
      }
      merge_first(kEnd);
    }
    size_t n = 0;
    for (uint32_t at = 0, next; at < ids_.size(); at = next) {
      next = after(at);  // before its place is written to
      ids_[n++] = ids_[at];
    }
    return n;
  }

 private:
  // The place behind the symbol at `at`: ids_.size() for the last symbol.
  uint32_t after(uint32_t at) const {
    const bool is_one = at + 1 == ids_.size() || ids_[at + 1] >= 0;
    return at + (is_one ? 1u : uint32_t(-ids_[at + 1]));
  }
  uint32_t before(uint32_t at) const { return at - (ids_[at - 1] >= 0 ? 1u : uint32_t(-ids_[at - 1])); }  // at > 0

  MergeTable::Merge merge_at(uint32_t at) const {
    if (ids_[at] < 0) return {};  // part of another symbol by now
    const uint32_t right = after(at);
    return right == ids_.size() ? MergeTable::Merge{} : table_.find(ids_[at], ids_[right]);
  }
  void offer(uint32_t at) {
    const auto merge = merge_at(at);
    if (merge.rank == MergeTable::kNever) return;
    if (rank_ && merge.rank <= *rank_)
      first_.emplace(merge.rank, at);
    else
      waiting_[merge.rank].push_back(at);
  }
  // What comes before the place `at` of the present rank.
  void merge_first(uint32_t at) {
    while (!first_.empty() && *first_.begin() < std::pair(*rank_, at)) {
      const auto [rank, place] = *first_.begin();
      first_.erase(first_.begin());
      merge(rank, place);
    }
  }
  void merge(std::optional<uint32_t> rank, uint32_t at) {
    const auto merge = merge_at(at);
    if (merge.rank != rank) return;
    const uint32_t right = after(at), end = after(right);
    ids_[at] = merge.result;
    ids_[right] = -1;
    ids_[at + 1] = ids_[end - 1] = -int32_t(end - at);
    if (at > 0) offer(before(at));
    offer(at);
  }

  const MergeTable& table_;
  const std::span<int32_t> ids_;
  std::map<uint32_t, std::deque<uint32_t>> waiting_;  // which take no more than what is in them
  std::set<std::pair<uint32_t, uint32_t>> first_;
  std::optional<uint32_t> rank_;  // the present one
};

}  // namespace

MergeTable::MergeTable(size_t expected) : low_(size_t(kLow * kLow)) {
  const size_t places = std::bit_ceil(std::max<size_t>(16, expected + expected / 2));
  entries_.resize(places);
  shift_ = 64 - std::countr_zero(places);
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  WEFT_CHECK(left >= 0 && right >= 0 && merge.result >= 0 && merge.rank != kNever,
             "a pair is made of ids, and merges into one at some rank");
  if ((size_ + 1) * 4 > entries_.size() * 3) {
    MergeTable larger(entries_.size());
    for (const Entry& entry : entries_)
      if (entry.pair != kFree) larger.add(int32_t(entry.pair >> 32), int32_t(entry.pair), entry.merge);
    *this = std::move(larger);
  }
  const uint64_t pair = pair_of(left, right);
  size_t i = first_place(pair);
  for (; entries_[i].pair != kFree; i = (i + 1) & (entries_.size() - 1))
    if (entries_[i].pair == pair) return;
  entries_[i] = {pair, merge};
  ++size_;
  if (left < kLow && right < kLow) low_[size_t(left * kLow + right)] = merge;
}

size_t merge_all(const MergeTable& table, std::span<int32_t> ids) {
  WEFT_CHECK(ids.size() < size_t(INT32_MAX), "a piece of {} symbols", ids.size());
  return ids.size() <= kShort ? merge_short(table, ids) : LongMerge(table, ids).run();
}

}  // namespace weft
