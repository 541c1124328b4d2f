// Loss spikes: which step's loss or gradient norm stands out of those before it, and what a run remembers of them.
//   batch  of the data, from 0: the number of the step that reads it, unless the run has gone past some batches
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace weft {

// What a checkpoint holds of a run's spikes.
struct SpikeState {
  std::vector<double> losses = {}, grad_norms = {};  // of the last steps without one, oldest first: at most a window
  std::vector<int64_t> batches = {};                 // whose steps were spikes, ascending
  int64_t skipped_steps = 0;                         // of the whole run: that left their update out
  struct Gap {
    int64_t step = 0, batches = 0;  // before step `step`, from 0, the run goes past so many
    bool operator==(const Gap&) const = default;
  };
  std::vector<Gap> gaps = {};  // ascending by step

  // Which batch step `step` reads, from 0; and how many batches so many steps have read or gone past.
  int64_t batch_of(int64_t step) const;
  // From step `step` on the run reads what follows that batch, the one of batch_of(step) or a later one.
  void go_past(int64_t step, int64_t batch);
  // How many of the spikes are among the last `window` batches up to this one.
  int64_t recent(int64_t batch, int64_t window) const;
  bool is_empty() const { return losses.empty() && batches.empty() && gaps.empty() && skipped_steps == 0; }
  bool operator==(const SpikeState&) const = default;
};

struct Spike {
  bool is_of_loss = true;  // else of the gradient norm
  double value = 0, median = 0, limit = 0;
};

// A pure function of what was measured, so that ranks that agree on that agree on it.
struct SpikeRule {
  double sigma_factor = 6;
  int64_t window = 128;  // steps
  // Whether this loss or this gradient norm, both finite, is above the median of the window by more than sigma_factor
  // standard deviations; never before half a window is there, or where most of it is 0. A deviation is 1.4826 times the
  // median of the distances from the median, which a few spikes do not move, and at least a hundredth of its size.
  std::optional<Spike> find(const SpikeState& state, double loss, double grad_norm) const;
  // Adds those of a step that was none.
  void add(SpikeState& state, double loss, double grad_norm) const;
};

// How a run watches for them.
struct SpikeWatch {
  std::optional<SpikeRule> rule = {};  // none: it does not
  SpikeState state = {};
};

}  // namespace weft
