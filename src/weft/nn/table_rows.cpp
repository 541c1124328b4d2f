#include "weft/nn/table_rows.h"

#include <utility>

namespace weft {

void add_table_rows(Pass& p, Param& table, Tensor ids, Tensor rows) {
  if (!table.learns()) return;
  if (!table.accumulates()) p.be.run(Zero{.x = table.grad});
  p.be.run(EmbedBackward{.ids = ids, .dy = rows, .dtable = table.grad, .first = table.parts()[0].rows.first});
}

TableRows::TableRows(Param& table, double scale, const LayerPlan& plan, std::optional<TableAdapter> adapter)
    : table_(&table),
      leave_(Axis::tp, plan.cut_vocabulary ? Spmd::Partial : plan.stream, plan.stream),
      scale_(scale),
      adapter_(std::move(adapter)) {}

void TableRows::forward(Pass& p, Saved& s, Tensor ids, Tensor x) const {
  Scope temporaries(*p.scratch);
  Tensor rows = leave_.operand_for(p.mesh, x, *p.scratch);
  p.be.run(Embed{.ids = ids, .table = table_->value, .out = rows, .first = table_->parts()[0].rows.first});
  if (adapter_ && p.adapters) adapter_->forward(p, s, ids, rows);
  leave_.forward_into(p.mesh, rows, x);
  scale_.forward(p, x);
}

void TableRows::wgrad(Pass& p, const Saved& s, Tensor ids, Tensor dx) const {
  if (!table_->learns() && !adapter_) return;
  Scope temporaries(*p.scratch);
  const Tensor drows = leave_.backward(p.mesh, scale_.backward(p, dx, *p.scratch), *p.scratch);
  add_table_rows(p, *table_, ids, drows);
  if (adapter_) adapter_->wgrad(p, s, ids, drows);
}

}  // namespace weft
