#include "weft/ops/cuda/cudnn_plan.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

using gpu::GraphOp;
using gpu::GraphTensor;
using gpu::GraphType;

constexpr int64_t kAlignment = 16;  // bytes, of every tensor

cudnnDataType_t type_of(GraphType t) {
  switch (t) {
    case GraphType::f32:
      return CUDNN_DATA_FLOAT;
    case GraphType::f16:
      return CUDNN_DATA_HALF;
    case GraphType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case GraphType::i32:
      return CUDNN_DATA_INT32;
    case GraphType::boolean:
      return CUDNN_DATA_BOOLEAN;
  }
  WEFT_CHECK(false, "a type of graphs");
}

cudnnPointwiseMode_t mode_of(GraphOp op) {
  switch (op) {
    case GraphOp::add:
      return CUDNN_POINTWISE_ADD;
    case GraphOp::subtract:
      return CUDNN_POINTWISE_SUB;
    case GraphOp::multiply:
      return CUDNN_POINTWISE_MUL;
    case GraphOp::divide:
      return CUDNN_POINTWISE_DIV;
    case GraphOp::exp:
      return CUDNN_POINTWISE_EXP;
    case GraphOp::log:
      return CUDNN_POINTWISE_LOG;
    case GraphOp::copy:
      return CUDNN_POINTWISE_IDENTITY;
    case GraphOp::row_number:
    case GraphOp::column_number:
      return CUDNN_POINTWISE_GEN_INDEX;
    case GraphOp::not_less:
      return CUDNN_POINTWISE_CMP_GE;
    case GraphOp::greater:
      return CUDNN_POINTWISE_CMP_GT;
    case GraphOp::choose:
      return CUDNN_POINTWISE_BINARY_SELECT;
    default:
      WEFT_CHECK(false, "no operation element by element");
  }
}

// The library's descriptions of a graph, each before those that refer to it.
class Parts {
 public:
  Parts(Cudnn cudnn, const gpu::AttentionGraph& graph, cudnnHandle_t handle)
      : cudnn_(std::move(cudnn)),
        whole_(cudnn_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "describe attention as a graph") {
    for (const GraphTensor& one : graph.tensors) tensors_.push_back(tensor(one));
    for (const gpu::GraphStep& one : graph.steps) steps_.push_back(step(one));
    whole_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, steps_);
    if (handle != nullptr) whole_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    whole_.finish();
  }
  // The graph last.
  std::vector<CudnnDescriptor> take() && {
    std::vector<CudnnDescriptor> all = std::move(tensors_);
    for (std::vector<CudnnDescriptor>* some : {&modes_, &steps_})
      for (CudnnDescriptor& one : *some) all.push_back(std::move(one));
    all.push_back(std::move(whole_));
    return all;
  }

 private:
  CudnnDescriptor tensor(const GraphTensor& t) const {
    CudnnDescriptor made(cudnn_, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "describe a tensor of attention");
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type_of(t.type))
        .set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, int64_t(t.dims.size()), t.dims.data())
        .set_all(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, int64_t(t.strides.size()), t.strides.data())
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, t.id)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, t.place == GraphTensor::Place::between)
        .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, t.place == GraphTensor::Place::number);
    made.finish();
    return made;
  }
  CudnnDescriptor step(const gpu::GraphStep& one) {
    switch (one.op) {
      case GraphOp::matmul:
        return matmul(one);
      case GraphOp::transpose:
        return transpose(one);
      case GraphOp::largest:
        return reduction(one, CUDNN_REDUCE_TENSOR_MAX);
      case GraphOp::sum:
        return reduction(one, CUDNN_REDUCE_TENSOR_ADD);
      default:
        return pointwise(one);
    }
  }
  CudnnDescriptor matmul(const gpu::GraphStep& one) {
    CudnnDescriptor& how = modes_.emplace_back(cudnn_, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "describe a product");
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finish();
    CudnnDescriptor made(cudnn_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "describe a product of attention");
    made.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how)
        .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[one.in[0]])
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[one.in[1]])
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[one.out])
        .finish();
    return made;
  }
  CudnnDescriptor transpose(const gpu::GraphStep& one) {
    CudnnDescriptor made(cudnn_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "describe a transposed tensor");
    made.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[one.in[0]])
        .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[one.out])
        .finish();
    return made;
  }
  CudnnDescriptor reduction(const gpu::GraphStep& one, cudnnReduceTensorOp_t by) {
    CudnnDescriptor& how = modes_.emplace_back(cudnn_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "describe a sum");
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, by)
        .finish();
    CudnnDescriptor made(cudnn_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "describe a sum of attention");
    made.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[one.in[0]])
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[one.out])
        .finish();
    return made;
  }
  CudnnDescriptor pointwise(const gpu::GraphStep& one) {
    CudnnDescriptor& how = modes_.emplace_back(cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "describe elements");
    const bool compares = one.op == GraphOp::not_less || one.op == GraphOp::greater;
    const cudnnDataType_t computed = compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode_of(one.op))
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, computed);
    if (one.op == GraphOp::row_number) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, int64_t{2});
    if (one.op == GraphOp::column_number) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, int64_t{3});
    how.finish();
    constexpr std::array kIn = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    CudnnDescriptor made(cudnn_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "describe elements of attention");
    made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[one.out]);
    for (size_t i = 0; i < one.in.size(); ++i) made.set(kIn.at(i), tensors_[one.in[i]]);
    made.finish();
    return made;
  }

  Cudnn cudnn_;
  CudnnDescriptor whole_;
  std::vector<CudnnDescriptor> tensors_, modes_, steps_;
};

