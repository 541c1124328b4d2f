// Which kernels a process may run. ctest runs this program again under each WEFT_CPU_ISA: tests/CMakeLists.txt.
#include "weft/ops/cpu/cpu_features.h"

#include <gtest/gtest.h>

#include "weft/apps/cpu_machine.h"
#include "weft/apps/launch.h"
#include "weft/device/arena.h"
#include "weft/ops/cpu/matmul.h"

namespace weft {
namespace {

CpuIsa limit_of_this_process() {
  const std::optional<std::string> isa = environment(kCpuIsaVariable);
  return isa ? cpu_isa_named(*isa).value() : isa_of_this_cpu();
}

TEST(CpuIsa, HasANameThatIsFoundAgain) {
  for (const std::string_view name : kCpuIsaNames) EXPECT_EQ(name_of(cpu_isa_named(name).value()), name);
  EXPECT_FALSE(cpu_isa_named("avx1024"));
  EXPECT_FALSE(cpu_isa_named(""));
}

TEST(CpuIsa, OfKernelsIsWhatTheProcessIsLimitedTo) { EXPECT_EQ(isa_of_kernels(), limit_of_this_process()); }

#if defined(__x86_64__)
TEST(CpuIsa, LimitsTheVectorsOfKernels) {
  const std::string_view kernels = vector_kernels();
  if (limit_of_this_process() < CpuIsa::avx512) { EXPECT_NE(kernels, "AVX3"); }
  if (limit_of_this_process() < CpuIsa::avx2) { EXPECT_NE(kernels, "AVX2"); }
  if (limit_of_this_process() == CpuIsa::avx2) { EXPECT_EQ(kernels, "AVX2"); }
}
#endif

// A kernel of oneDNN says its instructions in its name.
TEST(CpuIsa, LimitsTheKernelsOfProductsInBf16) {
  constexpr int64_t kSize = 64;
  Arena arena("operands");
  const Matmul op{.a = arena.alloc(DType::bf16, {kSize, kSize}),
                  .b = arena.alloc(DType::bf16, {kSize, kSize}),
                  .out = arena.alloc(DType::bf16, {kSize, kSize})};
  const std::string kernel = CpuMatmul(1, Numerics::fast).kernel_of(op);
  const CpuIsa isa = limit_of_this_process();
  const auto says = [&](const char* word) { return kernel.find(word) != std::string::npos; };
  EXPECT_TRUE(isa == CpuIsa::amx || (!says("amx") && !says("AMX"))) << kernel;
  EXPECT_TRUE(isa >= CpuIsa::avx512_bf16 || !says("avx512_core_bf16")) << kernel;
  if (isa < CpuIsa::avx512) { EXPECT_EQ(kernel, "weft's in f32, " + std::string(vector_kernels())); }
}

TEST(CpuIsa, OfAnotherNameOrThatThisCpuLacksIsRefused) {
  EXPECT_THROW(limit_cpu("avx1024"), ConfigError);
  EXPECT_THROW(limit_cpu(""), ConfigError);
  if (isa_of_this_cpu() < CpuIsa::amx) { EXPECT_THROW(limit_cpu("amx"), ConfigError); }
}

TEST(CpuIsa, IsNotLimitedOnceOneDnnWasUsed) {
  CpuMatmul(1, Numerics::fast);
  isa_of_kernels();
  if (isa_of_this_cpu() > CpuIsa::portable) { EXPECT_THROW(limit_cpu("portable"), ConfigError); }
}

}  // namespace
}  // namespace weft
