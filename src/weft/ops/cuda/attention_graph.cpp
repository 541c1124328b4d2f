#include "weft/ops/cuda/attention_graph.h"

#include "weft/base/error.h"

namespace weft::gpu {
namespace {

using Dims = std::array<int64_t, 4>;

Dims transposed(const Dims& of) { return {of[0], of[1], of[3], of[2]}; }
Dims packed(const Dims& dims) { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }

class Builder {
 public:
  explicit Builder(const AttentionShape& shape)
      : s_(shape),
        type_(shape.dtype == DType::bf16 ? GraphType::bf16 : GraphType::f16),
        scores_{s_.sequences, s_.heads, s_.length, s_.length},
        rows_{s_.sequences, s_.heads, s_.length, 1} {}

  AttentionGraph forward() {
    const size_t q = heads(Argument::q, s_.heads, s_.q_stride), v = heads(Argument::v, s_.kv_heads, s_.v_stride);
    const size_t k_t = transposed_heads(Argument::k, s_.k_stride);
    const size_t scores = causal(scaled(matmul(q, k_t)));
    const size_t most = reduce(GraphOp::largest, scores);
    const size_t weights = pointwise(GraphOp::exp, {pointwise(GraphOp::subtract, {scores, most}, scores_)}, scores_);
    const size_t total = reduce(GraphOp::sum, weights);
    step(GraphOp::add, {most, pointwise(GraphOp::log, {total}, rows_)}, numbers(Argument::lse));
    const size_t softmax = between(scores_, packed(scores_), type_);
    step(GraphOp::divide, {weights, total}, softmax);
    step(GraphOp::matmul, {softmax, v}, heads(Argument::o, s_.heads, s_.o_stride));
    return graph_;
  }

  AttentionGraph backward() {
    const size_t q = heads(Argument::q, s_.heads, s_.q_stride), o = heads(Argument::o, s_.heads, s_.o_stride),
                 dout = heads(Argument::dout, s_.heads, s_.dout_stride);
    const size_t k_t = transposed_heads(Argument::k, s_.k_stride), v_t = transposed_heads(Argument::v, s_.v_stride);
    const size_t lse = numbers(Argument::lse), weighted = numbers(Argument::weighted);

    const Dims columns{s_.sequences, s_.heads, s_.length, s_.dim};
    const size_t sums = reduce(GraphOp::sum, pointwise(GraphOp::multiply, {dout, o}, columns));
    step(GraphOp::multiply, {sums, number(Argument::one)}, weighted);

    const size_t scores = pointwise(GraphOp::subtract, {scaled(matmul(q, k_t)), lse}, scores_);
    const size_t weights = pointwise(GraphOp::exp, {causal(scores)}, scores_);
    gradient_of_keys(weights, dout, heads(Argument::dv, s_.kv_heads, s_.dv_stride));

    const size_t from_weighted = pointwise(GraphOp::subtract, {matmul(dout, v_t), weighted}, scores_);
    const size_t dscores = scaled(pointwise(GraphOp::multiply, {from_weighted, weights}, scores_));
    gradient_of_keys(dscores, q, heads(Argument::dk, s_.kv_heads, s_.dk_stride));

    const GraphTensor keys = graph_.tensors[k_t];
    const size_t k = between(transposed(keys.dims), transposed(keys.strides), GraphType::f32);
    step(GraphOp::transpose, {k_t}, k);
    const size_t dq = heads(Argument::dq, s_.heads, s_.dq_stride);
    if (s_.repeats) {
      step(GraphOp::matmul, {dscores, k}, dq);
    } else {
      const size_t sums = memory(Argument::sums, columns, packed(columns), GraphType::f32);
      step(GraphOp::matmul, {dscores, k}, sums);
      step(GraphOp::copy, {sums}, dq);
    }
    return graph_;
  }

