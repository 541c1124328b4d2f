// The ways to multiply matrices on this machine, side by side: weft's CpuMatmul, oneDNN's sgemm, oneDNN's primitive.
//   matmul_bench [threads] [seconds for each product] [bf16: that alone]
// Each product is one of a training step: forward y = x W^T, dgrad dx = dy W, wgrad dW += dy^T x. The ways take turns
// call by call, so that they meet the same state of a machine that others use too; what counts is the ratio of their
// 10th percentiles. Weights and their gradients come from several buffers in turn, so they are never in a cache.
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "weft/device/arena.h"
#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/cpu/matmul.h"
#include "weft/ops/cpu/matmul_amx.h"
#include "weft/ops/cpu/matmul_dnnl.h"
#include "weft/ops/cpu/omp_threads.h"

namespace weft {
namespace {

struct Layer {
  int64_t tokens, in, out;
};
struct Model {
  std::string name;
  std::vector<Layer> layers;
};
std::vector<Model> models() {
  return {{"GPT-2 124M, 256 tokens",
           {{256, 768, 2304}, {256, 768, 768}, {256, 768, 3072}, {256, 3072, 768}, {256, 768, 50257}}},
          {"GPT-2 30M, 2048 tokens",
           {{2048, 384, 1152}, {2048, 384, 384}, {2048, 384, 1536}, {2048, 1536, 384}, {512, 384, 50257}}},
          {"Llama d 512, 2048 tokens",
           {{2048, 512, 1024}, {2048, 512, 512}, {2048, 512, 2752}, {2048, 1376, 512}, {512, 512, 32000}}},
          {"large", {{4096, 4096, 4096}}}};
}

enum class Pass { forward, dgrad, wgrad };
constexpr const char* kPassNames[] = {"forward", "dgrad", "wgrad"};

// The tensors of a layer, of one type; gradients of weights are f32.
class Operands {
 public:
  Operands(const Layer& layer, DType type)
      : arena_("bench", bytes(layer, type)),
        x_(arena_.alloc(type, {layer.tokens, layer.in})),
        y_(arena_.alloc(type, {layer.tokens, layer.out})) {
    for (int i = 0; i < weights(layer); ++i) {
      w_.push_back(arena_.alloc(type, {layer.out, layer.in}));
      dw_.push_back(arena_.alloc(DType::f32, {layer.out, layer.in}));
      fill(w_.back());
      fill(dw_.back());
    }
    fill(x_);
    fill(y_);
  }
  Matmul product(Pass pass, int turn) const {
    const size_t i = size_t(turn) % w_.size();
    if (pass == Pass::forward) return {.a = x_, .b = w_[i], .out = y_, .trans_b = true};
    if (pass == Pass::dgrad) return {.a = y_, .b = w_[i], .out = x_};
    return {.a = y_, .b = x_, .out = dw_[i], .trans_a = true, .accumulate = true};
  }

