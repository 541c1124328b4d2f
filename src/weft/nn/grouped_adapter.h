// What low-rank adapters add to the products of rows with the matrices of their experts.    Hu et al. 2021, "LoRA"
//   n rows, by expert   E experts, G of them here   W [E out, in], of which each expert has one matrix or several
//   m matrices of an expert that have an adapter   r rank
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/nn/pass.h"
#include "weft/nn/stream_dropout.h"
#include "weft/sharding/dispatch.h"
#include "weft/sharding/param_store.h"

namespace weft {

// y[i] += scale (dropout(x[i]) A^T) B^T with the A and B of the expert that row i is of, for each of its m matrices:
// columns of y. These see the same dropout; the experts of a token each see another.
//   x, dx [n, in]   y, dy [n, out]
//   A [E m r, in]   all of an expert one below the other
//   B [E rows, r]   a weight for each of the m matrices, which has so many rows
// Where W is cut by rows, so is B, and A is whole on tp; where W is cut by columns, so is A, and B is whole. Over ep
// both are dealt out as W is. So nothing is sent that is not sent without an adapter.
class GroupedAdapter {
 public:
  struct Saved {
    Tensor narrow;   // [n, m r]  scale dropout(x) A^T                          till wgrad
    Tensor dnarrow;  // [n, m r]  scale dy B, with each matrix's columns of dy  dgrad .. wgrad
  };
  // None where the store has no adapter of this weight, whose parts are the matrices of so many experts.
  static std::optional<GroupedAdapter> make(ParamStore& params, const std::string& name, const Param& of,
                                            int64_t experts);
  // The name of the B of an expert's k-th matrix that has an adapter; and of all A. `name`: of the product.
  static std::string name_of_a(const std::string& name) { return name + ".lora_A.weight"; }
  static std::string name_of_b(const std::string& name, int64_t k);
  // Whether this pass drops: routes must then have numbers.
  bool drops(const Pass& p) const { return dropout_.spec(p).p > 0; }

  // Adds to y.
  void forward(Pass& p, Saved& s, Tensor x, const Dispatch::Routes& routes, Tensor y) const;
  // Adds to dx.
  void dgrad(Pass& p, Saved& s, Tensor dy, const Dispatch::Routes& routes, Tensor dx) const;
  // Adds to the gradients of A and B. Reads no weight.
  void wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy, const Dispatch::Routes& routes) const;

 private:
  struct Matrix {
    Param* b;
    int64_t first, count;  // columns of y, here
    Tensor columns(const Tensor& y) const { return y.slice_cols(first, count); }
  };
  GroupedAdapter(ParamStore& params, const std::string& name, const Param& of, int64_t experts);
  Tensor of_matrix(const Tensor& narrow, size_t k) const { return narrow.slice_cols(int64_t(k) * rank_, rank_); }
  Tensor narrow_rows(const Pass& p, Arena* arena, const Dispatch::Routes& routes, Placement place) const;
  Tensor dropped(Pass& p, const Tensor& x, const Dispatch::Routes& routes) const;
  void drop(Pass& p, const Tensor& x, const Dispatch::Routes& routes, const Tensor& y) const;

  Param* a_ = nullptr;
  std::vector<Matrix> matrices_;
  int64_t rank_;
  double scale_;
  bool by_columns_;  // W is cut so
  StreamDropout dropout_;
  int64_t first_column_ = 0;  // of x, of those of the whole
};

}  // namespace weft
