// One op on operands of its own, beside the same op in fp64: to test a backend against the reference, to run twice and
// compare bits, or to time.
#pragma once
#include <memory>

#include "ops/operands.h"
#include "tolerance.h"
#include "weft/ops/backend.h"
#include "weft/ops/cost.h"

namespace weft::testing {

class Trial {
 public:
  virtual ~Trial() = default;
  virtual void run_times(Backend& backend, int times) = 0;  // one after the other
  void run(Backend& backend) { run_times(backend, 1); }
  virtual void run_exact(Backend& ref) = 0;  // on the fp64 twin
  virtual void reset() = 0;                  // all operands as they were at first
  // Where an output is furthest beyond the tolerance: "y[3, 4] = 1.5, exactly 1.25, tolerance 1e-06"; "" nowhere.
  virtual std::string difference() = 0;
  // Names a change outside the op's outputs, of an input or between strided rows; "" if there is none.
  virtual std::string trespass() const = 0;
  virtual std::vector<std::byte> outputs() const = 0;  // their bits, one after the other
  virtual int64_t workspace_bytes(const WorkspaceModel& model) const = 0;
  virtual OpCost cost() const = 0;  // for rates
};

template <class Op>
class TrialOf final : public Trial {
 public:
  TrialOf(std::unique_ptr<Operands> operands, const Op& op)
      : operands_(std::move(operands)), op_(op), exact_(operands_->exact(op)) {
    operands_->freeze();
  }
  const Op& op() const { return op_; }

  void run_times(Backend& backend, int times) override {
    operands_->run_there(op_, [&](const Op& op) {
      for (int i = 0; i < times; ++i) backend.run(op);
      backend.wait_all();
    });
  }
  void run_exact(Backend& ref) override {
    ref.run(exact_);
    ref.wait_all();
  }
  void reset() override { operands_->reset(); }
  std::string difference() override {
    Worst worst;
    const auto fields = op_.fields();
    const auto exact = exact_.fields();
    for (size_t i = 0; i < fields.size(); ++i)
      if (writes(fields[i])) compare(fields[i], *exact[i].tensor, worst);
    return worst.what;
  }
  std::string trespass() const override {
    std::vector<Tensor> written;
    for (const Field& f : op_.fields())
      if (writes(f)) written.push_back(*f.tensor);
    const bool good = operands_->unchanged_but(written);
    return good ? "" : fmt::format("{} wrote where it may not", Op::kName);
  }
  std::vector<std::byte> outputs() const override {
    std::vector<std::byte> all;
    for (const Field& f : op_.fields()) {
      if (!writes(f)) continue;
      const int64_t size = size_of(f.tensor->dtype);
      const std::byte* data = static_cast<const std::byte*>(f.tensor->data);
      for (int64_t i = 0; i < f.tensor->rows(); ++i) {
        const std::byte* row = data + i * f.tensor->row_stride * size;
        all.insert(all.end(), row, row + f.tensor->cols() * size);
      }
    }
    return all;
  }
  int64_t workspace_bytes(const WorkspaceModel& model) const override { return model.of(op_); }
  OpCost cost() const override { return cost_of(op_); }

 private:
  struct Worst {
    double ratio = 1;  // of the error to the tolerance
    std::string what;
  };
  static bool writes(const Field& f) { return f.role != Role::in && *f.tensor; }
  static void compare_indices(const Field& f, const Tensor& exact, Worst& worst) {
    for (int64_t i = 0; i < exact.elements(); ++i) {
      const int32_t got = f.tensor->as<int32_t>()[i], want = exact.as<int32_t>()[i];
      if (got != want) worst = {INFINITY, fmt::format("{}[{}] = {}, exactly {}", f.name, i, got, want)};
    }
  }
  // A number that is nearly half way between two levels may have the code of either: one in 1000, or one alone.
  static void compare_codes(const Field& f, const Tensor& exact, Worst& worst) {
    int64_t apart = 0;
    for (int64_t i = 0; i < exact.elements(); ++i) {
      const int got = f.tensor->as<uint8_t>()[i], want = exact.as<uint8_t>()[i];
      if (got == want) continue;
      if (++apart > 1 + exact.elements() / 1000 || std::abs(got - want) > 1)
        worst = {INFINITY, fmt::format("{}[{}] = {}, exactly {}", f.name, i, got, want)};
    }
  }
  void compare(const Field& f, const Tensor& exact, Worst& worst) const {
    const Tensor& t = *f.tensor;
    if (t.dtype == DType::i32) return compare_indices(f, exact, worst);
    if (t.dtype == DType::u8) return compare_codes(f, exact, worst);
    const double* x = exact.as<double>();
    const double rms = rms_of(exact);
    const Accuracy a = accuracy(op_);
    const double relative = tolerance(t.dtype, operands_->compute(), a);
    const double of_weights = unit_roundoff(operands_->compute()) * a.narrow / 2 * weighted_terms(exact_, f.name);
    for (int64_t i = 0; i < t.rows(); ++i) {
      for (int64_t j = 0; j < t.cols(); ++j) {
        const double got = load(t.data, t.dtype, i * t.row_stride + j), want = x[i * exact.row_stride + j];
        const double allowed = relative * (std::abs(want) + rms) + of_weights, error = std::abs(got - want);
        if (error <= allowed * worst.ratio) continue;  // not of a NaN
        worst.ratio = std::isfinite(error) ? error / std::max(allowed, 1e-300) : INFINITY;
        worst.what = fmt::format("{}[{}, {}] = {}, exactly {}, tolerance {:.2g}", f.name, i, j, got, want, allowed);
      }
    }
  }

  std::unique_ptr<Operands> operands_;
  Op op_, exact_;
};

// A named way to make a trial, so that a list of cases takes no memory.
struct OpCase {
  std::string name;
  std::function<std::unique_ptr<Trial>(std::shared_ptr<Memory>)> make_in;
  std::unique_ptr<Trial> make() const { return make_in(std::make_shared<HeapMemory>()); }
};
using OpCases = std::vector<OpCase>;

// Every op's cases run in each of these variants.
struct Variant {
  DType compute = DType::f32;
  int64_t gap = 0;  // elements between rows
  std::string name() const { return fmt::format("{}{}", name_of(compute), gap > 0 ? " strided" : ""); }
};

// build(operands) -> op.
template <class Build>
void add_case(OpCases& to, const Variant& v, const std::string& name, Build build) {
  using Op = std::invoke_result_t<Build, Operands&>;
  to.push_back({fmt::format("{} {} {}", Op::kName, v.name(), name),
                [v, build](std::shared_ptr<Memory> memory) -> std::unique_ptr<Trial> {
                  auto operands = std::make_unique<Operands>(v.compute, v.gap, std::move(memory));
                  const Op op = build(*operands);
                  return std::make_unique<TrialOf<Op>>(std::move(operands), op);
                }});
}

}  // namespace weft::testing
