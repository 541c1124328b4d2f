#include "weft/ops/cpu/matmul_dnnl.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl_version.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "weft/ops/cpu/omp_threads.h"

namespace weft {
namespace {

using dnnl::memory;

constexpr size_t kMostPlans = 4096;  // generation with many lengths must not grow memory without end
constexpr int64_t kAlignment = 64;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

memory::data_type type_of(DType t) {
  if (t == DType::bf16) return memory::data_type::bf16;
  return t == DType::f16 ? memory::data_type::f16 : memory::data_type::f32;
}

memory::desc matrix(int64_t rows, int64_t cols, DType type, int64_t row_stride, bool transposed) {
  return {{rows, cols}, type_of(type), transposed ? memory::dims{1, row_stride} : memory::dims{row_stride, 1}};
}

// A single row may come with any stride; oneDNN wants one that is at least a row long.
int64_t stride_of(const Tensor& t) { return std::max<int64_t>(t.row_stride, t.cols()); }

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                      const memory::desc& bias, const memory::desc& out,
                                      const dnnl::primitive_attr& attr) {
  const bool with_bias = bias.get_size() > 0;
#if DNNL_VERSION_MAJOR >= 3
  if (with_bias) return {engine, a, b, bias, out, attr};
  return {engine, a, b, out, attr};
#else
  if (with_bias) return {dnnl::matmul::desc(a, b, bias, out), attr, engine};
  return {dnnl::matmul::desc(a, b, out), attr, engine};
#endif
}

// The part of `op` that makes out[rows of i, columns of j].
struct Block {
  int64_t row, rows, col, cols;
};
Tensor as_matrix(const Tensor& t) {
  Tensor matrix = t;
  matrix.shape = Shape(t.rows(), t.cols());
  return matrix;
}
Matmul part_of(const Matmul& op, const Block& b) {
  Matmul part = op;
  const Tensor a = as_matrix(op.a), bb = as_matrix(op.b), out = as_matrix(op.out);
  part.a = op.trans_a ? a.slice_cols(b.row, b.rows) : a.slice_rows(b.row, b.rows);
  part.b = op.trans_b ? bb.slice_rows(b.col, b.cols) : bb.slice_cols(b.col, b.cols);
  part.out = out.slice_rows(b.row, b.rows).slice_cols(b.col, b.cols);
  if (op.bias) part.bias = op.bias.slice_rows(b.col, b.cols);
  return part;
}

}  // namespace

DnnlMatmul::DnnlMatmul(int threads, Numerics numerics)
    : threads_(threads), numerics_(numerics), engine_(dnnl::engine::kind::cpu, 0) {
  for (int i = 0; i < threads; ++i) streams_.emplace_back(engine_);
}

bool DnnlMatmul::supports(const Matmul& op) { return bool(plan_for(key_of(op)).primitive); }

int64_t DnnlMatmul::workspace_bytes(const Matmul& op) {
  if (numerics_ == Numerics::fast) return plan_for(key_of(op)).scratch_bytes();
  return threads_ * thread_scratch_bytes(op);
}

void DnnlMatmul::run(const Matmul& op, std::byte* workspace) {
  const OmpThreads scope(threads_);
  if (numerics_ == Numerics::fast) return execute(plan_for(key_of(op)), op, workspace, streams_[0]);

  constexpr size_t kPlansOfOneProduct = 4;                              // whole tiles and those of the edges
  if (plans_.size() + kPlansOfOneProduct > kMostPlans) plans_.clear();  // now, not between two of them
  const Tiling tiles = tiling_of(op);
  const int64_t scratch_bytes = thread_scratch_bytes(op);  // also makes every plan: the map is only read below
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    const int64_t row = tile % tiles.rows * tiles.m, col = tile / tiles.rows * tiles.n;
    const Matmul part = part_of(op, {row, std::min(tiles.m, op.m() - row), col, std::min(tiles.n, op.n() - col)});
    const size_t thread = size_t(omp_get_thread_num());
    execute(plans_.at(key_of(part)), part, workspace + int64_t(thread) * scratch_bytes, streams_[thread]);
  }
}

