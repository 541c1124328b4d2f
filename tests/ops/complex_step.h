// Derivatives of reference kernels without subtraction: f(x + i h) = f(x) + i h f'(x) + O(h^2), so the imaginary part
// over h is the derivative to rounding, for any small h.         Squire & Trapp 1998
#pragma once
#include <complex>
#include <map>

#include "ops/operands.h"
#include "weft/ops/ref/kernels.h"

namespace weft::testing {

// A copy of a case's operands (f64) as complex numbers, and ops on it.
class ComplexOperands {
 public:
  using Complex = std::complex<double>;
  explicit ComplexOperands(const Operands& real) : real_(real) {}

  // The view in the copy, which says f64 as reference kernels expect. Its slices would be wrong: slice before.
  Tensor of(Tensor t) {
    if (!is_float(t.dtype)) return t;
    const auto [buffer, offset] = real_.locate(t);
    auto& copy = copies_[buffer];
    if (copy.empty()) {
      const std::span<const double> values = real_.exact_values(buffer);
      copy.assign(values.begin(), values.end());
    }
    t.data = copy.data() + offset;
    return t;
  }
  template <class Op>
  void run(Op op) {
    for (const Field& f : op.fields())
      if (*f.tensor) const_cast<Tensor&>(*f.tensor) = of(*f.tensor);
    ref::run<Complex>(op, 1);
  }
  Complex& at(const Tensor& t, int64_t i, int64_t j) { return static_cast<Complex*>(of(t).data)[i * t.row_stride + j]; }

 private:
  const Operands& real_;
  std::map<size_t, std::vector<Complex>> copies_;
};

// A tensor with a value for each of its elements.
struct Paired {
  Tensor tensor, gradient;
};

// The objective is <outputs, their gradients>. The largest difference between its derivative by each element of the
// inputs, as op computes outputs from inputs, and the gradient that a backward op found, beside 1 + |gradient|.
template <class Op>
double complex_step_error(const Operands& o, const Op& op, const std::vector<Paired>& outputs,
                          const std::vector<Paired>& inputs) {
  constexpr double h = 1e-60;
  const auto value = [](const Tensor& t, int64_t i, int64_t j) { return t.as<double>()[i * t.row_stride + j]; };
  double worst = inputs.empty() || outputs.empty() ? INFINITY : 0;
  for (const Paired& in : inputs) {
    for (int64_t i = 0; i < in.tensor.rows(); ++i) {
      for (int64_t j = 0; j < in.tensor.cols(); ++j) {
        ComplexOperands z(o);
        z.at(in.tensor, i, j) += std::complex<double>(0, h);
        z.run(op);
        double slope = 0;
        for (const Paired& out : outputs)
          for (int64_t r = 0; r < out.tensor.rows(); ++r)
            for (int64_t c = 0; c < out.tensor.cols(); ++c)
              slope += z.at(out.tensor, r, c).imag() / h * value(out.gradient, r, c);
        const double gradient = value(in.gradient, i, j), error = std::abs(slope - gradient) / (1 + std::abs(gradient));
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
    }
  }
  return worst;
}

}  // namespace weft::testing
