// How large weights are, and how much of them an update changes, by matrix; whatever part of them this rank keeps.
#pragma once
#include <functional>
#include <vector>

#include "weft/optim/part_sums.h"

namespace weft {

class WeightNorms {
 public:
  // The index in PartSums::sums: squares of a weight before an update, after it, and of its change.
  enum Sum : uint8_t { before, after, change };
  static constexpr size_t kSums = 3;

  // `records`: where the host reaches it.
  WeightNorms(const ParamStore& store, Arena& records);
  // Calls `update`. Takes room from `scratch` for a copy of all masters here that learn, whether it measures or not, so
  // that every step needs the same memory. If it measures, it returns the sums of each part, which it compares with
  // that copy; else nothing, and so in a dry run, which sends nothing either. Blocks.
  std::vector<PartSums> wait_update(Backend& backend, Arena& scratch, bool measures,
                                    const std::function<void()>& update) const;

 private:
  double wait_squares(Backend& backend, const Tensor& x) const;

  const ParamStore& store_;
  Tensor one_;  // f64 [1]
};

}  // namespace weft
