// A backend that computes nothing: it judges every op by the rules, and counts.
#pragma once
#include "weft/ops/backend.h"
#include "weft/ops/region_path.h"

namespace weft {

// Touches no data: tensors may have none. Throws PlacementError or CheckFailure for an op that no backend could run.
class DryBackend final : public Backend {
 public:
  // The model says what temporary memory the real backend will want; it is borrowed.
  explicit DryBackend(const WorkspaceModel& workspace);
  void run(const AnyOp& op) override;
  void enter(std::string_view region) override { path_.enter(region); }
  void leave() override { path_.leave(); }

  double flops() const { return flops_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }  // the largest that an op needs

 private:
  const WorkspaceModel& workspace_;
  RegionPath path_;
  double flops_ = 0;
  int64_t workspace_bytes_ = 0;
};

}  // namespace weft
