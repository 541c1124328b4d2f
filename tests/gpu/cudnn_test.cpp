// Attention by cuDNN on a GPU: equal to the reference, repeatable bits, and no warning on stderr from weft's own check
// of the library.
#include "gpu/gpu.h"
#include "ops/cases_attention.h"
#include "ops/machine_cases.h"

namespace weft {
namespace {

using testing::AttentionCase;
using testing::heads_of;
using testing::packed;

// Small enough for the reference, in batches that cuDNN takes. Where query heads share keys, cuDNN rounds each head's
// gradient of them before it adds them up, which the table of tolerances does not know: these are left to the check.
testing::OpCases cases(DType compute, bool shared_keys) {
  std::vector<AttentionCase> all;
  if (shared_keys) {
    all.push_back({"shared keys", packed({128, 128}), heads_of(4, 2, 64)});
    all.push_back({"one key head", packed({512}), heads_of(8, 1, 128)});
  } else {
    all.push_back({"least", packed({128}), heads_of(1, 1, 64)});
    all.push_back({"sequences", packed({256, 256, 256}), heads_of(2, 2, 64)});
    all.push_back({"wide heads", packed({384, 384}), heads_of(2, 2, 128)});
    all.push_back({"odd heads", packed({128, 128}), heads_of(3, 3, 80)});
    all.push_back({"narrow heads", packed({640}), heads_of(2, 2, 32)});
    all.push_back({"two pieces", packed({2048}), heads_of(40, 40, 16)});
    all.push_back({"window", packed({512, 512}), heads_of(2, 2, 64, 300)});
  }
  testing::OpCases to;
  for (const AttentionCase& c : all) {
    for (const int64_t gap : {0, 8}) {
      const testing::Variant v{compute, gap};
      testing::add_case(to, v, c.name, [c](testing::Operands& o) { return testing::make_attention(o, c); });
      testing::add_case(to, v, c.name, [c](testing::Operands& o) { return testing::make_attention_backward(o, c); });
    }
  }
  return to;
}

#define WEFT_NEEDS_CUDNN_ON_GPU()                 \
  WEFT_NEEDS_GPU();                               \
  const Machine machine = testing::gpu_machine(); \
  if (machine.description.find(", cuDNN ") == std::string::npos) GTEST_SKIP() << machine.description

TEST(CudnnOnGpu, EqualsTheReference) {
  WEFT_NEEDS_CUDNN_ON_GPU();
  for (const DType t : {DType::bf16, DType::f16}) {
    for (const testing::OpCase& c : cases(t, false)) {
      ::testing::internal::CaptureStderr();
      testing::expect_equals_reference(machine, c);
      EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << c.name;
    }
  }
}

TEST(CudnnOnGpu, GivesTheSameBitsAgain) {
  WEFT_NEEDS_CUDNN_ON_GPU();
  for (const DType t : {DType::bf16, DType::f16}) {
    for (const bool shared_keys : {false, true}) {
      for (const testing::OpCase& c : cases(t, shared_keys)) {
        ::testing::internal::CaptureStderr();
        testing::expect_gives_the_same_bits_again(machine, c);
        EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << c.name;
      }
    }
  }
}

// Its fastest way backward, whose last bits may be others each time.
TEST(CudnnOnGpu, EqualsTheReferenceWhereItNeedNotRepeat) {
  WEFT_NEEDS_CUDNN_ON_GPU();
  const Machine fastest = testing::gpu_machine("nondeterministic");
  EXPECT_NE(fastest.description.find(" (nondeterministic)"), std::string::npos) << fastest.description;
  for (const DType t : {DType::bf16, DType::f16}) {
    for (const testing::OpCase& c : cases(t, false)) {
      ::testing::internal::CaptureStderr();
      testing::expect_equals_reference(fastest, c);
      EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << c.name;
    }
  }
}

TEST(CudnnOnGpu, IsLeftOutWhereItIsSwitchedOff) {
  WEFT_NEEDS_CUDNN_ON_GPU();
  setenv("WEFT_CUDNN", "off", 1);
  const Machine without = testing::gpu_machine();
  unsetenv("WEFT_CUDNN");
  EXPECT_NE(without.description.find("without cuDNN (WEFT_CUDNN=off)"), std::string::npos) << without.description;
  testing::expect_equals_reference(without, cases(DType::bf16, false).front());
}

}  // namespace
}  // namespace weft
