// Every op of the GPU's backend: equal to the reference, and the same bits again.
#include "gpu/gpu.h"
#include "ops/machine_cases.h"

namespace weft {

inline void PrintTo(DType t, std::ostream* out) { *out << name_of(t); }  // in names of tests

namespace {

class GpuBackend : public ::testing::TestWithParam<DType> {};
using GpuBackendAtSize = GpuBackend;

TEST_P(GpuBackend, EqualsTheReferenceOnEveryCase) {
  WEFT_NEEDS_GPU();
  const Machine machine = testing::gpu_machine();
  for (const testing::OpCase& c : testing::op_cases(GetParam())) testing::expect_equals_reference(machine, c);
}

TEST_P(GpuBackend, GivesTheSameBitsAgain) {
  WEFT_NEEDS_GPU();
  const Machine machine = testing::gpu_machine();
  for (const testing::OpCase& c : testing::op_cases(GetParam())) testing::expect_gives_the_same_bits_again(machine, c);
}

// What an op needs of the host (spans of attention) is kept with it, and all else is as it was.
TEST_P(GpuBackend, GivesTheSameBitsAsACudaGraph) {
  WEFT_NEEDS_GPU();
  const Machine machine = testing::gpu_machine();
  if (testing::gpu_backend() != "cuda") GTEST_SKIP() << "CUDA graphs are of the cuda backend";
  for (const testing::OpCase& c : testing::op_cases(GetParam()))
    testing::expect_gives_the_same_bits_replayed(machine, c);
}

// At the sizes of a model of 40 million weights, which fill a GPU: blocks meet there that run one after the other
// above.
TEST_P(GpuBackendAtSize, GivesTheSameBitsAgain) {
  WEFT_NEEDS_GPU();
  const Machine machine = testing::gpu_machine();
  for (const testing::OpCase& c : testing::timed_cases(GetParam()))
    testing::expect_gives_the_same_bits_again(machine, c);
}

std::string name_of_type(const ::testing::TestParamInfo<DType>& info) { return std::string(name_of(info.param)); }
INSTANTIATE_TEST_SUITE_P(Types, GpuBackend, ::testing::Values(DType::f32, DType::bf16, DType::f16), name_of_type);
INSTANTIATE_TEST_SUITE_P(Types, GpuBackendAtSize, ::testing::Values(DType::bf16), name_of_type);

}  // namespace
}  // namespace weft
