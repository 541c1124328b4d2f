#include "weft/ops/cpu/cpu_backend.h"

#include <cstring>
#include <numeric>

#include "weft/ops/cpu/attention.h"
#include "weft/ops/cpu/attention_sink.h"
#include "weft/ops/cpu/blockwise.h"
#include "weft/ops/cpu/cross_entropy.h"
#include "weft/ops/cpu/dequantise.h"
#include "weft/ops/cpu/distill.h"
#include "weft/ops/cpu/distill_top.h"
#include "weft/ops/cpu/dropout.h"
#include "weft/ops/cpu/experts.h"
#include "weft/ops/cpu/latent_keys.h"
#include "weft/ops/cpu/norm.h"
#include "weft/ops/cpu/optimizer.h"
#include "weft/ops/cpu/pointwise.h"
#include "weft/ops/cpu/reduce.h"
#include "weft/ops/cpu/team.h"

namespace weft {
namespace {

using cpu::Chunks;
using cpu::for_ranges;
using cpu::for_tasks;
using cpu::Range;

// Least work worth a thread of its own.
constexpr int64_t kGrain = 1 << 13;  // elements
constexpr int64_t kColumns = 64;     // of a sum over rows: some cache lines
constexpr int64_t kBlocks = kGrain / kCodeBlock;

// Before threads start: they could not throw.
template <class Op>
void check_types(const Op& op) {
  for (const Field& f : op.fields()) {
    const DType t = f.tensor->dtype;
    WEFT_CHECK(!*f.tensor || t != DType::f64, "the CPU backend computes in f32, bf16 and f16; {} of {} is {}", f.name,
               Op::kName, name_of(t));
  }
}

}  // namespace

CpuBackend::CpuBackend(CpuSpec spec, Arena& workspace)
    : threads_(spec.threads),
      model_(spec),
      matmul_(spec.threads, spec.numerics),
      grouped_(spec.threads),
      workspace_(workspace) {}

// The op's whole workspace, until the caller's Scope ends.
template <class T, class Op>
T* CpuBackend::temporary(const Op& op) {
  return static_cast<T*>(workspace_.alloc(DType::u8, {model_.of(op)}).data);
}

void CpuBackend::run(const AnyOp& op) {
  op.visit([&](const auto& o) { apply(o); });
}

template <class Op>
void CpuBackend::by_rows(const Op& op, const Tensor& x, void (*kernel)(const Op&, Range)) {
  check_types(op);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, x.cols()));
  for_ranges(threads_, x.rows(), grain, [&](Range rows) { kernel(op, rows); });
}
template <class Op>
void CpuBackend::by_elements(const Op& op, const Tensor& x, void (*kernel)(const Op&, Range)) {
  check_types(op);
  for_ranges(threads_, x.elements(), kGrain, [&](Range elements) { kernel(op, elements); });
}
template <class Op>
void CpuBackend::by_blocks(const Op& op, void (*kernel)(const Op&, Range)) {
  check_types(op);
  for_ranges(threads_, op.m_max.elements(), kBlocks, [&](Range blocks) { kernel(op, blocks); });
}

void CpuBackend::apply(const Matmul& op) {
  Scope scope(workspace_);
  matmul_.run(op, temporary<std::byte>(op));
}

void CpuBackend::apply(const BiasGrad& op) {
  check_types(op);
  Scope scope(workspace_);
  float* parts = temporary<float>(op);
  const int64_t n = op.dy.cols();
  const Chunks chunks{op.dy.rows()};
  for_tasks(threads_, chunks.count(), [&](int64_t i, int) { cpu::bias_grad(op, chunks[i], parts + i * n); });
  const cpu::PartSum sum{parts, chunks.count(), n, op.db.as<float>(), op.accumulate};
  for_ranges(threads_, n, kColumns, [&](Range columns) { cpu::sum_parts(sum, columns); });
}

void CpuBackend::apply(const Embed& op) { by_rows(op, op.out, cpu::embed); }

// Every thread adds its columns of all tokens, in their order.
void CpuBackend::apply(const EmbedBackward& op) {
  check_types(op);
  for_ranges(threads_, op.dy.cols(), kColumns, [&](Range columns) { cpu::embed_backward(op, columns); });
}

void CpuBackend::apply(const Norm& op) { by_rows(op, op.x, cpu::norm); }

void CpuBackend::apply(const NormApply& op) { by_rows(op, op.x, cpu::norm_apply); }

void CpuBackend::apply(const NormBackward& op) {
  check_types(op);
  Scope scope(workspace_);
  float* parts = temporary<float>(op);
  const int64_t d = op.x.cols(), stride = op.db ? 2 * d : d;
  const Chunks chunks{op.x.rows()};
  for_tasks(threads_, chunks.count(), [&](int64_t i, int) { cpu::norm_backward(op, chunks[i], parts + i * stride); });
  const auto finish = [&](const Tensor& out, const float* from) {
    const cpu::PartSum sum{from, chunks.count(), stride, out.as<float>(), op.accumulate};
    for_ranges(threads_, d, kColumns, [&](Range columns) { cpu::sum_parts(sum, columns); });
  };
  finish(op.dw, parts);
  if (op.db) finish(op.db, parts + d);
}

