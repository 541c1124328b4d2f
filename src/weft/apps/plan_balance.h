// `weft plan balance`: the stages of a pipeline balanced by a traced step.
#pragma once
#include <string>
#include <vector>

namespace weft {

struct PlanBalanceOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string trace;   // as `weft bench step --trace` wrote it
  std::string write;   // file for the recipe with the better cut; empty: none
  bool again = false;  // replace it
  bool json = false;
};
// Prints the recipe's cut and a better one. With `write`, writes a recipe only where there is a better one. Returns the
// exit status; throws Error.
int run_plan_balance(const PlanBalanceOptions& options);

}  // namespace weft
