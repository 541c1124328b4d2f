#include "weft/nn/matrix_numbers.h"

namespace weft {

MatrixNumbers::MatrixNumbers(const Param& w, DType stat) : w_(&w) {
  if (w.spec().in_codes()) coded_ = coded_parts(w.spec(), w.parts(), stat);
}

Tensor MatrixNumbers::part(Pass& p, size_t i) const {
  const HeldPart& rows = w_->parts()[i];
  const Placement place = w_->spec().place.on_tp(rows.held);
  if (!in_codes()) return w_->value.slice_rows(rows.local_row, rows.rows.count).placed(place);
  const Tensor numbers = p.compute(p.scratch, {rows.rows.count, rows.cols.count}, place);
  make(p, i, numbers);
  return numbers;
}

Tensor MatrixNumbers::whole(Pass& p) const {
  if (!in_codes()) return w_->value;
  const Tensor numbers = p.compute(p.scratch, w_->shape(), w_->spec().place);
  for (size_t i = 0; i < coded_.size(); ++i)
    if (const HeldPart& part = w_->parts()[i]; part.rows.count > 0)
      make(p, i, numbers.slice_rows(part.local_row, part.rows.count));
  return numbers;
}

// The numbers of a part in codes.
void MatrixNumbers::make(Pass& p, size_t i, Tensor numbers) const {
  const CodedPart& part = coded_[i];
  const Tensor bytes = w_->value.placed(numbers.place);
  p.be.run(Dequantise{.codes = part.codes_in(bytes),
                      .maxima = part.maxima_in(bytes),
                      .scales = part.scales_in(bytes, p.precision.stat),
                      .out = numbers,
                      .at = part.at});
}

}  // namespace weft
