#include "weft/nn/grouped_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using Routes = Dispatch::Routes;

// y += the products of rows with these matrices.
void add_product(Pass& p, Tensor x, const Param& w, const Routes& routes, Tensor y) {
  Scope temporaries(*p.scratch);
  Tensor more = Dispatch::alloc_rows(*p.scratch, p.precision.compute, routes, y.cols(), y.place);
  p.be.run(GroupedMatmul{.x = x, .w = w.value, .offsets = routes.offsets, .out = more});
  p.be.run(Add{.x = y, .y = more, .out = y});
}

// Which of an expert's matrices have an adapter: the same ones of every expert.
std::vector<size_t> matrices_of(const Param& weight, const std::vector<AdapterSpec::Target>& targets, int64_t experts) {
  const size_t each = targets.size() / size_t(experts), parts = weight.parts().size() / size_t(experts);
  std::vector<size_t> matrices;
  for (size_t i = 0; i < targets.size(); ++i)
    for (size_t k = 0; k < parts; ++k) {
      if (!(weight.parts()[i / each * parts + k].part_rows == targets[i].rows)) continue;
      if (i < each) matrices.push_back(k);
      WEFT_CHECK(i % each < matrices.size() && matrices[i % each] == k, "{}: experts have adapters of other matrices",
                 weight.spec().name);
    }
  WEFT_CHECK(matrices.size() == each && each * size_t(experts) == targets.size(), "{}: {} adapters for {} experts",
             weight.spec().name, targets.size(), experts);
  return matrices;
}

}  // namespace

std::string GroupedAdapter::name_of_b(const std::string& name, int64_t k) {
  return fmt::format("{}.{}.lora_B.weight", name, k);
}

std::optional<GroupedAdapter> GroupedAdapter::make(ParamStore& params, const std::string& name, const Param& of,
                                                   int64_t experts) {
  if (!params.adapter() || params.adapter()->of(of.spec().name).empty()) return {};
  return GroupedAdapter(params, name, of, experts);
}

GroupedAdapter::GroupedAdapter(ParamStore& params, const std::string& name, const Param& of, int64_t experts)
    : rank_(params.adapter()->rank),
      scale_(params.adapter()->scale),
      by_columns_(of.spec().place.tp() == Spmd::Shard1),
      dropout_(name + ".lora", params.adapter()->dropout) {
  const ParamSpec& w = of.spec();
  const std::vector<size_t> matrices = matrices_of(of, params.adapter()->of(w.name), experts);
  const auto m = int64_t(matrices.size());
  const Placement whole = w.place.on_tp(Spmd::Replicate);
  a_ = &params.add({.name = name_of_a(name),
                    .shape = {experts * m * rank_, w.shape[1]},
                    .place = by_columns_ ? w.place : whole,
                    .parts = std::vector<Part>(size_t(experts * m), Part{.size = rank_}),
                    .init = {Init::Kind::uniform, 1 / std::sqrt(double(w.shape[1]))},
                    .linear = true,
                    .is_adapter = true});
  const auto& parts = of.parts();  // those of a rank's experts are alike
  const auto mine = std::find_if(parts.begin(), parts.end(), [](const HeldPart& p) { return p.rows.count > 0; });
  if (by_columns_) first_column_ = mine->cols.first;
  for (int64_t k = 0; k < m; ++k) {
    const Part& part = w.parts[matrices[size_t(k)]];
    const HeldPart& here = mine[std::ptrdiff_t(matrices[size_t(k)])];
    Param& b = params.add({.name = name_of_b(name, k),
                           .shape = {experts * part.size, rank_},
                           .place = by_columns_ ? whole : w.place,
                           .parts = std::vector<Part>(size_t(experts), part),
                           .linear = true,
                           .is_adapter = true});
    matrices_.push_back({.b = &b, .first = here.local_row - mine->local_row, .count = here.rows.count});
  }
}

// Of all matrices, [n, m r] compute.
Tensor GroupedAdapter::narrow_rows(const Pass& p, Arena* arena, const Routes& routes, Placement place) const {
  return Dispatch::alloc_rows(*arena, p.precision.compute, routes, int64_t(matrices_.size()) * rank_, place);
}

void GroupedAdapter::drop(Pass& p, const Tensor& x, const Routes& routes, const Tensor& y) const {
  p.be.run(Dropout{.x = x,
                   .y = y,
                   .tokens = routes.numbers,
                   .dropout = dropout_.spec(p),
                   .first = first_column_,
                   .total = a_->spec().shape[1]});
}

// x with elements dropped, in scratch; or as it is where nothing is.
Tensor GroupedAdapter::dropped(Pass& p, const Tensor& x, const Routes& routes) const {
  if (!drops(p)) return x;
  const Tensor y = Dispatch::alloc_rows(*p.scratch, p.precision.compute, routes, x.cols(), x.place);
  drop(p, x, routes, y);
  return y;
}

void GroupedAdapter::forward(Pass& p, Saved& s, Tensor x, const Routes& routes, Tensor y) const {
  s.narrow = narrow_rows(p, p.till_wgrad, routes, by_columns_ ? x.place.on_tp(Spmd::Partial) : x.place);
  {
    Scope temporaries(*p.scratch);
    p.be.run(GroupedMatmul{.x = dropped(p, x, routes), .w = a_->value, .offsets = routes.offsets, .out = s.narrow});
  }
  p.be.run(Axpby{.x = s.narrow, .out = s.narrow, .a = scale_});
  for (size_t k = 0; k < matrices_.size(); ++k)
    add_product(p, of_matrix(s.narrow, k), *matrices_[k].b, routes, matrices_[k].columns(y));
}

void GroupedAdapter::dgrad(Pass& p, Saved& s, Tensor dy, const Routes& routes, Tensor dx) const {
  s.dnarrow = narrow_rows(p, p.dgrad_till_wgrad, routes, by_columns_ ? dy.place : dy.place.on_tp(Spmd::Partial));
  for (size_t k = 0; k < matrices_.size(); ++k)
    p.be.run(GroupedMatmul{.x = matrices_[k].columns(dy),
                           .w = matrices_[k].b->value,
                           .offsets = routes.offsets,
                           .out = of_matrix(s.dnarrow, k),
                           .turned = true});
  p.be.run(Axpby{.x = s.dnarrow, .out = s.dnarrow, .a = scale_});
  Scope temporaries(*p.scratch);
  const Tensor through = Dispatch::alloc_rows(*p.scratch, p.precision.compute, routes, dx.cols(), dx.place);
  p.be.run(GroupedMatmul{.x = s.dnarrow, .w = a_->value, .offsets = routes.offsets, .out = through, .turned = true});
  if (drops(p)) drop(p, through, routes, through);
  p.be.run(Add{.x = dx, .y = through, .out = dx});
}

void GroupedAdapter::wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy, const Routes& routes) const {
  {
    Scope temporaries(*p.scratch);
    p.be.run(GroupedWeightGrad{.dy = s.dnarrow,
                               .x = dropped(p, x, routes),
                               .offsets = routes.offsets,
                               .dw = a_->grad,
                               .accumulate = a_->accumulates()});
  }
  for (size_t k = 0; k < matrices_.size(); ++k)
    p.be.run(GroupedWeightGrad{.dy = matrices_[k].columns(dy),
                               .x = of_matrix(s.narrow, k),
                               .offsets = routes.offsets,
                               .dw = matrices_[k].b->grad,
                               .accumulate = matrices_[k].b->accumulates()});
}

}  // namespace weft