void CpuBackend::apply(const HeadNorm& op) { by_rows(op, op.x, cpu::head_norm); }

void CpuBackend::apply(const HeadNormBackward& op) {
  check_types(op);
  Scope scope(workspace_);
  float* parts = temporary<float>(op);
  const int64_t e = op.w.elements();
  const Chunks chunks{op.x.rows()};
  for_tasks(threads_, chunks.count(), [&](int64_t i, int) { cpu::head_norm_backward(op, chunks[i], parts + i * e); });
  cpu::sum_parts({parts, chunks.count(), e, op.dw.as<float>(), op.accumulate}, {0, e});
}

void CpuBackend::apply(const RowDots& op) { by_rows(op, op.x, cpu::row_dots); }

void CpuBackend::apply(const Rope& op) { by_rows(op, op.x, cpu::rope); }

void CpuBackend::apply(const LatentKeys& op) { by_rows(op, op.kv, cpu::latent_keys); }

void CpuBackend::apply(const LatentKeysBackward& op) { by_rows(op, op.dkv, cpu::latent_keys_backward); }

void CpuBackend::apply(const Attention& op) {
  check_types(op);
  Scope scope(workspace_);
  cpu::attention(op, threads_, model_.units(), temporary<std::byte>(op));
}

void CpuBackend::apply(const AttentionBackward& op) {
  check_types(op);
  Scope scope(workspace_);
  cpu::attention_backward(op, threads_, model_.units(), temporary<std::byte>(op));
}

void CpuBackend::apply(const AttentionMerge& op) { by_rows(op, op.o, cpu::attention_merge); }

void CpuBackend::apply(const AttentionSink& op) { by_rows(op, op.o, cpu::attention_sink); }

void CpuBackend::apply(const AttentionSinkBackward& op) {
  check_types(op);
  Scope scope(workspace_);
  float* parts = temporary<float>(op);
  const int64_t h = op.sinks.elements();
  const Chunks chunks{op.o.rows()};
  for_tasks(threads_, chunks.count(),
            [&](int64_t i, int) { cpu::attention_sink_backward(op, chunks[i], parts + i * h); });
  cpu::sum_parts({parts, chunks.count(), h, op.dsinks.as<float>(), op.accumulate}, {0, h});
}

void CpuBackend::apply(const GatedUnit& op) { by_elements(op, op.a, cpu::gated_unit); }

void CpuBackend::apply(const GatedUnitBackward& op) { by_elements(op, op.da, cpu::gated_unit_backward); }

void CpuBackend::apply(const Gelu& op) { by_elements(op, op.y, cpu::gelu); }

void CpuBackend::apply(const GeluBackward& op) { by_elements(op, op.dx, cpu::gelu_backward); }

void CpuBackend::apply(const SoftCap& op) { by_elements(op, op.x, cpu::soft_cap); }

void CpuBackend::apply(const SoftCapBackward& op) { by_elements(op, op.dx, cpu::soft_cap_backward); }

void CpuBackend::apply(const Dropout& op) { by_rows(op, op.x, cpu::dropout); }

void CpuBackend::apply(const CrossEntropy& op) {
  check_types(op);
  Scope scope(workspace_);
  float* const rooms = temporary<float>(op);
  const int64_t rows = op.logits.rows(), shares = std::min<int64_t>(threads_, rows);
  for_tasks(threads_, shares, [&](int64_t i, int thread) {
    cpu::cross_entropy(op, {rows * i / shares, rows * (i + 1) / shares}, rooms + thread * cpu::cross_entropy_room(op));
  });
}
void CpuBackend::apply(const CrossEntropyPart& op) { by_rows(op, op.logits, cpu::cross_entropy_part); }
void CpuBackend::apply(const CrossEntropyJoin& op) { by_rows(op, op.logits, cpu::cross_entropy_join); }
void CpuBackend::apply(const DistillPart& op) { by_rows(op, op.logits, cpu::distill_part); }
void CpuBackend::apply(const DistillJoin& op) { by_rows(op, op.logits, cpu::distill_join); }
void CpuBackend::apply(const DistillTopPart& op) { by_rows(op, op.logits, cpu::distill_top_part); }
void CpuBackend::apply(const DistillTopJoin& op) { by_rows(op, op.logits, cpu::distill_top_join); }

void CpuBackend::apply(const Add& op) { by_elements(op, op.out, cpu::add); }

void CpuBackend::apply(const Axpby& op) { by_elements(op, op.out, cpu::axpby); }

