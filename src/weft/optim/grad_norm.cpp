#include "weft/optim/grad_norm.h"

#include <cmath>

namespace weft {

GradNorm::GradNorm(const ParamStore& store, Arena& arena) {
  for (const Param* p : store.params()) {
    const ParamSpec& spec = p->spec();
    const std::vector<int64_t> parts = spec.parts.empty() ? std::vector{spec.shape[0]} : spec.parts;
    int64_t row = 0;
    for (size_t i = 0; i < parts.size(); row += parts[i++]) entries_.push_back({p, int(i), row, parts[i]});
  }
  squares_ = arena.alloc(DType::f64, {int64_t(entries_.size())});
}

double GradNorm::wait_measure(Backend& backend) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    backend.run(
        SumSquares{.x = e.param->grad.slice_rows(e.first_row, e.rows), .out = squares_.slice_rows(int64_t(i), 1)});
  }
  backend.wait_all();
  if (squares_.data == nullptr) return 0;
  double total = 0;
  for (size_t i = 0; i < entries_.size(); ++i) total += squares(i);
  return std::sqrt(total);
}

std::string GradNorm::first_nonfinite(Backend& backend, Arena& scratch) const {
  Scope temporaries(scratch);
  Tensor count = scratch.alloc(DType::f64, {1});
  for (const Entry& e : entries_) {
    Tensor grad = e.param->grad.slice_rows(e.first_row, e.rows);
    backend.run(CountNonfinite{.x = grad, .out = count});
    backend.wait_all();
    const double bad = *count.as<double>();
    if (bad > 0) {
      return fmt::format("gradient of {} (rows {} to {}): {} of {} values are not finite", e.param->spec().name,
                         e.first_row, e.first_row + e.rows - 1, int64_t(bad), grad.elements());
    }
  }
  return "";
}

}  // namespace weft
