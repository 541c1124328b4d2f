// Pipeline schedules are data: one rank's step is a list of actions. Pure functions, no state.
//   p stages   s this rank's, from 0   v chunks of the model on a rank   m micro-batches of a step, any number
//   F, D, W the times of forward, dgrad, wgrad of one chunk, where all are alike
// Bubble: how long a rank idles in a step, with nothing for communication; schedule/simulate.h measures it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/schedule/pipeline.h"

namespace weft {

// Backward is Dgrad and Wgrad layer by layer, which keeps less than one after the other.
enum class Do : char { forward = 'F', backward = 'B', dgrad = 'D', wgrad = 'W' };
struct Action {
  Do what;
  int64_t micro_batch;
  int chunk = 0;  // which of the rank's virtual stages: schedule/pipeline.h
  bool operator==(const Action&) const = default;
};
using Schedule = std::vector<Action>;

struct PipelinePosition {
  int stage = 0, num_stages = 1;
};
// All forward passes, then all backward passes, both from the first micro-batch on (the paper goes backward from the
// last; so gradients are summed in the same order as by the others). Alive: m. Bubble: (p - 1) (F + D + W).
//                                                                                          Huang et al. 2019, fig. 2
Schedule gpipe(PipelinePosition at, int64_t num_micro_batches);
// One forward, one backward, after a warm-up. Alive: at most p - s. Bubble: as gpipe's. Narayanan et al. 2021, fig. 4
Schedule one_f_one_b(PipelinePosition at, int64_t num_micro_batches);
// The same over v chunks a rank: p micro-batches through chunk 0, the same through chunk 1, ..., backward from the last
// chunk on. Alive: at most 2 (p - s) - 1 + (v - 1) p chunks. Bubble: as 1F1B's in times of a chunk, so 1 / v of it
// where p divides m; else m is rounded up, and what is too many left out, so that ranks idle more.
//                                                                   Narayanan et al. 2021, 2.2; Megatron-LM's warm-up
Schedule interleaved_1f1b(PipelinePosition at, int num_chunks, int64_t num_micro_batches);
// As 1F1B, but a later stage holds back as many wgrads as its warm-up is shorter: dgrads go up sooner, and wgrads fill
// the drain. Alive till dgrad: at most p - s as 1F1B's; till wgrad: at most p, on every rank what 1F1B has on the
// first. Bubble: (p - 1) (F + D - W), a third of 1F1B's where the three are equal.          Qi et al. 2023, ZB-H1, fig.
// 3 top
Schedule zero_bubble_h1(PipelinePosition at, int64_t num_micro_batches);
// Two chunks a rank, down the ranks and up again. Alive, forward till wgrad, both chunks together: at most 2 p, which
// is 1F1B's peak of the same model. Bubble: none between a rank's first and last action where F = D = W and m >= 2 p -
// 1; rank s begins s F after the first.               Qi et al. 2023, ZB-V; Qi et al. 2024, Pipeline .. Controllable
// Memory
Schedule zero_bubble_v(PipelinePosition at, int64_t num_micro_batches);

// One rank's list, and those of all.
Schedule schedule_of(const Pipeline& pipeline, int stage, int64_t num_micro_batches);
std::vector<Schedule> schedules_of(const Pipeline& pipeline, int64_t num_micro_batches);

// "F0 B0 F1 B1"; of another chunk than 0, "F1.2" is micro-batch 1 through chunk 2.
std::string to_string(const Schedule& schedule);
std::string to_string(const Action& action);

// How many micro-batches are alive at once.
struct Liveness {
  int till_dgrad = 0;        // from forward to (d)backward
  int till_wgrad = 0;        // from forward to wgrad or backward
  int dgrad_till_wgrad = 0;  // from dgrad to wgrad, or during backward
  bool operator==(const Liveness&) const = default;
};

}  // namespace weft
