#include <fcntl.h>
#include <unistd.h>

#include "train/golden.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

Machine ref_machine() {
  return {.description = "reference",
          .threads = 2,
          .workspace_model = std::make_shared<WorkspaceModel>(),
          .make_backend = [](Arena&) { return std::make_unique<RefBackend>(2); },
          .measure_matmul_rate = [](DType) { return 0.0; },
          .measure_bandwidth = [] { return 0.0; },
          .make_library_matmuls = {}};
}

// The traces are f32 themselves: 2e-7 in loss and 2e-6 in gradient norm is how far they are from fp64.
TEST(GoldenRefSlow, EveryDenseCaseInFp64) {
  for (const std::string& name : testing::kGoldenCases) {
    testing::expect_golden(name, ref_machine(), {"run.backend=ref", "train.micro_batch_size=4"},
                           {.loss = 4e-7, .grad_norm = 4e-6, .tensor_norm = 2e-5});
  }
}

TEST(GoldenRefSlow, EveryCaseWithExpertsInFp64) {
  for (const std::string& name : testing::kExpertCases)
    testing::expect_golden(name, ref_machine(), {"run.backend=ref", "train.micro_batch_size=4"},
                           testing::expert_tolerance(name));
}

}  // namespace
}  // namespace weft
