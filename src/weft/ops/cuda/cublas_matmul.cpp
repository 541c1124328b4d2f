#include "weft/ops/cuda/cublas_matmul.h"

#include <algorithm>
#include <cstring>

#include "weft/device/cuda/cuda_check.h"
#include "weft/ops/cuda/cannot_record.h"
#include "weft/ops/cuda/cublas_trial.h"
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

constexpr int64_t kAligned = 16;  // bytes
constexpr int kMostWays = 8;      // that the library is asked for

// In how many parts the sum over k is made; -1 where the library does not say.
int32_t parts_of(const ProductWay& way) {
  cublasLtMatmulAlgo_t algorithm = {};
  static_assert(sizeof algorithm.data == sizeof way.algorithm);
  std::memcpy(algorithm.data, way.algorithm.data(), sizeof algorithm.data);
  int32_t parts = -1;
  size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written);
  return status == CUBLAS_STATUS_SUCCESS ? parts : -1;
}

// Whether the bits of its results show in which order it was summed. What is added to 16 bits may hide them.
bool shows_its_order(const Matmul& op) { return !op.accumulate || op.out.dtype == DType::f32; }

bool has_aligned_rows(const Tensor& t) {
  return alignment_of(t) >= kAligned && t.row_stride * size_of(t.dtype) % kAligned == 0;
}
// The library adds a bias of out's type. It rounds before that where its fast kernels cannot do the product (seen with
// cuBLASLt 13.1 on an H200, in bf16, rows of 31 and of 129 numbers).
bool can_add_bias(const Matmul& op) {
  return op.bias.dtype == op.out.dtype && alignment_of(op.bias) >= kAligned &&
         (op.out.dtype == DType::f32 || (has_aligned_rows(op.a) && has_aligned_rows(op.b) && has_aligned_rows(op.out)));
}

bool is_captured(cudaStream_t queue) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(queue, &status), "ask whether the queue is captured");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

// The library's matrices lie by columns, where weft's lie by rows: it is asked for out^T = op(b)^T op(a)^T, whose
// operands in memory are b and a as they are.
class CublasMatmul::Product {
 public:
  explicit Product(const Matmul& op) : key(product_key_of(op)) {
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

  ProductKey key;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  std::optional<ProductChoice> choice;  // none: the library has no way

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

CublasMatmul::CublasMatmul(std::shared_ptr<ProductCache> cache, std::function<void()> before_wait)
    : cache_(std::move(cache)), before_wait_(std::move(before_wait)) {
  check(cublasLtCreate(&handle_), "begin with cuBLASLt");
}
CublasMatmul::~CublasMatmul() { cublasLtDestroy(handle_); }

bool CublasMatmul::run(const Matmul& op, void* workspace, cudaStream_t queue) {
  if (op.m() == 0 || op.n() == 0 || op.k() == 0) return false;
  if (op.bias && !can_add_bias(op)) return false;
  Product& product = product_of(op);
  if (!product.choice) return false;
  if (op.bias) product.point_at_bias(op.bias.data);
  const Call call{op, workspace, queue};
  if (product.choice->is_open()) {
    if (is_captured(queue)) throw gpu::CannotRecord();  // with what may be the slower way
    if (product.choice->is_due()) learn(product, call);
  }
  check(issue(product, call, product.choice->way(), op.out.data), "multiply matrices");
  return true;
}

CublasMatmul::Product& CublasMatmul::product_of(const Matmul& op) {
  WEFT_CHECK(op.b.dtype == op.a.dtype && (!op.bias || op.bias.dtype == op.a.dtype), "types the rules refuse");
  const auto found = products_.find(product_key_of(op));
  if (found != products_.end()) return *found->second;
  auto product = std::make_unique<Product>(op);
  const std::vector<ProductWay> first = ways_of(*product, 1);
  if (!first.empty()) {
    // A way from the file counts only if the library itself lists it.
    std::optional<ProductWay> kept = cache_->find(product->key);
    if (kept && *kept != first[0]) {
      const std::vector<ProductWay> all = all_ways_of(*product);
      if (std::find(all.begin(), all.end(), *kept) == all.end()) kept.reset();
    }
    product->choice.emplace(first[0], shows_its_order(op) ? op.m() * op.n() : 0, kept);
  }
  return *(products_[product->key] = std::move(product));
}

// The best ones first, as the library supposes.
std::vector<ProductWay> CublasMatmul::ways_of(const Product& product, int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "ask for a matrix product");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value), "ask for a matrix product");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kCublasWorkspace});
  // Parts of a sum over k are added in f32 and in one order: neither in the output's type nor as they come.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.key.b_alignment);  // its a is weft's b
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.key.a_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product.key.out_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.key.out_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, product.desc, product.a, product.b, product.out,
                                                               product.out, preference, most, results.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "choose how to multiply matrices");
  results.resize(size_t(std::clamp(count, 0, most)));
  std::vector<ProductWay> ways;
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > size_t(kCublasWorkspace)) continue;
    ProductWay& way = ways.emplace_back();
    std::memcpy(way.algorithm.data(), result.algo.data, sizeof result.algo.data);
    way.workspace_bytes = int64_t(result.workspaceSize);
  }
  return ways;
}

// None where the library fails to say.
std::vector<ProductWay> CublasMatmul::all_ways_of(const Product& product) const {
  try {
    return ways_of(product, kMostWays);
  } catch (const Error&) { return {}; }
}

void CublasMatmul::learn(Product& product, const Call& call) {
  const ProductWay& first = product.choice->first();
  // A sum in other parts has other bits: that needs no trial.
  const auto alike = [&] {
    std::vector<ProductWay> ways = all_ways_of(product);
    std::erase_if(ways, [&](const ProductWay& way) { return parts_of(way) != parts_of(first); });
    return ways;
  };
  const auto run = [&](const ProductWay& way, void* to) {
    return issue(product, call, way, to) == CUBLAS_STATUS_SUCCESS;
  };
  const Matmul& op = call.op;
  before_wait_();
  const auto trial = begin_trial(
      {.out = op.out, .anyway = op.accumulate ? op.out : op.bias, .first = first, .ways = alike, .run = run},
      call.queue);
  if (!trial) return product.choice->pass();
  if (const auto found = product.choice->learn(*trial)) cache_->put(product.key, *found);
}

// `out` is laid out as call.op.out, which is what is added to.
cublasStatus_t CublasMatmul::issue(const Product& product, const Call& call, const ProductWay& way, void* out) {
  cublasLtMatmulAlgo_t algorithm = {};
  std::memcpy(algorithm.data, way.algorithm.data(), sizeof algorithm.data);
  const float one = 1, kept = call.op.accumulate ? 1 : 0;
  return cublasLtMatmul(handle_, product.desc, &one, call.op.b.data, product.a, call.op.a.data, product.b, &kept,
                        call.op.accumulate ? call.op.out.data : out, product.out, out, product.out, &algorithm,
                        call.workspace, size_t(kCublasWorkspace), call.queue);
}

}  // namespace weft
