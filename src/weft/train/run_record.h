// What a trial's steps made, whole; and how far another trial of the same steps is from it.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/train/trial.h"

namespace weft {

enum class Quantity : uint8_t { loss, gradients, gradient_norm, weights };
inline constexpr Quantity kQuantities[] = {Quantity::loss, Quantity::gradients, Quantity::gradient_norm,
                                           Quantity::weights};
std::string name_of(Quantity quantity);
constexpr bool of_tensors(Quantity q) { return q == Quantity::gradients || q == Quantity::weights; }

// A whole weight, or its gradient, row by row.
struct WholeTensor {
  std::vector<double> values;
  double largest = 0;  // absolute
};

struct RunRecord {
  struct Step {
    double loss = 0, grad_norm = 0;
    std::map<std::string, WholeTensor> gradients, weights;  // by name of the weight
  };
  std::vector<Step> steps;
  std::vector<std::string> order;  // names, as the model has them
};

// Of a trial on one rank.
RunRecord record_run(const Trial& trial, const Machine& machine, const TrialHooks& hooks = {});

// How far a run is from a record, for each step: of a number, relative to it; of a tensor, its farthest element,
// relative to the largest of the tensor. Not finite counts as infinitely far.
class Distances {
 public:
  struct Step {
    double loss = 0, grad_norm = 0;
    std::map<std::string, double> gradients, weights;
  };
  explicit Distances(size_t num_steps) : steps_(num_steps) {}
  double at(int64_t step, Quantity quantity, const std::string& tensor) const;
  std::vector<Step>& steps() { return steps_; }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

// Runs a trial on its layout and compares what every rank keeps, copies included, with the record. Throws
// what run_trial throws; a CheckFailure where the ranks together do not have all of a weight.
Distances compare_run(const Trial& trial, const Machine& machine, const TrialHooks& hooks, const RunRecord& record);

// The first quantity that is farther off than allowed: step by step; within one the loss, gradients in the order of
// backward, their norm, weights.
struct Difference {
  int64_t step;  // from 0
  Quantity quantity;
  std::string tensor;  // of gradients and weights
  double distance, allowed;
};
std::string to_string(const Difference& difference);
using Allowed = std::function<double(int64_t step, Quantity quantity, const std::string& tensor)>;
std::optional<Difference> first_difference(const Distances& distances, const RunRecord& record, const Allowed& allowed);
// Of one quantity, over all steps and tensors, what is farthest off in units of what is allowed.
Difference worst_of(const Distances& distances, Quantity quantity, const Allowed& allowed);

}  // namespace weft
