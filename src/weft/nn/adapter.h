// What a low-rank adapter adds to a product with a frozen matrix.     Hu et al. 2021, "LoRA"
//   t tokens   W [out, in] the matrix, or what of it is here   r rank
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/nn/pass.h"
#include "weft/nn/stream_dropout.h"
#include "weft/sharding/param_store.h"

namespace weft {

// y += scale (dropout(x) A^T) B^T, for each target: rows of W, and columns of y, that share an A. All targets of W see
// the same dropout.
//   x, dx [t, in]   y, dy [t, out]   A [r, in]   B [rows of the target, r]
// All A of W are one weight, one below the other, and all B. Where W is cut by rows, so is B, and A is whole; where W
// is cut by columns, so is A, and B is whole. So nothing is sent that is not sent without an adapter.
class Adapter {
 public:
  struct Saved {
    Tensor narrow;   // [t, n r]  scale dropout(x) A^T of all n targets               till wgrad
    Tensor dnarrow;  // [t, n r]  scale dy B, with each target's columns of dy       dgrad .. wgrad
  };
  struct Rows {            // of W and B that are held alike and share an A
    int64_t first, count;  // of W, here
    int64_t first_b;       // of B, here
    int64_t target;        // whose A it is
    Spmd held;             // B on tp
    bool everywhere;       // though other rows of W are cut
    Tensor of(const Tensor& b, Spmd on_tp) const;
    Tensor columns(const Tensor& y, Spmd where_everywhere) const;
  };
  // None where the store has no adapter of this weight. `name`: of the product.
  static std::optional<Adapter> make(ParamStore& params, const std::string& name, const Param& of);
  // Takes matrices that are there already.
  Adapter(Param& a, Param& b, const AdapterSpec& spec, const std::string& name, const Param& of);
  const Param& a() const { return *a_; }
  const Param& b() const { return *b_; }
  const std::vector<Rows>& rows() const { return rows_; }  // in order, of targets alone
  double scale() const { return scale_; }
  // What A has for a target: rows of it, columns of x A^T.
  Tensor a_of(const Rows& rows) const { return a_->value.slice_rows(rows.target * rank_, rank_); }
  // Whether this pass drops; and y = dropout(x), or the gradient of x for that of y. y may be x.
  bool drops(const Pass& p) const { return dropout_.spec(p).p > 0; }
  void drop(Pass& p, const Tensor& x, const Tensor& y) const;
  // Whether W + scale B A, made for it, multiplies so many tokens in fewer operations than A and B beside W: in forward
  // B's product is left out, in dgrad A's. Not in bf16 and f16, which would round what A and B add away.
  bool forward_joins(const Pass& p, int64_t tokens) const;
  bool dgrad_joins(const Pass& p, int64_t tokens) const;
  // Forward in two: what A makes of x; then `again`, or a product with the sum of both matrices.
  void narrow(Pass& p, Saved& s, Tensor x) const;
  // Adds to y.
  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const;
  // In dgrad: adds to y what forward added.
  void again(Pass& p, const Saved& s, Tensor y) const;
  // w, of W's shape and placement, += scale B A in the rows of targets.
  void add_to_matrix(Pass& p, Tensor w) const;
  // Dgrad's first half: what B makes of dy.
  void dnarrow(Pass& p, Saved& s, Tensor dy) const;
  // Adds to dx.
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const;
  // Adds to A.grad, B.grad. Reads no weight.
  void wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy) const;

 private:
  bool may_join(const Pass& p) const;
  Tensor dropped(Pass& p, const Tensor& x, Tensor y) const;
  Tensor room_for_dropped(Pass& p, const Tensor& x) const;
  Tensor of_target(const Tensor& narrow, const Rows& rows) const {
    return narrow.slice_cols(rows.target * rank_, rank_);
  }

  Param *a_, *b_;
  int64_t rank_;
  double scale_;
  StreamDropout dropout_;
  int64_t first_column_ = 0;  // of x, of those of the whole
  std::vector<Rows> rows_;    // in order
};

}  // namespace weft
