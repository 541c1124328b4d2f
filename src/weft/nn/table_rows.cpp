#include "weft/nn/table_rows.h"

namespace weft {

void add_table_rows(Pass& p, Param& table, Tensor ids, Tensor rows) {
  if (!table.learns()) return;
  if (!table.accumulates()) p.be.run(Zero{.x = table.grad});
  p.be.run(EmbedBackward{.ids = ids, .dy = rows, .dtable = table.grad, .first = table.parts()[0].rows.first});
}

TableRows::TableRows(Param& table, double scale, const LayerPlan& plan)
    : table_(&table), leave_(Axis::tp, plan.cut_vocabulary ? Spmd::Partial : plan.stream, plan.stream), scale_(scale) {}

void TableRows::forward(Pass& p, Tensor ids, Tensor x) const {
  Scope temporaries(*p.scratch);
  Tensor rows = leave_.operand_for(p.mesh, x, *p.scratch);
  p.be.run(Embed{.ids = ids, .table = table_->value, .out = rows, .first = table_->parts()[0].rows.first});
  leave_.forward_into(p.mesh, rows, x);
  scale_.forward(p, x);
}

void TableRows::wgrad(Pass& p, Tensor ids, Tensor dx) const {
  if (!table_->learns()) return;
  Scope temporaries(*p.scratch);
  const Tensor drows = scale_.backward(p, dx, *p.scratch);
  add_table_rows(p, *table_, ids, leave_.backward(p.mesh, drows, *p.scratch));
}

}  // namespace weft
