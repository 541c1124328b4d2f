#include "weft/nn/matrix_numbers.h"

namespace weft {

MatrixNumbers::MatrixNumbers(const Param& w, DType stat) : w_(&w) {
  if (w.spec().in_codes()) coded_ = coded_parts(w.spec(), w.parts(), stat);
}

Tensor MatrixNumbers::part(Pass& p, size_t i) const {
  const HeldPart& rows = w_->parts()[i];
  const Placement place = w_->spec().place.on_tp(rows.held);
  if (!in_codes()) return w_->value.slice_rows(rows.local_row, rows.rows.count).placed(place);
  const CodedPart& part = coded_[i];
  const Tensor bytes = w_->value.placed(place);
  const Tensor numbers = p.compute(p.scratch, {part.at.rows, part.at.cols}, place);
  p.be.run(Dequantise{.codes = part.codes_in(bytes),
                      .maxima = part.maxima_in(bytes),
                      .scales = part.scales_in(bytes, p.precision.stat),
                      .out = numbers,
                      .at = part.at});
  return numbers;
}

}  // namespace weft
