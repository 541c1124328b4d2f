#include "weft/nn/products_by_owner.h"

namespace weft {
namespace {

Tensor as_matrix(const Tensor& w) { return w.shape.rank() == 1 ? w.reshape({w.elements(), 1}) : w; }

}  // namespace

void multiply_by_owner(Pass& p, const Dispatch::Routes& routes, const Param& w, const Tensor& mine, const Tensor& x,
                       const Tensor& y) {
  if (routes.owned.empty()) {
    p.be.run(GroupedMatmul{.x = x, .w = as_matrix(mine), .offsets = routes.offsets, .out = y});
    return;
  }
  WEFT_CHECK(!w.spec().in_codes() && (x.data == nullptr || w.of_ranks.size() == routes.owned.size()),
             "{}: weights of {} ranks for the rows of {}", w.spec().name, w.of_ranks.size(), routes.owned.size());
  for (size_t rank = 0; rank < routes.owned.size(); ++rank) {
    const auto& [rows, offsets] = routes.owned[rank];
    if (rows.count == 0) continue;
    p.be.run(GroupedMatmul{.x = x.slice_rows(rows.first, rows.count),
                           .w = as_matrix(w.of_ranks.empty() ? mine : w.of_ranks[rank]),
                           .offsets = offsets,
                           .out = y.slice_rows(rows.first, rows.count)});
  }
}

}  // namespace weft
