// A shuffled order without a table.
#pragma once
#include <cstdint>

namespace weft {

// A permutation of 0 .. n - 1: a Feistel network on the next power of four, walked until it lands below n. O(1) in time
// (four walks at most on average) and memory. Another key, another order.
class Permutation {
 public:
  Permutation(uint64_t key, int64_t n);
  int64_t operator()(int64_t i) const;  // 0 <= i < n

 private:
  uint64_t key_;
  int64_t n_;
  int half_bits_;
};

}  // namespace weft
