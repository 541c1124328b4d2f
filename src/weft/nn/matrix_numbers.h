// The numbers of a weight that may be kept in codes.
#pragma once
#include <cstddef>
#include <vector>

#include "weft/nn/pass.h"
#include "weft/sharding/coded_weight.h"

namespace weft {

class MatrixNumbers {
 public:
  // `w` must outlive this. `stat`: the dtype of its codes' scales.
  MatrixNumbers(const Param& w, DType stat);
  const Param& weight() const { return *w_; }
  bool in_codes() const { return !coded_.empty(); }
  // The rows of one part that are here, held as that part is. Those of a weight in codes are made in scratch and live
  // till the caller's Scope ends.
  Tensor part(Pass& p, size_t i) const;
  // All rows that are here, of a weight whose parts are held alike.
  Tensor whole(Pass& p) const;

 private:
  void make(Pass& p, size_t i, Tensor numbers) const;
  const Param* w_;
  std::vector<CodedPart> coded_;  // of each part of a weight in codes
};

}  // namespace weft
