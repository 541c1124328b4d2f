// Finds ranks that compute for longer than others with the same work, or as much more of it as they were given, step
// after step.
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
    // Of a step, in the last window; the median of the ranks alike, of as much work as this one has.
    double compute_s = 0, median_s = 0, wait_s = 0;
    int64_t since_step = 0;  // the first step of the first window in which it was so
    bool is_over = false;    // it was one, and keeps up again
  };
  // `alike`: of each rank, a number that it shares with the ranks whose work is of the same kind. `work`: how much of
  // it each has, above 0: micro-batches of a step; empty: all have as much.
  explicit StragglerWatch(std::vector<int> alike, std::vector<double> work = {});
  // The ranks have been given other work; what is known of them stays.
  void set_work(std::vector<double> work);
  // The means of the window that ends with `step` (steps done), by rank. Returns those of which there is news.
  std::vector<Straggler> add(int64_t step, std::span<const double> compute_s, std::span<const double> wait_s);

 private:
  static constexpr int64_t kNever = -1;
  double median_of(int alike, std::span<const double> compute_s) const;
  std::vector<int> alike_;
  std::vector<double> work_;         // [rank]
  std::vector<int64_t> slow_since_;  // [rank] the first step
};

}  // namespace weft
