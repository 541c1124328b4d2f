// The complete results of a trial's steps, and the distance of another trial of the same steps from them.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/verify/trial.h"

namespace weft {

enum class Quantity : uint8_t { loss, gradients, gradient_norm, states, weights };
inline constexpr Quantity kQuantities[] = {Quantity::loss, Quantity::gradients, Quantity::gradient_norm,
                                           Quantity::states, Quantity::weights};
std::string name_of(Quantity quantity);
constexpr bool of_tensors(Quantity q) { return q != Quantity::loss && q != Quantity::gradient_norm; }

// A whole weight, its gradient or a tensor of its optimizer state, row by row.
struct WholeTensor {
  std::vector<double> values;
  double largest = 0;  // absolute
  double size = 0;     // that distances are relative to: the largest, unless all of it is rounding noise
  // Of each element of a weight that begins at zero and that AdamW updates: how far it would have moved so far, at the
  // recipe's full learning rate, had its gradients been as large as the tensor's largest and its second moments what
  // they are. Else empty.
  std::vector<double> reach = {};
  double size_of(size_t element) const { return reach.empty() ? size : std::max(size, reach[element]); }
};

struct RunRecord {
  struct Step {
    double loss = 0, grad_norm = 0;
    std::map<std::string, WholeTensor> gradients, weights;  // by name of the weight
    std::map<std::string, WholeTensor> states;              // by "exp_avg of head.weight"
  };
  struct Kind {
    bool decays, linear, learns;  // as its ParamSpec says
  };
  std::vector<Step> steps;
  std::map<std::string, WholeTensor> first_weights;             // before the first step
  std::map<std::string, Kind> kinds;                            // of the weights
  std::vector<std::string> order, gradient_order, state_order;  // names, as the model has them
  const std::vector<std::string>& names(Quantity q) const {
    return q == Quantity::states ? state_order : q == Quantity::gradients ? gradient_order : order;
  }
};

// Records a trial on one rank.
RunRecord record_run(const Trial& trial, const Machine& machine, const TrialHooks& hooks = {});

// How far a run is from a record, for each step: of a number, relative to it; of a tensor, its farthest element,
// relative to WholeTensor::size_of it. Not finite counts as infinitely far.
class Distances {
 public:
  struct Step {
    double loss = 0, grad_norm = 0;
    std::map<std::string, double> gradients, states, weights;
  };
  explicit Distances(size_t num_steps) : steps_(num_steps) {}
  double at(int64_t step, Quantity quantity, const std::string& tensor) const;
  std::vector<std::string> names(int64_t step, Quantity quantity) const;  // of its tensors; "" of a number
  std::vector<Step>& steps() { return steps_; }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

// Runs a trial on its layout and compares what every rank keeps, copies included, with the record. Throws
// what run_trial throws; a CheckFailure where the ranks together do not have all of a weight.
Distances compare_run(const Trial& trial, const Machine& machine, const TrialHooks& hooks, const RunRecord& record);

// The first quantity that is farther off than allowed: step by step; within one the loss, gradients in the order of
// backward, their norm, optimizer state, weights.
struct Difference {
  int64_t step;  // from 0
  Quantity quantity;
  std::string tensor;  // of gradients, states and weights
  double distance, allowed;
};
std::string to_string(const Difference& difference);
using AllowedDistance = std::function<double(int64_t step, Quantity quantity, const std::string& tensor)>;
std::optional<Difference> first_difference(const Distances& distances, const RunRecord& record,
                                           const AllowedDistance& allowed);
// All of them, in that order.
std::vector<Difference> differences(const Distances& distances, const RunRecord& record,
                                    const AllowedDistance& allowed);
// The largest difference of one quantity, over all steps and tensors, in units of the allowed one.
Difference worst_of(const Distances& distances, Quantity quantity, const AllowedDistance& allowed);

}  // namespace weft
