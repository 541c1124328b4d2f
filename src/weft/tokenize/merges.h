// Byte-pair encoding: which two neighbours become one, and in which order.     Sennrich et al. 2016, algorithm 1
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Pairs of ids, each with its rank (the least merges first) and the id that it becomes. Immutable once built.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNever;
    int32_t result = -1;
  };
  static constexpr uint32_t kNever = UINT32_MAX;

  // For about this many pairs.
  explicit MergeTable(size_t expected);
  // A pair that is there already keeps its rank.
  void add(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const {
    if (left < kLow && right < kLow) return low_[size_t(left * kLow + right)];
    const uint64_t pair = pair_of(left, right);
    for (size_t i = first_place(pair); entries_[i].pair != kFree; i = (i + 1) & (entries_.size() - 1))
      if (entries_[i].pair == pair) return entries_[i].merge;
    return {};
  }
  size_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t pair = kFree;
    Merge merge;
  };
  static constexpr uint64_t kFree = UINT64_MAX;
  static constexpr int32_t kLow = 256;  // pairs of such ids, mostly bytes, are looked up the most
  static uint64_t pair_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
  size_t first_place(uint64_t pair) const { return size_t((pair * 0x9e3779b97f4a7c15u) >> shift_); }

  std::vector<Entry> entries_;
  std::vector<Merge> low_;  // [left, right]
  int shift_ = 0;
  size_t size_ = 0;
};

// Merges `ids`, none of them negative, as far as it goes, always the pair of the least rank, of equal ones the
// leftmost; what remains is moved to the front. Returns how many remain. Takes n log n steps for n ids.
size_t merge_all(const MergeTable& table, std::span<int32_t> ids);

}  // namespace weft
