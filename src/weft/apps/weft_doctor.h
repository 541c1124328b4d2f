// `weft doctor`: whether a machine, a disk and a recipe are fit for a long run.
#pragma once
#include <string>
#include <vector>

namespace weft {

struct DoctorOptions {
  std::string recipe;  // empty: the machine alone
  std::vector<std::string> overrides;
  std::string folder;  // where runs are to lie; empty: the recipe's run.dir, or the current folder
  bool json = false;
};
// Exit status 1 where a finding is bad: the run would fail.
int run_doctor(const DoctorOptions& options);

}  // namespace weft
