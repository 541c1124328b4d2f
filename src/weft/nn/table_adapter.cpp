#include "weft/nn/table_adapter.h"

#include "weft/nn/table_rows.h"

namespace weft {

std::optional<TableAdapter> TableAdapter::make(ParamStore& params, const Param& table) {
  if (!params.adapter()) return {};
  const AdapterSpec& adapter = *params.adapter();
  const ParamSpec& w = table.spec();
  if (adapter.of(w.name).empty()) return {};
  const std::string product = w.name.substr(0, w.name.rfind('.'));
  Param& a = params.add({.name = product + ".lora_A.weight",
                         .shape = {w.shape[0], adapter.rank},
                         .place = w.place,
                         .init = {Init::Kind::zeros},
                         .is_adapter = true});
  Param& b = params.add({.name = product + ".lora_B.weight",
                         .shape = {w.shape[1], adapter.rank},
                         .place = w.place.on_tp(is_cut(w.place.tp()) ? Spmd::Replicate : w.place.tp()),
                         .init = {Init::Kind::normal, 1},
                         .linear = true,
                         .is_adapter = true});
  return TableAdapter(a, b, adapter.scale);
}

void TableAdapter::forward(Pass& p, Saved& s, Tensor ids, Tensor rows) const {
  s.narrow = p.compute(p.till_wgrad, {rows.rows(), a_->shape()[1]}, rows.place);
  s.b = p.compute(p.till_wgrad, b_->shape(), b_->spec().place);
  p.be.run(Embed{.ids = ids, .table = a_->value, .out = s.narrow, .first = a_->parts()[0].rows.first});
  p.be.run(Axpby{.x = s.narrow, .out = s.narrow, .a = scale_});
  p.be.run(Copy{.from = b_->value, .to = s.b});
  p.be.run(Matmul{.a = s.narrow, .b = s.b, .out = rows, .trans_b = true, .accumulate = true});
}

void TableAdapter::wgrad(Pass& p, const Saved& s, Tensor ids, Tensor drows) const {
  Scope temporaries(*p.scratch);
  const Tensor dnarrow = p.compute(p.scratch, {drows.rows(), s.b.cols()}, drows.place);
  p.be.run(Matmul{.a = drows, .b = s.b, .out = dnarrow});
  p.be.run(Axpby{.x = dnarrow, .out = dnarrow, .a = scale_});
  add_table_rows(p, *a_, ids, dnarrow);
  p.be.run(Matmul{.a = drows, .b = s.narrow, .out = b_->grad, .trans_a = true, .accumulate = b_->accumulates()});
}

}  // namespace weft
