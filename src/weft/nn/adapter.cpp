#include "weft/nn/adapter.h"

#include <cmath>

namespace weft {
namespace {

// The parts of a weight's rows that a target has, whole ones.
std::vector<size_t> parts_of(const Param& weight, const AdapterSpec::Target& target) {
  std::vector<size_t> parts;
  int64_t rows = 0;
  for (size_t i = 0; i < weight.parts().size(); ++i) {
    const Run part = weight.parts()[i].part_rows;
    if (part.first < target.rows.first || part.end() > target.rows.end()) continue;
    parts.push_back(i);
    rows += part.count;
  }
  WEFT_CHECK(rows == target.rows.count, "an adapter of rows {} .. {} of {}, which is made of other parts",
             target.rows.first, target.rows.end(), weight.spec().name);
  return parts;
}

}  // namespace

std::optional<Adapter> Adapter::make(ParamStore& params, const std::string& name, const Param& of) {
  if (!params.adapter()) return {};
  const AdapterSpec& adapter = *params.adapter();
  const std::vector<AdapterSpec::Target> targets = adapter.of(of.spec().name);
  if (targets.empty()) return {};
  const ParamSpec& w = of.spec();
  const bool by_columns = w.place.tp() == Spmd::Shard1;
  const Placement whole = w.place.on_tp(is_cut(w.place.tp()) ? Spmd::Replicate : w.place.tp());
  std::vector<Part> parts;
  int64_t rows = 0;
  for (const AdapterSpec::Target& t : targets) {
    for (const size_t i : parts_of(of, t))
      if (!by_columns) parts.push_back(w.parts.empty() ? Part{.size = t.rows.count} : w.parts[i]);
    rows += t.rows.count;
  }
  Param& a = params.add({.name = name + ".lora_A.weight",
                         .shape = {int64_t(targets.size()) * adapter.rank, w.shape[1]},
                         .place = by_columns ? w.place : whole,
                         .parts = by_columns ? w.parts : std::vector<Part>(targets.size(), Part{.size = adapter.rank}),
                         .init = {Init::Kind::uniform, 1 / std::sqrt(double(w.shape[1]))},
                         .linear = true,
                         .is_adapter = true});
  Param& b = params.add({.name = name + ".lora_B.weight",
                         .shape = {rows, adapter.rank},
                         .place = by_columns ? whole : w.place,
                         .parts = parts,
                         .linear = true,
                         .is_adapter = true});
  return Adapter(a, b, adapter, name, of);
}

Adapter::Adapter(Param& a, Param& b, const AdapterSpec& spec, const std::string& name, const Param& of)
    : a_(&a), b_(&b), rank_(spec.rank), scale_(spec.scale), dropout_(name + ".lora", spec.dropout) {
  if (of.spec().place.tp() == Spmd::Shard1) first_column_ = of.parts()[0].cols.first;
  bool some_are_cut = false;
  for (const HeldPart& part : of.parts()) some_are_cut = some_are_cut || part.held == Spmd::Shard0;
  const std::vector<AdapterSpec::Target> targets = spec.of(of.spec().name);
  size_t next = 0;  // part of B
  for (size_t t = 0; t < targets.size(); ++t)
    for (const size_t i : parts_of(of, targets[t])) {
      const HeldPart &in_w = of.parts()[i], &in_b = b.parts()[next++];
      rows_.push_back({.first = in_w.local_row,
                       .count = in_w.rows.count,
                       .first_b = in_b.local_row,
                       .target = int64_t(t),
                       .held = in_b.held,
                       .everywhere = some_are_cut && in_w.held != Spmd::Shard0});
    }
}

// Columns of y; where W is cut, but these rows are not, y is held otherwise than it is said to be (Linear).
Tensor Adapter::Rows::columns(const Tensor& y, Spmd where_everywhere) const {
  return y.slice_cols(first, count).placed(everywhere ? y.place.on_tp(where_everywhere) : y.place);
}

Tensor Adapter::Rows::of(const Tensor& b, Spmd on_tp) const {
  return b.slice_rows(first_b, count).placed(b.place.on_tp(on_tp));
}

void Adapter::drop(Pass& p, const Tensor& x, const Tensor& y) const {
  p.be.run(Dropout{.x = x,
                   .y = y,
                   .tokens = x.place.tp() == Spmd::Shard0 ? p.batch.stream_tokens() : p.batch.tokens,
                   .dropout = dropout_.spec(p),
                   .first = first_column_,
                   .total = a_->spec().shape[1]});
}

// x, with elements dropped in y, or as it is where nothing is dropped.
Tensor Adapter::dropped(Pass& p, const Tensor& x, Tensor y) const {
  if (!y) return x;
  drop(p, x, y);
  return y;
}

// Room for it in scratch.
Tensor Adapter::room_for_dropped(Pass& p, const Tensor& x) const {
  return drops(p) ? p.compute(p.scratch, {x.rows(), x.cols()}, x.place) : Tensor{};
}

bool Adapter::may_join(const Pass& p) const { return p.precision.compute == p.precision.stat && !drops(p); }

bool Adapter::forward_joins(const Pass& p, int64_t tokens) const { return may_join(p) && tokens > a_->shape()[1]; }

bool Adapter::dgrad_joins(const Pass& p, int64_t tokens) const {
  const int64_t targets = a_->shape()[0] / rank_;
  return may_join(p) && tokens * targets > b_->shape()[0];
}

void Adapter::forward(Pass& p, Saved& s, Tensor x, Tensor y) const {
  narrow(p, s, x);
  again(p, s, y);
}

void Adapter::narrow(Pass& p, Saved& s, Tensor x) const {
  const bool is_sum = a_->spec().place.tp() == Spmd::Shard1;
  s.narrow = p.compute(p.till_wgrad, {x.rows(), a_->shape()[0]}, is_sum ? x.place.on_tp(Spmd::Partial) : x.place);
  {
    Scope temporaries(*p.scratch);
    p.be.run(Matmul{.a = dropped(p, x, room_for_dropped(p, x)), .b = a_->value, .out = s.narrow, .trans_b = true});
  }
  p.be.run(Axpby{.x = s.narrow, .out = s.narrow, .a = scale_});
}

void Adapter::again(Pass& p, const Saved& s, Tensor y) const {
  for (const Rows& rows : rows_)
    p.be.run(Matmul{.a = of_target(s.narrow, rows),
                    .b = rows.of(b_->value, rows.held),
                    .out = rows.columns(y, Spmd::Replicate),
                    .trans_b = true,
                    .accumulate = true});
}

void Adapter::dnarrow(Pass& p, Saved& s, Tensor dy) const {
  const bool is_sum = b_->spec().place.tp() == Spmd::Shard0;
  s.dnarrow =
      p.compute(p.dgrad_till_wgrad, {dy.rows(), a_->shape()[0]}, is_sum ? dy.place.on_tp(Spmd::Partial) : dy.place);
  for (size_t i = 0; i < rows_.size(); ++i)
    p.be.run(Matmul{.a = rows_[i].columns(dy, Spmd::Partial),
                    .b = rows_[i].of(b_->value, rows_[i].held),
                    .out = of_target(s.dnarrow, rows_[i]),
                    .accumulate = i > 0 && rows_[i - 1].target == rows_[i].target});
  p.be.run(Axpby{.x = s.dnarrow, .out = s.dnarrow, .a = scale_});
}

void Adapter::dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const {
  dnarrow(p, s, dy);
  Scope temporaries(*p.scratch);
  const Tensor through = room_for_dropped(p, dx);
  p.be.run(Matmul{.a = s.dnarrow, .b = a_->value, .out = through ? through : dx, .accumulate = !through});
  if (through) p.be.run(Add{.x = dx, .y = dropped(p, through, through), .out = dx});
}

void Adapter::add_to_matrix(Pass& p, Tensor w) const {
  Scope temporaries(*p.scratch);
  const Tensor a = p.compute(p.scratch, a_->shape(), a_->spec().place);
  p.be.run(Axpby{.x = a_->value, .out = a, .a = scale_});
  const bool by_columns = a_->spec().place.tp() == Spmd::Shard1;
  for (const Rows& rows : rows_)
    p.be.run(Matmul{.a = rows.of(b_->value, rows.held),
                    .b = a.slice_rows(rows.target * rank_, rank_),
                    .out = w.slice_rows(rows.first, rows.count).placed(by_columns ? w.place : w.place.on_tp(rows.held)),
                    .accumulate = true});
}

void Adapter::wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy) const {
  const bool adds_a = a_->accumulates(), adds_b = b_->accumulates();
  {
    Scope temporaries(*p.scratch);
    const Tensor seen = dropped(p, x, room_for_dropped(p, x));
    p.be.run(Matmul{.a = s.dnarrow, .b = seen, .out = a_->grad, .trans_a = true, .accumulate = adds_a});
  }
  for (const Rows& rows : rows_)
    p.be.run(Matmul{.a = rows.columns(dy, Spmd::Partial),
                    .b = of_target(s.narrow, rows),
                    .out = rows.of(b_->grad, dual(rows.held)),
                    .trans_a = true,
                    .accumulate = adds_b});
}

}  // namespace weft
