#include "weft/ops/dry/dry_backend.h"

#include <algorithm>

namespace weft {

DryBackend::DryBackend(const WorkspaceModel& workspace) : workspace_(workspace) {}

void DryBackend::run(const AnyOp& op) {
  try {
    op.check();
  } catch (const PlacementError& e) { throw PlacementError(path_.prefix() + e.what()); }
  flops_ += op.flops();
  workspace_bytes_ = std::max(workspace_bytes_, op.workspace_bytes(workspace_));
}

}  // namespace weft
