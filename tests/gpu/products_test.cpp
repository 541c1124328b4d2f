// Matrix products while faster ways are searched, proven and taken, and after they are read from a file.
#include "gpu/gpu.h"
#include "ops/cases_matrix.h"
#include "ops/machine_cases.h"
#include "support.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

testing::OpCases products(DType t) {
  testing::OpCases all;
  for (const testing::ProductCase& c :
       std::vector<testing::ProductCase>{{.m = 2048, .n = 1024, .k = 512, .trans_b = true, .bias = true},
                                         {.m = 2048, .n = 512, .k = 1024},
                                         {.m = 1024, .n = 1536, .k = 2048, .trans_a = true, .accumulate = true},
                                         {.m = 1024, .n = 512, .k = 2048, .trans_a = true},
                                         {.m = 512, .n = 8000, .k = 512, .trans_b = true, .stat_out = true}})
    testing::add_case(all, testing::Variant{t}, testing::name_of_case(c),
                      [c](testing::Operands& o) { return testing::make_product(o, c); });
  return all;
}

// More calls than a search has.
void expect_equal_and_the_same_each_time(const Machine& machine, const testing::OpCase& c,
                                         std::vector<std::byte>& bits) {
  testing::TrialOn on(machine, c);
  for (int call = 0; call < 5; ++call) {
    on.trial->reset();
    on.trial->run(*on.backend);
    if (bits.empty()) bits = on.trial->outputs();
    EXPECT_EQ(on.trial->outputs(), bits) << c.name << ", call " << call;
  }
  EXPECT_EQ(on.trial->trespass(), "") << c.name;
}

TEST(ProductsOnGpu, HaveTheSameBitsBeforeWhileAndAfterAFasterWayIsFound) {
  WEFT_NEEDS_GPU();
  const testing::TempDir dir;
  setenv("WEFT_CUDA_CACHE", dir.path().c_str(), 1);
  ::testing::internal::CaptureStderr();
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
    for (const testing::OpCase& c : products(t)) {
      std::vector<std::byte> bits;
      expect_equal_and_the_same_each_time(testing::gpu_machine(), c, bits);
      expect_equal_and_the_same_each_time(testing::gpu_machine(), c, bits);  // by what the first one kept
    }
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.find("WEFT_CUDA_CACHE"), std::string::npos) << told;
  setenv("WEFT_CUDA_CACHE", "off", 1);
  if (testing::gpu_backend() == "cuda") {
    EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1) << "of all products in one file";
  }
}

TEST(ProductsOnGpu, AFileOfNoUseChangesNothing) {
  WEFT_NEEDS_GPU();
  if (testing::gpu_backend() != "cuda") GTEST_SKIP() << "there is no file";
  const testing::TempDir dir;
  setenv("WEFT_CUDA_CACHE", dir.path().c_str(), 1);
  std::vector<std::byte> bits;
  const testing::OpCase c = products(DType::bf16).front();
  expect_equal_and_the_same_each_time(testing::gpu_machine(), c, bits);
  for (const fs::directory_entry& file : fs::directory_iterator(dir.path())) testing::spill(file.path(), "{");
  ::testing::internal::CaptureStderr();
  expect_equal_and_the_same_each_time(testing::gpu_machine(), c, bits);
  const std::string told = ::testing::internal::GetCapturedStderr();
  setenv("WEFT_CUDA_CACHE", "off", 1);
  const size_t at = told.find("not valid JSON");
  ASSERT_NE(at, std::string::npos) << told;
  EXPECT_EQ(told.find("WEFT_CUDA_CACHE", told.find("WEFT_CUDA_CACHE", at) + 1), std::string::npos) << "said twice";
}

}  // namespace
}  // namespace weft