// Whether its numbers are the same each time, in the library's words.
bool repeats(const CudnnDescriptor& engine) {
  const auto notes = engine.get_all<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == notes.end();
}

CudnnWay way_of(const Cudnn& cudnn, CudnnDescriptor config) {
  std::vector<CudnnDescriptor> engine;
  engine.emplace_back(cudnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "hear which engine computes attention");
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  const auto number = engine.front().get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64);
  const auto bytes = config.get<int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  return {std::move(config), number, bytes, repeats(engine.front())};
}

void add_ways(const Cudnn& cudnn, const CudnnGraph& graph, const CudnnDescriptor* described,
              cudnnBackendHeurMode_t mode, std::vector<CudnnWay>& to) {
  CudnnDescriptor asked(cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "ask how to compute attention");
  asked.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.whole())
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (described != nullptr) asked.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *described);
  asked.finish();
  std::vector<CudnnDescriptor> configs;
  for (int64_t n = asked.count_of(CUDNN_ATTR_ENGINEHEUR_RESULTS); n > 0; --n)
    configs.emplace_back(cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "hear how to compute attention");
  const int64_t count = asked.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, configs);
  for (int64_t i = 0; i < count; ++i) to.push_back(way_of(cudnn, std::move(configs[size_t(i)])));
}

}  // namespace

CudnnGraph::CudnnGraph(const Cudnn& cudnn, const gpu::AttentionGraph& graph, cudnnHandle_t handle)
    : parts_(Parts(cudnn, graph, handle).take()) {}

std::vector<CudnnWay> ways_to_compute(const Cudnn& cudnn, const CudnnGraph& graph, const CudnnDescriptor* described) {
  std::vector<CudnnWay> ways;
  std::string why;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      add_ways(cudnn, graph, described, mode, ways);
    } catch (const CudnnError& e) { why = e.what(); }
  }
  if (ways.empty() && !why.empty()) throw CudnnError(why);
  return ways;
}

CudnnPlan::CudnnPlan(Cudnn cudnn, const gpu::AttentionGraph& graph, cudnnHandle_t handle, const CudnnTerms& terms)
    : cudnn_(std::move(cudnn)), graph_(cudnn_, graph, handle) {
  std::string why;
  for (CudnnWay& way : ways_to_compute(cudnn_, graph_, nullptr)) {
    if (terms.repeats && !way.repeats) {
      why += fmt::format("; engine {} may give other bits each time", way.engine);
    } else if (way.workspace_bytes > terms.most_workspace) {
      why += fmt::format("; engine {} wants {} bytes of workspace, more than {}", way.engine, way.workspace_bytes,
                         terms.most_workspace);
    } else if (take(way.config, handle, terms.most_workspace, why)) {
      config_.push_back(std::move(way.config));
      return;
    }
  }
  throw CudnnError(fmt::format("cuDNN {} has no way to compute it that weft takes{}", cudnn_->version(), why));
}

// It is compiled for the GPU here.
bool CudnnPlan::take(const CudnnDescriptor& config, cudnnHandle_t handle, int64_t most_workspace, std::string& why) {
  try {
    CudnnDescriptor plan(cudnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan attention");
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle)
        .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
        .finish();
    const auto bytes = plan.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
    if (bytes > most_workspace) throw CudnnError(fmt::format("a plan wants {} bytes of workspace", bytes));
    plan_.push_back(std::move(plan));
    return true;
  } catch (const CudnnError& e) {
    why += fmt::format("; {}", e.what());
    return false;
  }
}

void CudnnPlan::run(cudnnHandle_t handle, const AttentionData& data, void* workspace) const {
  std::vector<int64_t> numbers;
  std::vector<void*> places;
  for (const auto& [argument, place] : data) {
    numbers.push_back(int64_t(argument));
    places.push_back(place);
  }
  CudnnDescriptor pack(cudnn_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "hand tensors to cuDNN");
  pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, int64_t(numbers.size()), numbers.data())
      .set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, int64_t(places.size()), places.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
      .finish();
  cudnn_->check(cudnn_->execute(handle, plan_.front().raw(), pack.raw()), "run attention by cuDNN");
}

}  // namespace weft
