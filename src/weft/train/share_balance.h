// Finds better shares of a step's micro-batches while a run goes on, by the times that data-parallel ranks have needed.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace weft {

// One object for as long as the shares stay: the next ones are judged by times of their own. Pure: ranks that are given
// the same times come to the same shares.
class ShareBalance {
 public:
  static constexpr double kGains = 0.1;   // of the slowest rank's time: what other shares must save of it
  static constexpr int64_t kWindows = 3;  // of StragglerWatch::kWindow steps, in a row, in which they would
  struct Change {
    std::vector<int64_t> shares;       // [rank of dp] by speed (shares_by_weight)
    int64_t slowest = 0;               // the rank of dp that took longest
    double slowest_s = 0, then_s = 0;  // of a step: what that took, and what the slowest is expected to take then
  };
  // `shares`: micro-batches of each rank of dp, as they are.
  explicit ShareBalance(std::vector<int64_t> shares);
  // What each rank of dp has computed of a step in a window, in seconds: the slowest of its tensor, context and
  // pipeline parallel ranks. None: the shares stay. A window without a gain, or without times above 0, begins anew.
  std::optional<Change> add(std::span<const double> compute_s);
  // What add() has returned cannot be: it returns these shares no more, and goes on looking for others.
  void refuse(std::vector<int64_t> shares) { refused_.insert(std::move(shares)); }

 private:
  std::optional<Change> better(const std::vector<double>& each_s) const;

  const std::vector<int64_t> shares_;
  std::vector<double> each_s_;  // [rank of dp] of a micro-batch, the sum over the windows in a row
  int64_t windows_ = 0;
  std::set<std::vector<int64_t>> refused_ = {};
};

}  // namespace weft
