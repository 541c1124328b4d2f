// A backend that computes nothing: it judges every op by the rules, and counts.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "weft/ops/backend.h"
#include "weft/ops/cost.h"
#include "weft/ops/region_path.h"
#include "weft/ops/rules.h"

namespace weft {

struct Tally {
  int64_t num_ops = 0;
  OpCost cost;
};

// Touches no data: tensors may have none. Throws PlacementError or CheckFailure for an op that no backend could run.
class DryBackend final : public UniformBackend<DryBackend> {
 public:
  using Tallies = std::map<std::string, Tally, std::less<>>;
  // The model says what temporary memory the real backend will want; it is borrowed.
  explicit DryBackend(const WorkspaceModel& workspace) : workspace_(workspace) {}

  template <class Op>
  void apply(const Op& op) {
    try {
      rules::check(op);
    } catch (const PlacementError& e) { throw PlacementError(path_.prefix() + e.what()); }
    count(Op::kName, cost_of(op), workspace_.of(op));
  }
  void enter(std::string_view region) override { path_.enter(region); }
  void leave() override { path_.leave(); }

  int64_t num_ops() const { return total_.num_ops; }
  double flops() const { return total_.cost.flops; }
  const Tally& total() const { return total_; }
  const Tallies& by_op() const { return by_op_; }
  const Tallies& by_region() const { return by_region_; }            // the outermost; "" outside of all
  int64_t workspace_bytes() const { return workspace_bytes_; }       // the largest that an op needs
  const std::string& workspace_op() const { return workspace_op_; }  // that op, where it was

 private:
  void count(std::string_view op, const OpCost& cost, int64_t workspace_bytes);

  const WorkspaceModel& workspace_;
  RegionPath path_;
  Tally total_;
  Tallies by_op_, by_region_;
  int64_t workspace_bytes_ = 0;
  std::string workspace_op_;
};

}  // namespace weft
