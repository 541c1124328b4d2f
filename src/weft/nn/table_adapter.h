// What a low-rank adapter adds to the rows of a frozen table of tokens.     Hu et al. 2021, "LoRA"
//   T tokens   r rank   d width   V vocabulary, on whatever part of it lives here
#pragma once
#include <optional>

#include "weft/nn/pass.h"
#include "weft/sharding/param_store.h"

namespace weft {

// rows += scale A[ids] B^T. A is cut as the table is, and B is whole; where it is cut, a rank looks up the rows of A
// that it has, as it does those of the table.
//   ids i32 [T]   rows, drows [T, d]   A [V, r]   B [d, r]
class TableAdapter {
 public:
  struct Saved {
    Tensor narrow;  // [T, r]  scale A[ids]             forward .. wgrad
    Tensor b;       // [d, r]  B, as forward read it    forward .. wgrad
  };
  // None where the store has no adapter of this table.
  static std::optional<TableAdapter> make(ParamStore& params, const Param& table);
  TableAdapter(Param& a, Param& b, double scale) : a_(&a), b_(&b), scale_(scale) {}

  void forward(Pass& p, Saved& s, Tensor ids, Tensor rows) const;
  // Adds to A.grad, B.grad. Reads no weight: those of a table are not fetched for its gradient.
  void wgrad(Pass& p, const Saved& s, Tensor ids, Tensor drows) const;

 private:
  Param *a_, *b_;
  double scale_;
};

}  // namespace weft