 private:
  size_t add(const GraphTensor& tensor) {
    graph_.tensors.push_back(tensor);
    return graph_.tensors.size() - 1;
  }
  size_t between(const Dims& dims, const Dims& strides, GraphType type) {
    return add({.id = next_++, .dims = dims, .strides = strides, .type = type});
  }
  size_t memory(Argument argument, const Dims& dims, const Dims& strides, GraphType type) {
    return add({int64_t(argument), dims, strides, type, GraphTensor::Place::memory});
  }
  // Rows are tokens, whose columns are heads.
  size_t heads(Argument argument, int64_t count, int64_t stride) {
    return memory(argument, {s_.sequences, count, s_.length, s_.dim}, {s_.length * stride, s_.dim, stride, 1}, type_);
  }
  size_t transposed_heads(Argument argument, int64_t stride) {
    return memory(argument, {s_.sequences, s_.kv_heads, s_.dim, s_.length}, {s_.length * stride, s_.dim, 1, stride},
                  type_);
  }
  size_t numbers(Argument argument) { return memory(argument, rows_, packed(rows_), GraphType::f32); }
  size_t number(Argument argument) {
    return add({int64_t(argument), {1, 1, 1, 1}, {1, 1, 1, 1}, GraphType::f32, GraphTensor::Place::number});
  }

  void step(GraphOp op, std::vector<size_t> in, size_t out) { graph_.steps.push_back({op, std::move(in), out}); }
  size_t pointwise(GraphOp op, std::vector<size_t> in, const Dims& dims, GraphType type = GraphType::f32) {
    const size_t out = between(dims, packed(dims), type);
    step(op, std::move(in), out);
    return out;
  }
  size_t reduce(GraphOp op, size_t in) {
    const size_t out = between(rows_, packed(rows_), GraphType::f32);
    step(op, {in}, out);
    return out;
  }
  size_t matmul(size_t a, size_t b) { return pointwise(GraphOp::matmul, {a, b}, scores_); }
  size_t scaled(size_t x) {
    if (scale_ == 0) scale_ = number(Argument::scale);
    return pointwise(GraphOp::multiply, {x, scale_}, scores_);
  }
  // -inf where the key is behind the query, or so far before it that its window does not reach it.
  size_t causal(size_t scores) {
    const size_t row = pointwise(GraphOp::row_number, {scores}, scores_, GraphType::i32);
    const size_t column = pointwise(GraphOp::column_number, {scores}, scores_, GraphType::i32);
    const size_t seen = pointwise(GraphOp::not_less, {row, column}, scores_, GraphType::boolean);
    const size_t lowest = number(Argument::lowest);
    const size_t causal = pointwise(GraphOp::choose, {scores, lowest, seen}, scores_);
    return s_.window > 0 ? in_window(causal, lowest) : causal;
  }
  // In the order and the types that cuDNN knows a window by.
  size_t in_window(size_t scores, size_t lowest) {
    const size_t row = pointwise(GraphOp::row_number, {scores}, scores_);
    const size_t column = pointwise(GraphOp::column_number, {scores}, scores_);
    const size_t end = pointwise(GraphOp::add, {column, number(Argument::window)}, scores_);
    const size_t seen = pointwise(GraphOp::greater, {end, row}, scores_, GraphType::boolean);
    return pointwise(GraphOp::choose, {scores, lowest, seen}, scores_);
  }
  // x^T y, summed over the queries' heads of each group.
  void gradient_of_keys(size_t x, size_t y, size_t out) {
    const size_t x_t = between(transposed(scores_), transposed(packed(scores_)), type_);
    step(GraphOp::transpose, {x}, x_t);
    if (s_.heads == s_.kv_heads) return step(GraphOp::matmul, {x_t, y}, out);
    const Dims all{s_.sequences, s_.heads, s_.length, s_.dim};
    const size_t of_heads = between(all, packed(all), type_);  // f32 would round less; cuDNN's own front end asks so
    step(GraphOp::matmul, {x_t, y}, of_heads);
    step(GraphOp::sum, {of_heads}, out);
  }

  AttentionShape s_;
  GraphType type_;
  Dims scores_, rows_;
  AttentionGraph graph_;
  int64_t next_ = kFirstBetween;
  size_t scale_ = 0;  // its place, once it is there: never the first
};

}  // namespace

AttentionGraph attention_graph(const AttentionShape& shape) {
  WEFT_CHECK(size_of(shape.dtype) == 2, "attention of {} by cuDNN", name_of(shape.dtype));
  return shape.backward ? Builder(shape).backward() : Builder(shape).forward();
}

}  // namespace weft::gpu