void CpuBackend::apply(const AddRow& op) { by_rows(op, op.y, cpu::add_row); }

void CpuBackend::apply(const ScaleColumns& op) { by_rows(op, op.y, cpu::scale_columns); }

void CpuBackend::apply(const Copy& op) { by_elements(op, op.to, cpu::copy); }

void CpuBackend::apply(const Zero& op) {
  const int64_t size = size_of(op.x.dtype);
  for_ranges(threads_, op.x.elements(), kGrain, [&](Range elements) {
    cpu::for_runs(elements, cpu::run_cols(op.x), [&](int64_t i, int64_t first, int64_t n) {
      std::memset(static_cast<std::byte*>(op.x.data) + (i * op.x.row_stride + first) * size, 0, size_t(n * size));
    });
  });
}

void CpuBackend::apply(const Ones& op) {
  cpu::with_type_of(op.x, [&]<class T>() {
    const auto x = cpu::rows_of<T>(op.x);
    for_ranges(threads_, op.x.elements(), kGrain, [&](Range elements) {
      cpu::for_runs(elements, cpu::run_cols(op.x),
                    [&](int64_t i, int64_t first, int64_t n) { std::fill_n(x[i] + first, n, T(1.0f)); });
    });
  });
}

namespace {
double add_up(double* parts, int64_t n) { return std::accumulate(parts, parts + n, 0.0); }
}  // namespace

void CpuBackend::apply(const Sum& op) {
  reduce(
      op, [](const Tensor& x, Range part) { return cpu::sum(x, part); }, add_up);
}

void CpuBackend::apply(const SumSquares& op) {
  reduce(
      op, [](const Tensor& x, Range part) { return cpu::sum_squares(x, part); }, cpu::tree_sum);
}

void CpuBackend::apply(const CountNonfinite& op) {
  reduce(
      op, [](const Tensor& x, Range part) { return double(cpu::count_nonfinite(x, part)); }, add_up);
}

template <class Op, class F, class G>
void CpuBackend::reduce(const Op& op, const F& part, const G& add) {
  Scope scope(workspace_);
  double* parts = temporary<double>(op);
  const int64_t n = op.x.elements(), count = cpu::sum_parts_of(op.x);
  for_tasks(threads_, count, [&](int64_t i, int) {
    parts[i] = part(op.x, Range{i * cpu::kSumElements, std::min(n, (i + 1) * cpu::kSumElements)});
  });
  *op.out.template as<double>() = add(parts, count);
}

void CpuBackend::apply(const AdamW& op) { by_elements(op, op.w, cpu::adamw); }

void CpuBackend::apply(const AdamW8Max& op) { by_blocks(op, cpu::adamw8_max); }
void CpuBackend::apply(const AdamW8& op) { by_blocks(op, cpu::adamw8); }
void CpuBackend::apply(const MaxRows& op) { by_elements(op, op.out, cpu::max_rows); }

void CpuBackend::apply(const Sgd& op) { by_elements(op, op.w, cpu::sgd); }

void CpuBackend::apply(const Dequantise& op) { by_rows(op, op.out, cpu::dequantise); }

void CpuBackend::apply(const Route& op) { by_rows(op, op.logits, cpu::route); }
void CpuBackend::apply(const RouteBackward& op) { by_rows(op, op.logits, cpu::route_backward); }

void CpuBackend::apply(const RouterSums& op) {
  Scope scope(workspace_);
  double *parts = temporary<double>(op), *sums = op.sums.as<double>();
  const int64_t n = op.sums.elements();
  const Chunks chunks{op.logits.rows()};
  for_tasks(threads_, chunks.count(), [&](int64_t i, int) { cpu::router_sums(op, chunks[i], parts + i * n); });
  for (int64_t i = 0; i < chunks.count(); ++i)
    for (int64_t j = 0; j < n; ++j) sums[j] += parts[i * n + j];
}

void CpuBackend::apply(const ExpertLoad& op) { cpu::expert_load(op); }
void CpuBackend::apply(const GroupRows& op) { cpu::group_rows(op); }
void CpuBackend::apply(const GatherRows& op) { by_rows(op, op.out, cpu::gather_rows); }
void CpuBackend::apply(const SumRows& op) { by_rows(op, op.out, cpu::sum_rows); }
void CpuBackend::apply(const ScaleRows& op) { by_rows(op, op.x, cpu::scale_rows); }
void CpuBackend::apply(const ScaleRowsBackward& op) { by_rows(op, op.x, cpu::scale_rows_backward); }

void CpuBackend::apply(const GroupedMatmul& op) {
  check_types(op);
  Scope scope(workspace_);
  grouped_.run(op, temporary<std::byte>(op));
}
void CpuBackend::apply(const GroupedWeightGrad& op) {
  check_types(op);
  Scope scope(workspace_);
  grouped_.run(op, temporary<std::byte>(op));
}

}  // namespace weft
