// The machine of run.backend = "cuda". The program itself knows nothing of CUDA: it loads weft's module for GPUs where
// a recipe asks for it.
#pragma once
#include <filesystem>
#include <string>

#include "weft/apps/launch.h"
#include "weft/train/machine.h"

namespace weft {

struct RanksOfGpus {
  bool are_processes = false;  // each with a GPU of its own, if there are so many: their tensors go by NCCL
  double timeout_s = 600;      // of waiting for a GPU
  bool repeat = true;          // the same bits each time
  int num_here = 1;            // threads of this process, which take a GPU each (device/devices_of_ranks.h)
};
// GPU `ordinal` of this host, and more of them for ranks that are threads; of fewer GPUs than ranks, ranks share them.
// `threads` are the host's, of a rank. Throws ConfigError that says what is missing (the module, the driver, a GPU, one
// new enough) and what to do.
Machine cuda_machine(int ordinal, int threads, const RanksOfGpus& ranks = {});
// The same to plan with: its workspace model, by the module alone, without looking for a GPU. It has no backends.
Machine cuda_machine_to_plan(bool repeats);
// What is missing, as cuda_machine says it; empty where `auto` may take a GPU. Throws ConfigError where a variable of
// the environment has a value that it may not have.
std::string why_no_cuda();
// The folder for what is found out about GPUs: WEFT_CUDA_CACHE, else weft's of the user's caches. Empty: none. Throws
// Error where the variable names none.
std::filesystem::path cuda_cache_folder(const Environment& env);
// The file of the module; empty where there is none.
std::filesystem::path find_cuda_module();

}  // namespace weft
