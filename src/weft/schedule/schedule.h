// Pipeline schedules are data: one rank's step is a list of actions. Pure functions, no state.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Backward is Dgrad and Wgrad layer by layer, which keeps less than one after the other.
enum class Do : char { forward = 'F', backward = 'B', dgrad = 'D', wgrad = 'W' };
struct Action {
  Do what;
  int64_t micro_batch;
  bool operator==(const Action&) const = default;
};
using Schedule = std::vector<Action>;

struct PipelinePosition {
  int stage = 0, num_stages = 1;
};
// All forward passes, then all backward passes.                                          Huang et al. 2019
Schedule gpipe(PipelinePosition at, int64_t num_micro_batches);
// One forward, one backward, after a warm-up: at most num_stages micro-batches alive.    Narayanan et al. 2021
Schedule one_f_one_b(PipelinePosition at, int64_t num_micro_batches);
// As 1F1B, but later stages hold back weight gradients to fill the drain.                Qi et al. 2024
Schedule zero_bubble_h1(PipelinePosition at, int64_t num_micro_batches);
// By its name in recipes: gpipe, 1f1b, zb_h1. A ConfigError names them for any other.
Schedule schedule_named(std::string_view name, PipelinePosition at, int64_t num_micro_batches);

// "F0 B0 F1 B1"
std::string to_string(const Schedule& schedule);

// How many micro-batches are alive at once: what memory planning needs to know.
struct Liveness {
  int till_dgrad = 0;        // from forward to (d)backward
  int till_wgrad = 0;        // from forward to wgrad or backward
  int dgrad_till_wgrad = 0;  // from dgrad to wgrad, or during backward
};
Liveness liveness(const Schedule& schedule);

}  // namespace weft
