// Checks that a layout gives the same run as one rank. Trains the recipe's model some steps both ways, in fp64 by the
// reference backend and then in the recipe's own precision on its backend, and compares everything that the steps make.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/verify/run_record.h"
#include "weft/verify/sub_layouts.h"

namespace weft {

// In fp64 a layout differs from one rank by the order of its sums alone.
inline constexpr double kFp64Tolerance = 1e-11;
// In the recipe's precision, how much farther from fp64 than one rank a layout may be.
inline constexpr double kFarther = 4;

struct VerifySetup {
  const Recipe& recipe;
  std::function<Machine(const Recipe&)> machine_for;
  int64_t steps = 3;
  bool whole = false;                                // the recipe's own model, whatever it takes
  std::function<void(const std::string&)> say = {};  // what is being done, a line each

  // For tests, that must see it find what is wrong: applied to every run, those on one rank included.
  RunRanks run = run_on_threads;
  DecorateBackend decorate = {};
};

struct VerifyReport {
  std::string model, layout;  // what was trained, in words
  int64_t steps = 0;

  struct Row {
    Quantity quantity;
    double one_rank, one_rank_allowed;  // distances from fp64 on one rank; 0 where that is one of the runs compared
    double layout, allowed;             // likewise; else from that other run
    int64_t step;                       // from 1: where it is farthest, in units of what is allowed ...
    std::string tensor;                 // ... and in which weight
    bool equal() const { return layout <= allowed && one_rank <= one_rank_allowed; }
  };
  struct Pass {
    std::string precision, backend;
    std::vector<Row> rows;
    // "the gradient of head.weight": one rank is farther from fp64 than the arithmetic explains, and so is fp64 where
    // its results are rounded alike. Such a quantity says little in this precision.
    std::vector<std::string> ill_conditioned;
  };
  std::vector<Pass> passes;

  // Where something differs.
  struct Finding {
    int64_t step;                         // from 1
    std::string precision, what, tensor;  // "the gradient of head.weight", "head.weight"
    std::string operation;                // which made it, as far as it could be found, in words
    SmallestLayout smallest;              // that still differs
    bool on_one_rank = false;             // which is wrong itself, whatever the layout
  };
  std::optional<Finding> finding;
  bool equal() const { return !finding; }
};

// All ranks are threads of this process. Throws what training would refuse the recipe with: ConfigError, FileError,
// PlacementError. Blocks.
VerifyReport verify(const VerifySetup& setup);

}  // namespace weft