int64_t DnnlMatmul::Plan::scratch_bytes() const { return round_up(int64_t(scratch.get_size()), kAlignment); }

DnnlMatmul::Key DnnlMatmul::key_of(const Matmul& op) {
  return {.m = op.m(),
          .n = op.n(),
          .k = op.k(),
          .a_stride = stride_of(op.a),
          .b_stride = stride_of(op.b),
          .out_stride = stride_of(op.out),
          .in = op.a.dtype,
          .out = op.out.dtype,
          .trans_a = op.trans_a,
          .trans_b = op.trans_b,
          .bias = bool(op.bias),
          .accumulate = op.accumulate};
}

DnnlMatmul::Tiling DnnlMatmul::tiling_of(const Matmul& op) const {
  constexpr int64_t kRows = 128, kCols = 256;
  return {.m = kRows, .n = kCols, .rows = (op.m() + kRows - 1) / kRows, .cols = (op.n() + kCols - 1) / kCols};
}

// The most that a tile of any of the at most four sizes (inner, edges, corner) needs.
int64_t DnnlMatmul::thread_scratch_bytes(const Matmul& op) {
  const Tiling tiles = tiling_of(op);
  int64_t most = 0;
  for (const int64_t i : {int64_t{0}, tiles.rows - 1})
    for (const int64_t j : {int64_t{0}, tiles.cols - 1}) {
      const int64_t row = i * tiles.m, col = j * tiles.n;
      const Matmul part = part_of(op, {row, std::min(tiles.m, op.m() - row), col, std::min(tiles.n, op.n() - col)});
      most = std::max(most, plan_for(key_of(part)).scratch_bytes());
    }
  return most;
}

const DnnlMatmul::Plan& DnnlMatmul::plan_for(const Key& key) {
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  if (plans_.size() >= kMostPlans) plans_.clear();
  return plans_.emplace(key, make_plan(key)).first->second;
}

DnnlMatmul::Plan DnnlMatmul::make_plan(const Key& key) const {
  // The number of threads is baked into a primitive when it is made.
  const OmpThreads scope(numerics_ == Numerics::fast ? threads_ : 1);
  Plan plan;
  plan.a = matrix(key.m, key.k, key.in, key.a_stride, key.trans_a);
  plan.b = matrix(key.k, key.n, key.in, key.b_stride, key.trans_b);
  plan.out = matrix(key.m, key.n, key.out, key.out_stride, false);
  if (key.bias) plan.bias = matrix(1, key.n, key.in, key.n, false);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
  try {
    const dnnl::matmul::primitive_desc desc = describe(engine_, plan.a, plan.b, plan.bias, plan.out, attr);
    if (std::string_view(desc.impl_info_str()).starts_with("ref")) return plan;  // plain loops: widening is faster
    plan.scratch = desc.scratchpad_desc();
    plan.primitive = dnnl::matmul(desc);
    plan.kernel = desc.impl_info_str();
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented) throw;
  }
  return plan;
}

void DnnlMatmul::execute(const Plan& plan, const Matmul& op, std::byte* scratch, dnnl::stream& stream) const {
  std::unordered_map<int, memory> operands{{DNNL_ARG_SRC, memory(plan.a, engine_, op.a.data)},
                                           {DNNL_ARG_WEIGHTS, memory(plan.b, engine_, op.b.data)},
                                           {DNNL_ARG_DST, memory(plan.out, engine_, op.out.data)},
                                           {DNNL_ARG_SCRATCHPAD, memory(plan.scratch, engine_, scratch)}};
  if (op.bias) operands.emplace(DNNL_ARG_BIAS, memory(plan.bias, engine_, op.bias.data));
  plan.primitive.execute(stream, operands);
  stream.wait();
}

}  // namespace weft
