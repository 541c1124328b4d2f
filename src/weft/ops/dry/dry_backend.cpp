#include "weft/ops/dry/dry_backend.h"

namespace weft {
namespace {

void add(Tally& to, const OpCost& cost) {
  ++to.num_ops;
  to.cost += cost;
}
void add(DryBackend::Tallies& to, std::string_view name, const OpCost& cost) {
  auto at = to.find(name);
  if (at == to.end()) at = to.emplace(name, Tally{}).first;
  add(at->second, cost);
}

}  // namespace

void DryBackend::count(std::string_view op, const OpCost& cost, int64_t workspace_bytes) {
  add(total_, cost);
  add(by_op_, op, cost);
  add(by_region_, path_.outermost(), cost);
  if (workspace_bytes <= workspace_bytes_) return;
  workspace_bytes_ = workspace_bytes;
  workspace_op_ = path_.prefix() + std::string(op);
}

}  // namespace weft
