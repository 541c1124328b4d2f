// Runs an AttentionGraph as it is written, one operation after the other, in f64, where libraries round between some of
// them: it is what they are asked for, and stands for one in tests.
#pragma once
#include <cmath>
#include <limits>

#include "ops/operands.h"
#include "weft/ops/cuda/attention_library.h"

namespace weft::testing {

class GraphInterpreter {
 public:
  GraphInterpreter(const gpu::AttentionGraph& graph, const AttentionData& data) : graph_(graph), data_(data) {
    for (const gpu::GraphTensor& t : graph_.tensors) {
      int64_t last = 0;
      for (size_t d = 0; d < 4; ++d) last += (t.dims[d] - 1) * t.strides[d];
      between_.emplace_back(t.place == gpu::GraphTensor::Place::between ? size_t(last + 1) : 0, NAN);
    }
  }
  void run() {
    for (const gpu::GraphStep& step : graph_.steps) run(step);
  }

 private:
  using Index = std::array<int64_t, 4>;

  static DType type_of(gpu::GraphType t) {
    return t == gpu::GraphType::bf16 ? DType::bf16 : t == gpu::GraphType::f16 ? DType::f16 : DType::f32;
  }
  // A dimension of 1 stands for any; of fewer heads each stands for a group.
  double get(size_t tensor, const Index& index, const Index& of) const {
    const gpu::GraphTensor& t = graph_.tensors[tensor];
    int64_t offset = 0;
    for (size_t d = 0; d < 4; ++d) offset += index[d] / (of[d] / t.dims[d]) * t.strides[d];
    if (t.place == gpu::GraphTensor::Place::between) return between_[tensor].at(size_t(offset));
    return load(data_.at(gpu::Argument(t.id)), type_of(t.type), offset);
  }
  void put(size_t tensor, const Index& index, double x) {
    const gpu::GraphTensor& t = graph_.tensors[tensor];
    int64_t offset = 0;
    for (size_t d = 0; d < 4; ++d) offset += index[d] * t.strides[d];
    if (t.id == int64_t(gpu::Argument::sums))
      x += load(data_.at(gpu::Argument(t.id)), type_of(t.type), offset);  // blocks add to it as they come
    if (t.place != gpu::GraphTensor::Place::between)
      return store(data_.at(gpu::Argument(t.id)), type_of(t.type), offset, x);
    between_[tensor].at(size_t(offset)) = x;
  }
  const Index& dims(size_t tensor) const { return graph_.tensors[tensor].dims; }

  template <class F>
  static void each(const Index& dims, const F& f) {
    Index i;
    for (i[0] = 0; i[0] < dims[0]; ++i[0])
      for (i[1] = 0; i[1] < dims[1]; ++i[1])
        for (i[2] = 0; i[2] < dims[2]; ++i[2])
          for (i[3] = 0; i[3] < dims[3]; ++i[3]) f(i);
  }

  void run(const gpu::GraphStep& step) {
    switch (step.op) {
      case gpu::GraphOp::matmul:
        return multiply(step);
      case gpu::GraphOp::transpose:
        return each(dims(step.out), [&](const Index& i) {
          put(step.out, i, get(step.in[0], {i[0], i[1], i[3], i[2]}, dims(step.in[0])));
        });
      case gpu::GraphOp::largest:
      case gpu::GraphOp::sum:
        return reduce(step);
      default:
        each(dims(step.out), [&](const Index& i) { put(step.out, i, element(step, i)); });
    }
  }
  std::vector<double> values_of(size_t tensor, const Index& of) const {  // row-major
    std::vector<double> values;
    each(of, [&](const Index& i) { values.push_back(get(tensor, i, of)); });
    return values;
  }
  void multiply(const gpu::GraphStep& step) {
    const size_t a = step.in[0], b = step.in[1];
    const Index of_a{dims(step.out)[0], dims(step.out)[1], dims(a)[2], dims(a)[3]};
    const Index of_b{of_a[0], of_a[1], dims(b)[2], dims(b)[3]};
    const std::vector<double> all_a = values_of(a, of_a), all_b = values_of(b, of_b);
    each(dims(step.out), [&](const Index& i) {
      const int64_t matrix = i[0] * of_a[1] + i[1];
      const double* row = &all_a[size_t((matrix * of_a[2] + i[2]) * of_a[3])];
      const double* column = &all_b[size_t(matrix * of_b[2] * of_b[3] + i[3])];
      double sum = 0;
      for (int64_t k = 0; k < of_a[3]; ++k) sum += row[k] * column[k * of_b[3]];
      put(step.out, i, sum);
    });
  }
  void reduce(const gpu::GraphStep& step) {
    const Index of = dims(step.in[0]), to = dims(step.out);
    each(to, [&](const Index& i) {
      const bool sums = step.op == gpu::GraphOp::sum;
      double all = sums ? 0 : -std::numeric_limits<double>::infinity();
      const Index group{of[0] / to[0], of[1] / to[1], of[2] / to[2], of[3] / to[3]};
      each(group, [&](const Index& j) {
        const Index at{i[0] * group[0] + j[0], i[1] * group[1] + j[1], i[2] * group[2] + j[2], i[3] * group[3] + j[3]};
        const double x = get(step.in[0], at, of);
        all = sums ? all + x : std::max(all, x);
      });
      put(step.out, i, all);
    });
  }
  double element(const gpu::GraphStep& step, const Index& i) const {
    const auto in = [&](size_t n) { return get(step.in[n], i, dims(step.out)); };
    switch (step.op) {
      case gpu::GraphOp::add:
        return in(0) + in(1);
      case gpu::GraphOp::subtract:
        return in(0) - in(1);
      case gpu::GraphOp::multiply:
        return in(0) * in(1);
      case gpu::GraphOp::divide:
        return in(0) / in(1);
      case gpu::GraphOp::exp:
        return std::exp(in(0));
      case gpu::GraphOp::log:
        return std::log(in(0));
      case gpu::GraphOp::copy:
        return in(0);
      case gpu::GraphOp::row_number:
        return double(i[2]);
      case gpu::GraphOp::column_number:
        return double(i[3]);
      case gpu::GraphOp::not_less:
        return in(0) >= in(1) ? 1 : 0;
      case gpu::GraphOp::greater:
        return in(0) > in(1) ? 1 : 0;
      case gpu::GraphOp::choose:
        return in(2) != 0 ? in(0) : in(1);
      default:
        WEFT_CHECK(false, "not of elements");
    }
  }

  const gpu::AttentionGraph& graph_;
  const AttentionData& data_;
  std::vector<std::vector<double>> between_;
};

}  // namespace weft::testing
