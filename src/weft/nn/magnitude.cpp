#include "weft/nn/magnitude.h"

#include <algorithm>

namespace weft {
namespace {

// A vector as one row, whose columns are cut where its elements are.
Tensor as_row(const Tensor& v) {
  const Spmd held = v.place.tp();
  return v.reshape({1, v.elements()}).placed(v.place.on_tp(held == Spmd::Shard0 ? Spmd::Shard1 : held));
}

}  // namespace

std::optional<Magnitude> Magnitude::make(ParamStore& params, const std::string& name, const MatrixNumbers& of,
                                         const Adapter& adapter) {
  if (!params.adapter()->magnitudes) return {};
  const ParamSpec& b = adapter.b().spec();
  Param& m = params.add({.name = name + std::string(kSuffix),
                         .shape = {b.shape[0]},
                         .place = b.place,
                         .parts = b.parts,
                         .is_adapter = true,
                         .in_stat = true});
  return Magnitude(m, of, adapter);
}

Magnitude::Magnitude(Param& m, const MatrixNumbers& of, const Adapter& adapter)
    : m_(&m), w_(of), adapter_(adapter), join_(Axis::tp, Spmd::Partial, Spmd::Invariant) {
  const std::vector<Adapter::Rows>& targets = adapter_.rows();
  const auto is_cut = [](const HeldPart& part) { return part.held == Spmd::Shard0; };
  const std::vector<HeldPart>& parts = w_.weight().parts();
  const bool some_are_cut = std::any_of(parts.begin(), parts.end(), is_cut);
  for (size_t i = 0; i < parts.size(); ++i) {
    const HeldPart& part = parts[i];
    const auto found = std::find_if(targets.begin(), targets.end(),
                                    [&](const Adapter::Rows& rows) { return rows.first == part.local_row; });
    if (found != targets.end())
      columns_.push_back({*found, true, i});
    else
      columns_.push_back({{.first = part.local_row,
                           .count = part.rows.count,
                           .first_b = 0,
                           .target = 0,
                           .held = part.held,
                           .everywhere = some_are_cut && !is_cut(part)},
                          false,
                          i});
  }
}

void Magnitude::forward(Pass& p, Saved& s, Tensor y) const {
  const int64_t n = m_->shape()[0];
  s.squares = squares(p, *p.till_dgrad, true);
  s.factor = p.stat(p.till_wgrad, {n}, m_->spec().place);
  p.be.run(ScaleColumns{.x = as_row(m_->value), .squares = s.squares, .y = as_row(s.factor)});
  again(p, s, y);
}

Tensor Magnitude::factor(Pass& p) const {
  const Tensor factor = p.stat(p.scratch, {m_->shape()[0]}, m_->spec().place);
  Scope temporaries(*p.scratch);
  p.be.run(ScaleColumns{.x = as_row(m_->value), .squares = squares(p, *p.scratch, true), .y = as_row(factor)});
  return factor;
}

void Magnitude::again(Pass& p, const Saved& s, Tensor y) const {
  for (const Columns& c : columns_) {
    const Tensor from = c.at.columns(s.z, Spmd::Replicate), to = c.at.columns(y, Spmd::Replicate);
    if (c.is_target)
      p.be.run(ScaleColumns{.x = from, .w = c.at.of(s.factor, c.at.held), .y = to});
    else
      p.be.run(Copy{.from = from, .to = to});
  }
}

Tensor Magnitude::dgrad(Pass& p, Saved& s, Tensor dy) const {
  s.dm = p.stat(p.dgrad_till_wgrad, m_->shape(), m_->spec().place.dual());
  for (const Columns& c : columns_)
    if (c.is_target)
      p.be.run(BiasGrad{.dy = c.at.columns(dy, Spmd::Partial),
                        .db = c.at.of(s.dm, dual(c.at.held)),
                        .x = c.at.columns(s.z, Spmd::Replicate)});
  p.be.run(ScaleColumns{.x = as_row(s.dm), .squares = s.squares, .y = as_row(s.dm)});
  return scaled(p, s, dy);
}

Tensor Magnitude::wgrad(Pass& p, const Saved& s, Tensor dy) const {
  add_gradient(p, *m_, s.dm);
  return scaled(p, s, dy);
}

// dz
Tensor Magnitude::scaled(Pass& p, const Saved& s, Tensor dy) const {
  const Tensor dz = p.compute(p.scratch, {dy.rows(), dy.cols()}, dy.place);
  for (const Columns& c : columns_) {
    const Tensor from = c.at.columns(dy, Spmd::Partial), to = c.at.columns(dz, Spmd::Partial);
    if (c.is_target)
      p.be.run(ScaleColumns{.x = from, .w = c.at.of(s.factor, c.at.held), .y = to});
    else
      p.be.run(Copy{.from = from, .to = to});
  }
  return dz;
}

Tensor Magnitude::squares_of_base(Pass& p, Arena& out) const { return squares(p, out, false); }

// Every rank computes them alike, or of its columns: as constants, they are held like m.
Tensor Magnitude::squares(Pass& p, Arena& out, bool with_adapter) const {
  const int64_t n = m_->shape()[0];
  const bool is_sum = w_.weight().spec().place.tp() == Spmd::Shard1;
  const Placement place = is_sum ? m_->spec().place.on_tp(Spmd::Partial) : m_->spec().place;
  Tensor all = p.stat(&out, {n, 1}, place);
  for (const Columns& c : columns_) {
    if (!c.is_target) continue;
    const Adapter::Rows& rows = c.at;
    Scope temporaries(*p.scratch);
    const Tensor w = w_.part(p, c.part);
    const Tensor here = all.slice_rows(rows.first_b, rows.count).placed(is_sum ? place : place.on_tp(rows.held));
    p.be.run(RowDots{.x = w, .y = w, .out = here});
    if (with_adapter) add_adapter(p, w, rows, here);
  }
  if (is_sum) all = join_.forward(p.mesh, all, out);
  return all.reshape({n}).placed(m_->spec().place);
}

// squares += 2 scale W B A + scale^2 (B A)^2 of each row, without a matrix as large as W.
void Magnitude::add_adapter(Pass& p, const Tensor& w, const Adapter::Rows& rows, Tensor squares) const {
  Scope temporaries(*p.scratch);
  const Tensor a = adapter_.a_of(rows), b_narrow = rows.of(adapter_.b().value, rows.held);
  const int64_t r = a.rows();
  const Spmd held = squares.place.tp();
  const Tensor b = p.stat(p.scratch, {rows.count, r}, b_narrow.place);
  const Tensor sums = p.stat(p.scratch, {rows.count, r}, squares.place);  // of each row's dots
  const Tensor aa = p.stat(p.scratch, {r, r}, a.place.on_tp(held == Spmd::Partial ? held : a.place.tp()));
  const Tensor dots = p.stat(p.scratch, {rows.count, 1}, squares.place);
  p.be.run(Copy{.from = b_narrow, .to = b});
  p.be.run(Matmul{.a = w, .b = a, .out = sums, .trans_b = true});
  p.be.run(Matmul{.a = a, .b = a, .out = aa, .trans_b = true});
  p.be.run(Axpby{.x = sums, .out = sums, .a = 2 * adapter_.scale()});
  p.be.run(Axpby{.x = aa, .out = aa, .a = adapter_.scale() * adapter_.scale()});
  p.be.run(Matmul{.a = b, .b = aa, .out = sums, .accumulate = true});
  p.be.run(RowDots{.x = b, .y = sums, .out = dots});
  p.be.run(Add{.x = squares, .y = dots, .out = squares});
}

}  // namespace weft
