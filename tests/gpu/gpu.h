// The GPU that tests run on.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

#include "places.h"
#include "weft/apps/backends.h"

namespace weft::testing {

// WEFT_TEST_BACKEND=cpu tries the tests themselves where there is no GPU.
inline std::string gpu_backend() {
  const char* other = std::getenv("WEFT_TEST_BACKEND");
  return other ? other : "cuda";
}

// As the program makes it, for a recipe of that backend: of as many GPUs as there are, or ranks. Throws ConfigError
// where there is none.
inline Machine gpu_machine_for(const Recipe& recipe) {
  setenv("WEFT_CUDA_MODULE", testing::cuda_module_file(), 0);
  setenv("WEFT_CUDA_CACHE", "off", 0);  // no test depends on what another found out
  return machine_for(recipe);
}
// For one GPU, whatever the layout.
inline Machine gpu_machine(const std::string& numerics = "fast") {
  Recipe recipe;
  recipe.run.backend = choice_named<BackendKind>(gpu_backend()).value();
  recipe.run.threads = 2;
  recipe.train.numerics = choice_named<NumericsChoice>(numerics).value();
  return gpu_machine_for(recipe);
}

}  // namespace weft::testing

// Ends a test, with what the program says to it, where there is no GPU.
#define WEFT_NEEDS_GPU()            \
  try {                             \
    ::weft::testing::gpu_machine(); \
  } catch (const ConfigError& missing) { GTEST_SKIP() << missing.what(); }
