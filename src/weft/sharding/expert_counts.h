// How many rows each rank of ep has for each expert, and how many of them the rank of that expert takes.
//   E experts of a layer, dealt out over the ranks   pair: a token and one of its experts, a row on its way
#pragma once
#include <cstdint>
#include <vector>

#include "weft/sharding/param.h"

namespace weft {

// The rows that a rank of ep has room for, which is planned; and what becomes of more.
struct ExpertCapacity {
  double factor = 0;   // x the rows that it had if all ranks had as many, rounded up; 0: all that can come
  bool drops = false;  // pairs are dropped; else more is an error
  // The rows of a layer whose tokens choose `chosen` of its experts, `tokens` on each of `ranks`. Never more than can
  // come.
  int64_t rows(int64_t tokens, int64_t chosen, int64_t experts, int64_t ranks) const;
};

// [rank][expert] pairs of that rank's tokens with that expert.
class ExpertCounts {
 public:
  ExpertCounts(int64_t ranks, int64_t experts)
      : ranks_(ranks), experts_(experts), pairs_(static_cast<size_t>(ranks * experts)) {}
  int64_t ranks() const { return ranks_; }
  int64_t& of(int64_t rank, int64_t expert) { return pairs_[size_t(rank * experts_ + expert)]; }
  int64_t of(int64_t rank, int64_t expert) const { return pairs_[size_t(rank * experts_ + expert)]; }
  Run experts_of(int64_t rank) const { return share_of(experts_, {ranks_, rank}); }
  int64_t sent(int64_t from, int64_t to) const;  // rows
  int64_t sent(int64_t from) const;              // to all ranks
  int64_t most_sent() const;                     // by any rank
  int64_t received(int64_t to) const;            // rows, from all ranks
  int64_t fullest() const;                       // the rank that receives most; of equal ones the first

  // What is left where each rank takes `capacity` rows. Of a rank that would receive more, every (sending rank, expert)
  // keeps its first m pairs in the order of their tokens, with the largest m that fits; what room is left then goes to
  // the next pair of each, in the order of (expert, sending rank). So those with most pairs lose.
  ExpertCounts within(int64_t capacity) const;

 private:
  int64_t ranks_, experts_;
  std::vector<int64_t> pairs_;
};

}  // namespace weft
