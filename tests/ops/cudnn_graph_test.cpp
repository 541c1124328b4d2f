// What cuDNN says of attention's graphs where there is no GPU: it takes them, and has ways to compute them on GPUs that
// are only described to it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "weft/ops/cuda/attention_batch.h"
#include "weft/ops/cuda/cudnn_plan.h"

namespace weft {
namespace {

Cudnn cudnn() {
  try {
    return CudnnLibrary::open();
  } catch (const CudnnError&) { return nullptr; }
}
#define WEFT_NEEDS_CUDNN()             \
  const Cudnn library = weft::cudnn(); \
  if (library == nullptr) GTEST_SKIP() << "there is no cuDNN"

gpu::AttentionShape shape_of(int64_t sequences, int64_t length, const AttentionHeads& h, bool backward, DType t) {
  const int64_t q = h.q * h.dim, qkv = q + 2 * h.kv * h.dim;  // columns of one matrix
  gpu::AttentionShape s{.backward = backward,
                        .dtype = t,
                        .sequences = sequences,
                        .length = length,
                        .heads = h.q,
                        .kv_heads = h.kv,
                        .dim = h.dim,
                        .window = h.window,
                        .q_stride = qkv,
                        .k_stride = qkv,
                        .v_stride = qkv,
                        .o_stride = q};
  if (backward) s.dout_stride = q, s.dq_stride = s.dk_stride = s.dv_stride = qkv;
  return s;
}

// GPT-2 124M, Llama 3 1B and 8B as they are trained, and what is small and odd.
std::vector<gpu::AttentionShape> shapes() {
  std::vector<gpu::AttentionShape> all;
  for (const bool backward : {false, true}) {
    for (const DType t : {DType::bf16, DType::f16}) {
      all.push_back(shape_of(64, 1024, {.q = 12, .kv = 12, .dim = 64}, backward, t));
      all.push_back(shape_of(8, 2048, {.q = 32, .kv = 8, .dim = 64}, backward, t));
      all.push_back(shape_of(2, 8192, {.q = 32, .kv = 8, .dim = 128}, backward, t));
      all.push_back(shape_of(1, 128, {.q = 1, .kv = 1, .dim = 8}, backward, t));
      all.push_back(shape_of(3, 384, {.q = 6, .kv = 2, .dim = 80}, backward, t));
      all.push_back(shape_of(2, 8192, {.q = 32, .kv = 8, .dim = 128, .window = 4096}, backward, t));
      all.push_back(shape_of(2, 256, {.q = 4, .kv = 2, .dim = 32, .window = 3}, backward, t));
    }
  }
  return all;
}

std::vector<gpu::AttentionShape> shapes_and_those_that_need_not_repeat() {
  std::vector<gpu::AttentionShape> all = shapes();
  for (gpu::AttentionShape shape : shapes()) {
    shape.repeats = false;
    if (shape.backward) all.push_back(shape);
  }
  return all;
}

std::string name_of_shape(const gpu::AttentionShape& s) {
  return fmt::format("{}{} {} x {}, window {}, {} and {} heads of {}, {}", s.backward ? "backward" : "forward",
                     s.repeats ? "" : ", any bits,", s.sequences, s.length, s.window, s.heads, s.kv_heads, s.dim,
                     name_of(s.dtype));
}

TEST(CudnnGraph, EveryGraphIsTaken) {
  WEFT_NEEDS_CUDNN();
  for (const gpu::AttentionShape& shape : shapes_and_those_that_need_not_repeat()) {
    const CudnnGraph graph(library, gpu::attention_graph(shape));
    EXPECT_GT(graph.whole().get<int64_t>(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64), 0)
        << name_of_shape(shape);
  }
}

TEST(CudnnGraph, WhatItDoesNotTakeIsAnErrorWithItsReason) {
  WEFT_NEEDS_CUDNN();
  gpu::AttentionGraph graph = gpu::attention_graph(shapes().front());
  graph.tensors.front().dims[3] = -1;
  try {
    const CudnnGraph made(library, graph);
    FAIL() << "a width of -1 was taken";
  } catch (const CudnnError& e) {
    EXPECT_NE(std::string(e.what()).find("cannot describe a tensor of attention: CUDNN_STATUS_"), std::string::npos)
        << e.what();
  }
}

// As the library itself writes them down.
CudnnDescriptor described(const Cudnn& library, int capability, int processors, int64_t shared, const char* name) {
  const std::string json =
      fmt::format(R"({{"deviceVer":{},"multiProcessorCount":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
                  R"("maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
                  R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"regsPerBlock":65536,)"
                  R"("totalGlobalMem":85017755648,"smClockRateKHz":1410000,"l2CacheSize":41943040,)"
                  R"("maxBlockSize":[1024,1024,64],"memClockRateKHz":1215000,"maxGridSize":[2147483647,65535,65535],)"
                  R"("supportCoopLaunch":1,"pciDeviceId":0,"isTccDriver":0,"cudaDeviceId":0,"driverVer":13000,)"
                  R"("deviceName":"{}"}})",
                  capability, processors, shared, name);
  CudnnDescriptor gpu(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "describe a GPU");
  gpu.set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, int64_t(json.size()), json.data()).finish();
  return gpu;
}

// The library looks for a driver even to advise on a GPU that is described. The toolkit has one that does nothing.
bool has_driver() { return dlopen("libcuda.so.1", RTLD_NOW) != nullptr || dlopen(WEFT_CUDA_STUB, RTLD_NOW) != nullptr; }

TEST(CudnnGraphSlow, AnA100AndAnH100HaveWaysThatFit) {
  WEFT_NEEDS_CUDNN();
  if (!has_driver()) GTEST_SKIP() << "there is neither an NVIDIA driver nor the toolkit's stand-in";
  std::vector<CudnnDescriptor> gpus;
  gpus.push_back(described(library, 800, 108, 166912, "NVIDIA A100-SXM4-80GB"));
  gpus.push_back(described(library, 900, 132, 232448, "NVIDIA H100 80GB HBM3"));
  for (const CudnnDescriptor& gpu : gpus) {
    for (const gpu::AttentionShape& shape : shapes_and_those_that_need_not_repeat()) {
      const auto batches = gpu::batches_of(shape);
      ASSERT_TRUE(batches) << name_of_shape(shape);
      const CudnnGraph graph(library, gpu::attention_graph(batches->batch));
      const std::vector<CudnnWay> ways = ways_to_compute(library, graph, &gpu);
      const auto fits = [&](const CudnnWay& way) {
        return (way.repeats || !shape.repeats) && way.workspace_bytes <= batches->workspace_bytes;
      };
      ASSERT_FALSE(ways.empty()) << name_of_shape(shape);
      EXPECT_TRUE(fits(ways.front())) << name_of_shape(shape) << ": " << ways.front().workspace_bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace weft
