// Which gradients have all but vanished: beside what they were, and beside those of other layers.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// A tensor's gradient is judged by its share of the norm of all gradients: where all fall alike, the run converges. It
// is beside what its share was at its best (a mean over a window of steps), and beside the median of the tensors of its
// kind, whose names differ in numbers alone ("layers.3.down" and "layers.4.down"; at least kFewest of them).
class GradientRule {
 public:
  static constexpr double kLeast = 1e-3;  // of either
  static constexpr int64_t kSteps = 20;   // in a row, of those that are looked at
  static constexpr int64_t kWindow = 100;
  static constexpr size_t kFewest = 3;

  struct Found {
    std::string tensor;                // the worst
    double norm, usual;                // of its gradient; what it was at its best, or what those of other layers are
    bool beside_others;                // which of them
    int64_t from_step;                 // since when
    std::vector<std::string> tensors;  // all that are found with it
    double fraction() const { return norm / usual; }
  };
  // A tensor is found in the kSteps-th step in a row that it is so, and again after it was not. Steps in which a norm
  // is not finite, or all are 0, say nothing.
  std::optional<Found> look(int64_t step, const std::map<std::string, double>& norms);

 private:
  struct Seen {
    int64_t num_low = 0, from_step = 0;  // in a row
    int64_t num_in_window = 0;
    double log_sum = 0;  // of the shares in the window
    double best = 0;     // of the windows' means; 0: none is whole yet
  };
  std::map<std::string, Seen> seen_;
};

}  // namespace weft
