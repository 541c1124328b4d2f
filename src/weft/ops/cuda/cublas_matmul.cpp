#include "weft/ops/cuda/cublas_matmul.h"

#include <optional>

#include "weft/base/error.h"
#include "weft/ops/cuda/cuda_workspace.h"

namespace weft {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(fmt::format("cannot {}: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t type_of(DType t) {
  if (t == DType::f32) return CUDA_R_32F;
  return t == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

constexpr uint32_t kLeastBias = 16;  // bytes: what a bias added by the library must be aligned to

// Bytes that a tensor's address is a multiple of; more than 256 mean nothing to the library.
uint32_t alignment_of(const Tensor& t) {
  constexpr uintptr_t kMost = 256;
  const auto address = reinterpret_cast<uintptr_t>(t.data) | kMost;
  return uint32_t(address & ~(address - 1));
}

}  // namespace

// The library's matrices lie by columns, where weft's lie by rows: it is asked for out^T = op(b)^T op(a)^T, whose
// operands in memory are b and a as they are.
class CublasMatmul::Product {
 public:
  explicit Product(const Matmul& op) {
    check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a matrix product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, op.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (op.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(op.bias.dtype));
      point_at_bias(op.bias.data);
    }
    a = layout(op.b);
    b = layout(op.a);
    out = layout(op.out);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    for (cublasLtMatrixLayout_t one : {a, b, out})
      if (one != nullptr) cublasLtMatrixLayoutDestroy(one);
    if (desc != nullptr) cublasLtMatmulDescDestroy(desc);
  }

  // The one operand that is part of the description.
  void point_at_bias(const void* bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  std::optional<cublasLtMatmulAlgo_t> way;  // none: the library has none

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) {
    check(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value), "describe a matrix product");
  }
  static cublasLtMatrixLayout_t layout(const Tensor& t) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, type_of(t.dtype), uint64_t(t.cols()), uint64_t(t.rows()), t.row_stride),
          "describe a matrix");
    return made;
  }
};

CublasMatmul::CublasMatmul() { check(cublasLtCreate(&handle_), "begin with cuBLASLt"); }
CublasMatmul::~CublasMatmul() { cublasLtDestroy(handle_); }

CublasMatmul::Product& CublasMatmul::product_of(const Matmul& op) {
  WEFT_CHECK(op.b.dtype == op.a.dtype && (!op.bias || op.bias.dtype == op.a.dtype), "types the rules refuse");
  const uint32_t a = alignment_of(op.a), b = alignment_of(op.b), out = alignment_of(op.out);
  const uint32_t bias = op.bias ? alignment_of(op.bias) : 0;
  const Key key{op.m(), op.n(),     op.k(),       op.a.row_stride, op.b.row_stride, op.out.row_stride, a, b, out,
                bias,   op.a.dtype, op.out.dtype, op.trans_a,      op.trans_b,      op.accumulate};
  const auto found = products_.find(key);
  if (found != products_.end()) return *found->second;
  auto product = std::make_unique<Product>(op);
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "ask for a matrix product");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value), "ask for a matrix product");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kCublasWorkspace});
  // Parts of a sum over k are added in f32 and in one order: neither in the output's type nor as they come.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b);  // its a is weft's b
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out);
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, product->desc, product->a, product->b, product->out, product->out, preference, 1, &result, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "choose how to multiply matrices");
  if (status == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS) product->way = result.algo;
  return *(products_[key] = std::move(product));
}

bool CublasMatmul::run(const Matmul& op, void* workspace, cudaStream_t stream) {
  if (op.m() == 0 || op.n() == 0 || op.k() == 0) return false;
  if (op.bias && alignment_of(op.bias) < kLeastBias) return false;
  Product& product = product_of(op);
  if (!product.way) return false;
  if (op.bias) product.point_at_bias(op.bias.data);
  const float one = 1, kept = op.accumulate ? 1 : 0;
  check(
      cublasLtMatmul(handle_, product.desc, &one, op.b.data, product.a, op.a.data, product.b, &kept, op.out.data,
                     product.out, op.out.data, product.out, &*product.way, workspace, size_t(kCublasWorkspace), stream),
      "multiply matrices");
  return true;
}

}  // namespace weft
