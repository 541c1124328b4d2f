// The main function of tests that run under WEFT_CPU_ISA=avx2 and the like: kernels are limited before any runs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "weft/apps/cpu_machine.h"
#include "weft/apps/launch.h"
#include "weft/ops/cpu/cpu_features.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  ::testing::InitGoogleTest(&argc, argv);
  const std::optional<std::string> isa = weft::environment(weft::kCpuIsaVariable);
  if (const auto most = weft::cpu_isa_named(isa.value_or("portable")); most && *most > weft::isa_of_this_cpu()) {
    std::cout << "skipped: this CPU has no " << *isa << "\n";
    return kSkipped;
  }
  weft::limit_cpu(isa);
  return RUN_ALL_TESTS();
}
