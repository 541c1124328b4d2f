// The machine of run.backend = "cuda". The program itself knows nothing of CUDA: it loads weft's module for GPUs where
// a recipe asks for it.
#pragma once
#include <filesystem>

#include "weft/train/machine.h"

namespace weft {

// GPU `ordinal` of this host; of fewer GPUs than ranks, ranks share them. `threads` are the host's. Throws ConfigError
// that says what is missing (the module, the driver, a GPU, one new enough) and what to do.
Machine cuda_machine(int ordinal, int threads);
// The file of the module; empty where there is none.
std::filesystem::path find_cuda_module();
// Whether `auto` may take it: a GPU is there, and all that it needs.
bool has_cuda();

}  // namespace weft
