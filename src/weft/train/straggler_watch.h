// Finds ranks that compute for longer than others with the same work, step after step.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

class StragglerWatch {
 public:
  static constexpr double kSlower = 1.2;               // times the median
  static constexpr int64_t kWindow = 10, kSteps = 50;  // steps whose mean is judged; for how many it must be so
  struct Straggler {
    int rank = 0;
    double compute_s = 0, median_s = 0, wait_s = 0;  // of a step, in the last window; the median of the ranks alike
    int64_t since_step = 0;                          // the first step of the first window in which it was so
    bool is_over = false;                            // it was one, and keeps up again
  };
  // `alike`: of each rank, a number that it shares with the ranks whose work is the same.
  explicit StragglerWatch(std::vector<int> alike) : alike_(std::move(alike)), slow_since_(alike_.size(), kNever) {}
  // The means of the window that ends with `step` (steps done), by rank. Returns those of which there is news.
  std::vector<Straggler> add(int64_t step, std::span<const double> compute_s, std::span<const double> wait_s);

 private:
  static constexpr int64_t kNever = -1;
  double median_of(int alike, std::span<const double> compute_s) const;
  std::vector<int> alike_;
  std::vector<int64_t> slow_since_;  // [rank] the first step
};

}  // namespace weft
