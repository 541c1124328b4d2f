// A backend that computes nothing: it judges every op by the rules, and counts.
#pragma once
#include <algorithm>

#include "weft/ops/backend.h"
#include "weft/ops/rules.h"

namespace weft {

// Floating-point operations that an op's result needs: 2 m n k of a product; of attention, 4 per pair of query and key
// and element of a head forward, 8 backward (what flash attention computes again is not counted). 0 of others.
double flops_of(const Matmul& op);
double flops_of(const Attention& op);
double flops_of(const AttentionBackward& op);
template <class Op>
double flops_of(const Op&) {
  return 0;
}

// Throws PlacementError or CheckFailure for an op that no backend could run.
class DryBackend final : public UniformBackend<DryBackend> {
 public:
  explicit DryBackend(const WorkspaceModel& workspace) : workspace_(workspace) {}

  template <class Op>
  void apply(const Op& op) {
    rules::check(op);
    ++num_ops_;
    flops_ += flops_of(op);
    workspace_bytes_ = std::max(workspace_bytes_, workspace_.of(op));
  }

  int64_t num_ops() const { return num_ops_; }
  double flops() const { return flops_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }  // the largest that an op needs

 private:
  const WorkspaceModel& workspace_;
  int64_t num_ops_ = 0, workspace_bytes_ = 0;
  double flops_ = 0;
};

}  // namespace weft
