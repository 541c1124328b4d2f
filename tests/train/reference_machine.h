// The machine of the reference backend, in fp64.
#pragma once
#include <memory>

#include "weft/ops/ref/ref_backend.h"
#include "weft/train/machine.h"

namespace weft::testing {

inline Machine reference_machine(int threads) {
  return {.description = "reference",
          .threads = threads,
          .workspace_model = std::make_shared<WorkspaceModel>(),
          .make_backend = [threads](Arena&) { return std::make_unique<RefBackend>(threads); },
          .measure_matmul_rate = [](DType) { return 0.0; },
          .measure_bandwidth = [] { return 0.0; },
          .make_library_matmuls = {}};
}

}  // namespace weft::testing