 private:
  static int weights(const Layer& l) { return int(std::clamp<int64_t>((64 << 20) / (l.in * l.out * 4), 1, 8)); }
  static int64_t bytes(const Layer& l, DType type) {
    return (l.tokens * (l.in + l.out) + weights(l) * l.in * l.out) * size_of(type) + weights(l) * l.in * l.out * 4 +
           1024 * kArenaAlignment;
  }
  static void fill(const Tensor& t) {
    for (int64_t i = 0; i < t.elements(); ++i) {
      const float x = float(i * 2654435761 % 17) * 0.05f - 0.4f;
      if (t.dtype == DType::bf16)
        t.as<bf16>()[i] = bf16(x);
      else
        t.as<float>()[i] = x;
    }
  }
  Arena arena_;
  Tensor x_, y_;
  std::vector<Tensor> w_, dw_;
};

struct Way {
  std::string name;
  std::function<void(const Matmul&)> run;
};

void run_sgemm(const Matmul& op) {
  dnnl_sgemm(op.trans_a ? 'T' : 'N', op.trans_b ? 'T' : 'N', op.m(), op.n(), op.k(), 1.0f, op.a.as<float>(),
             op.a.row_stride, op.b.as<float>(), op.b.row_stride, op.accumulate ? 1.0f : 0.0f, op.out.as<float>(),
             op.out.row_stride);
}

// The 10th percentile of each way's times, in seconds.
std::vector<double> time_ways(const std::vector<Way>& ways, const Operands& operands, Pass pass, double budget_s) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> times(ways.size());
  const auto end = Clock::now() + std::chrono::duration<double>(budget_s);
  for (int turn = 0; turn < 4 || Clock::now() < end; ++turn)
    for (size_t w = 0; w < ways.size(); ++w) {
      const Matmul op = operands.product(pass, turn);
      const auto begin = Clock::now();
      ways[w].run(op);
      if (turn > 0) times[w].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  std::vector<double> result;
  for (auto& t : times) {
    std::sort(t.begin(), t.end());
    result.push_back(t[t.size() / 10]);
  }
  return result;
}

// Prints GFLOP/s of each way, and how many times faster the first is than each other.
void compare(const std::string& title, const std::vector<Way>& ways, DType type, double budget_s) {
  fmt::print("\n{}\n{:>6} {:>5} {:>6} {:<8}", title, "tokens", "in", "out", "");
  for (const Way& way : ways) fmt::print("{:>12}", way.name);
  fmt::print("   ratios\n");
  for (const Model& model : models()) {
    std::vector<double> total(ways.size());
    for (const Layer& layer : model.layers) {
      const Operands operands(layer, type);
      const double flops = 2.0 * double(layer.tokens) * double(layer.in) * double(layer.out);
      for (const Pass pass : {Pass::forward, Pass::dgrad, Pass::wgrad}) {
        const std::vector<double> s = time_ways(ways, operands, pass, budget_s);
        fmt::print("{:>6} {:>5} {:>6} {:<8}", layer.tokens, layer.in, layer.out, kPassNames[int(pass)]);
        for (const double t : s) fmt::print("{:>12.0f}", flops / t * 1e-9);
        for (size_t w = 1; w < s.size(); ++w) fmt::print("{:>8.2f}", s[w] / s[0]);
        for (size_t w = 0; w < s.size(); ++w) total[w] += s[w];
        fmt::print("\n");
        std::fflush(stdout);
      }
    }
    fmt::print("{:<28}", model.name + ", ms");
    for (const double t : total) fmt::print("{:>12.2f}", t * 1e3);
    for (size_t w = 1; w < total.size(); ++w) fmt::print("{:>8.2f}", total[w] / total[0]);
    fmt::print("\n");
  }
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const double budget_s = argc > 2 ? std::atof(argv[2]) : 0.2;
  const std::string types = argc > 3 ? argv[3] : "";
  const OmpThreads scope(threads);
  Arena memory("workspace", int64_t{1} << 30);
  auto* workspace = static_cast<std::byte*>(memory.alloc(DType::u8, {memory.capacity()}).data);
  CpuMatmul fast(threads, Numerics::fast), invariant(threads, Numerics::invariant);
  DnnlMatmul primitive(threads, Numerics::fast), primitive_tiles(threads, Numerics::invariant);
  const Way weft{"weft", [&](const Matmul& op) { fast.run(op, workspace); }};
  if (types != "bf16")
    compare(fmt::format("f32, {} threads", threads),
            {weft, {"sgemm", run_sgemm}, {"primitive", [&](const Matmul& op) { primitive.run(op, workspace); }}},
            DType::f32, budget_s);
  std::vector<Way> narrow{weft,
                          {"primitive", [&](const Matmul& op) { primitive.run(op, workspace); }},
                          {"invariant", [&](const Matmul& op) { invariant.run(op, workspace); }},
                          {"its tiles", [&](const Matmul& op) { primitive_tiles.run(op, workspace); }}};
  const AmxMatmul tiles(threads);
  if (isa_of_kernels() == CpuIsa::amx)
    narrow.insert(narrow.begin(), {"own tiles", [&](const Matmul& op) { tiles.run(op, workspace); }});
  compare(fmt::format("bf16, {} threads", threads), narrow, DType::bf16, budget_s);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::main(argc, argv); }
