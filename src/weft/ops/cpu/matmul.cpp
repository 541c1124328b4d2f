#include "weft/ops/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/cpu/matmul_amx.h"
#include "weft/ops/cpu/matmul_converted.h"
#include "weft/ops/cpu/matmul_dnnl.h"
#include "weft/ops/cpu/matmul_f32.h"
#include "weft/ops/cpu/matmul_few_rows.h"
#include "weft/ops/cpu/rows.h"

namespace weft {
namespace {

// out = bias in every row, or zero: what an empty sum over k leaves.
void run_without_k(const Matmul& op) {
  if (op.accumulate) return;
  const int64_t row_bytes = op.n() * size_of(op.out.dtype), stride_bytes = op.out.row_stride * size_of(op.out.dtype);
  for (int64_t i = 0; i < op.m(); ++i) {
    std::byte* row = static_cast<std::byte*>(op.out.data) + i * stride_bytes;
    if (!op.bias)
      std::memset(row, 0, size_t(row_bytes));
    else if (op.bias.dtype == op.out.dtype)
      std::memcpy(row, op.bias.data, size_t(row_bytes));
    else
      cpu::with_type_of(op.bias, [&]<class T>() {
        for (int64_t j = 0; j < op.n(); ++j) reinterpret_cast<float*>(row)[j] = float(op.bias.as<T>()[j]);
      });
  }
}

}  // namespace

CpuMatmul::CpuMatmul(int threads, Numerics numerics, CpuIsa isa)
    : numerics_(numerics),
      few_rows_(std::make_unique<FewRowsMatmul>(threads, numerics, isa)),
      f32_(std::make_unique<F32Matmul>(threads)),
      amx_(isa == CpuIsa::amx ? std::make_unique<AmxMatmul>(threads) : nullptr),
      converted_(std::make_unique<ConvertedMatmul>(threads)),
      dnnl_(std::make_unique<DnnlMatmul>(threads, numerics)) {
  WEFT_CHECK(threads > 0, "{} threads", threads);
}
CpuMatmul::~CpuMatmul() = default;
CpuMatmul::CpuMatmul(CpuMatmul&&) noexcept = default;
CpuMatmul& CpuMatmul::operator=(CpuMatmul&&) noexcept = default;

// Our kernels for AMX serve what oneDNN is slow at (decision 0004): gradients of weights, and the vocabulary's
// products.
bool CpuMatmul::runs_on_amx(const Matmul& op) const {
  constexpr int64_t kVocabulary = 16384;
  if (amx_ == nullptr || op.a.dtype != DType::bf16) return false;
  if (numerics_ == Numerics::invariant || op.trans_a) return true;
  return std::max(op.n(), op.k()) >= kVocabulary;
}

int64_t CpuMatmul::workspace_bytes(const Matmul& op) const {
  if (op.m() == 0 || op.n() == 0 || op.k() == 0) return 0;
  if (few_rows_->takes(op)) return few_rows_->workspace_bytes(op);
  if (op.a.dtype == DType::f32) return f32_->workspace_bytes(op);
  if (runs_on_amx(op)) return amx_->workspace_bytes(op);
  return dnnl_->supports(op) ? dnnl_->workspace_bytes(op) : converted_->workspace_bytes(op);
}

void CpuMatmul::run(const Matmul& op, std::byte* workspace) {
  if (op.m() == 0 || op.n() == 0) return;
  if (op.k() == 0) return run_without_k(op);
  if (few_rows_->takes(op)) return few_rows_->run(op, workspace);
  if (op.a.dtype == DType::f32) return f32_->run(op, workspace);
  if (runs_on_amx(op)) return amx_->run(op, workspace);
  if (dnnl_->supports(op)) return dnnl_->run(op, workspace);
  converted_->run(op, workspace);
}

std::string CpuMatmul::kernel_of(const Matmul& op) const {
  const bool few = few_rows_->takes(op);
  if (few ? few_rows_->runs_on_amx(op) : runs_on_amx(op)) return "weft's, AMX";
  if (few && few_rows_->multiplies_pairs(op)) return "weft's, AVX-512 bf16";
  if (few || op.a.dtype == DType::f32) return fmt::format("weft's, {}", vector_kernels());
  if (dnnl_->supports(op)) return "oneDNN's, " + dnnl_->kernel_of(op);
  return fmt::format("weft's in f32, {}", vector_kernels());
}

}  // namespace weft
