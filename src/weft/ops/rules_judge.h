// The words in which rules are written. Private to rules_*.cpp.
#pragma once
#include <initializer_list>
#include <string>

#include "weft/ops/rules.h"

namespace weft::rules {

constexpr bool is_compute(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16 || t == DType::f64; }
constexpr DType stat_of(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

// How a whole weight is held beside a stream held so: ranks that do equal work hold it Invariant.
constexpr Spmd whole_beside(Spmd stream) {
  return stream == Spmd::Invariant || stream == Spmd::None ? stream : Spmd::Replicate;
}
// A vector of columns (a bias) beside a matrix held so: cut where the columns are.
constexpr Spmd columns_beside(Spmd matrix) { return matrix == Spmd::Shard1 ? Spmd::Shard0 : whole_beside(matrix); }

// Judges one op. A field is passed as the op's own member, from whose address its name is known.
template <class Op>
class Judge {
 public:
  using Tensors = std::initializer_list<const Tensor*>;
  explicit Judge(const Op& op) : op_(op) {}

  // Shapes and dtypes.
  void that(const Tensor& t, bool holds, std::string_view what) const {
    WEFT_CHECK(holds, "{}.{}: {}.{}", Op::kName, name_of_field(t), what, operands());
  }
  void exist(Tensors all) const {
    for (const Tensor* t : all) that(*t, bool(*t), "is missing");
  }
  void compute(const Tensor& t) const { that(t, t && is_compute(t.dtype), "should be f32, bf16, f16 or f64"); }
  void dtype(const Tensor& t, DType d) const {
    if (t.dtype != d) that(t, false, fmt::format("should be {}", name_of(d)));
  }
  // A tensor of this size and dtype, with rows apart or not.
  void matrix(const Tensor& t, int64_t rows, int64_t cols, DType d) const {
    if (!t || t.rows() != rows || t.cols() != cols) that(t, false, fmt::format("should be [{}, {}]", rows, cols));
    that(t, t.rows() <= 1 || t.row_stride >= t.cols(), "its rows overlap");
    dtype(t, d);
  }
  // Those that exist are like another: also in that they are vectors, or that they are matrices.
  void like(const Tensor& first, Tensors others) const {
    for (const Tensor* t : others) {
      if (!*t) continue;
      matrix(*t, first.rows(), first.cols(), first.dtype);
      if ((t->shape.rank() == 1) != (first.shape.rank() == 1)) that(*t, false, "should be a vector where another is");
    }
  }
  void vector(const Tensor& t, int64_t n, DType d) const {
    if (!t || t.elements() != n || !t.contiguous()) that(t, false, fmt::format("should be [{}], contiguous", n));
    dtype(t, d);
  }
  void vectors_like(const Tensor& first, Tensors others) const {
    for (const Tensor* t : others)
      if (*t) vector(*t, first.elements(), first.dtype);
  }

  // Placements.
  [[noreturn]] void misplaced(const Tensor& t, Axis axis, std::string_view why) const {
    throw PlacementError(fmt::format("{}.{} is held {} on {}: {}.{}", Op::kName, name_of_field(t),
                                     name_of(t.place[axis]), name_of(axis), why, operands()));
  }
  template <class Allowed>  // (Axis) -> bool
  void held_where(const Tensor& t, Allowed allowed, std::string_view why) const {
    for (int a = 0; a < kAxes; ++a)
      if (!allowed(Axis(a))) misplaced(t, Axis(a), why);
  }
  template <class Expected>  // (Axis) -> Spmd
  void held(const Tensor& t, Expected expected, std::string_view why) const {
    for (int a = 0; a < kAxes && t; ++a) {
      const Spmd want = expected(Axis(a));
      if (t.place[Axis(a)] != want) misplaced(t, Axis(a), fmt::format("should be {}, {}", name_of(want), why));
    }
  }
  void held_as(const Placement& p, Tensors others, std::string_view why) const {
    for (const Tensor* t : others)
      held(
          *t, [&](Axis a) { return p[a]; }, why);
  }
  void not_partial(const Tensor& t, std::string_view why) const {
    held_where(
        t, [&](Axis a) { return t.place[a] != Spmd::Partial; }, why);
  }
  // Indices of the rows of a tensor held so: unplaced, or cut where the rows are and whole elsewhere.
  void indexes(const Tensor& t, int64_t n, DType d, const Placement& rows) const {
    vector(t, n, d);
    if (t.place == Placement()) return;
    held_where(
        t, [&](Axis a) { return rows[a] == Spmd::Shard0 ? t.place[a] == Spmd::Shard0 : is_whole(t.place[a]); },
        "indices are cut where the rows are, and whole elsewhere");
  }
  void constant(const Tensor& t) const {
    held_where(
        t, [&](Axis a) { return is_whole(t.place[a]); }, "a constant is whole");
  }

 private:
  static bool is_whole(Spmd s) { return s == Spmd::Replicate || s == Spmd::Invariant || s == Spmd::None; }
  std::string_view name_of_field(const Tensor& t) const {
    for (const Field& f : op_.fields())
      if (f.tensor == &t) return f.name;
    return "operand";
  }
  std::string operands() const {
    std::string text = " Operands:";
    for (const Field& f : op_.fields())
      if (*f.tensor) text += fmt::format("  {} {}", f.name, f.tensor->to_string());
    return text;
  }
  const Op& op_;
};

}  // namespace weft::rules
