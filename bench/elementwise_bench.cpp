// Ops that cost bytes and not products, on one core, beside the bandwidth that it reaches.
//   elementwise_bench [seconds for each op]
// Operands lie far apart in memory that is larger than the caches, as in a step. Each call of an op takes turns with a
// pass over four arrays (ops/cpu/peak.h), so that both meet the same state of a machine that others use too; what
// counts is the ratio of their 10th percentiles of CPU time. Bytes are those of the operands, each once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/device/arena.h"
#include "weft/ops/cost.h"
#include "weft/ops/cpu/cpu_backend.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 2048, kWidth = 512, kHidden = 1376, kClasses = 32000, kClassTokens = 512, kHeadDim = 64;

double cpu_s() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
template <class F>
double seconds_of(const F& f) {
  const double began = cpu_s();
  f();
  return cpu_s() - began;
}
double tenth_percentile(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 10];
}

// Memory of all operands; numbers between -2 and 2.
class Operands {
 public:
  Tensor of(DType type, const Shape& shape) {
    const Tensor t = arena_.alloc(type, shape);
    for (int64_t i = 0; i < t.elements(); ++i) {
      const float x = float((i * 7919) % 4001) / 1000.0f - 2.0f;
      if (type == DType::f32) t.as<float>()[i] = x;
      if (type == DType::bf16) t.as<bf16>()[i] = bf16(x);
      if (type == DType::i32) t.as<int32_t>()[i] = int32_t(i % kHeadDim);
    }
    return t;
  }

 private:
  Arena arena_{"operands", int64_t{1} << 30};
};

struct Pass {
  int64_t bytes;
  std::function<void()> run;
};

// As AdamW reads and writes, of 64 MiB.
Pass stream_pass() {
  constexpr int64_t kElements = int64_t{1} << 22;
  const auto memory = std::make_shared<std::vector<float>>(4 * kElements, 0.5f);
  return {
      7 * 4 * kElements, [memory] {
        float *const w = memory->data(), *const g = w + kElements, *const m = g + kElements, *const v = m + kElements;
#pragma omp simd
        for (int64_t i = 0; i < kElements; ++i) {
          m[i] = 0.5f * m[i] + g[i];
          v[i] = 0.5f * v[i] + g[i];
          w[i] += m[i] - v[i];
        }
      }};
}

class Bench {
 public:
  explicit Bench(double seconds) : seconds_(seconds) {}

  template <class Op>
  void time(const char* type, const Op& op) {
    const CpuSpec spec{.threads = 1};
    Arena workspace("workspace", CpuWorkspace(spec).of(op) + kArenaAlignment);
    CpuBackend backend(spec, workspace);
    const OpCost cost = cost_of(op);
    const double bytes = double(cost.bytes_read + cost.bytes_written);
    std::vector<double> ops, streams;
    for (double spent = 0; spent < seconds_ || ops.size() < 5; spent += ops.back() + streams.back()) {
      ops.push_back(seconds_of([&] { backend.run(op); }));
      streams.push_back(seconds_of(stream_.run));
    }
    const double rate = bytes / tenth_percentile(ops), most = double(stream_.bytes) / tenth_percentile(streams);
    fmt::print("{:<22} {:<5} {:>9.2f} {:>9.2f} {:>7.2f}\n", Op::kName, type, rate / 1e9, most / 1e9, rate / most);
  }

 private:
  double seconds_;
  Pass stream_ = stream_pass();
};

void time_all(Bench& bench, Operands& memory, DType type) {
  const char* const name = type == DType::f32 ? "f32" : "bf16";
  const auto of = [&](int64_t rows, int64_t cols) { return memory.of(type, {rows, cols}); };
  const auto f32 = [&](int64_t rows, int64_t cols) { return memory.of(DType::f32, {rows, cols}); };
  const auto vector = [&](DType t, int64_t n) { return memory.of(t, {n}); };
  bench.time(name, CrossEntropy{.logits = f32(kClassTokens, kClasses),
                                .targets = vector(DType::i32, kClassTokens),
                                .weights = vector(DType::f32, kClassTokens),
                                .nll = vector(DType::f32, kClassTokens),
                                .dlogits = of(kClassTokens, kClasses),
                                .scale = 0.001});
  bench.time(name, GatedUnit{.u = of(kTokens, 2 * kHidden), .a = of(kTokens, kHidden)});
  bench.time(name, GatedUnitBackward{
                       .u = of(kTokens, 2 * kHidden), .da = of(kTokens, kHidden), .du = of(kTokens, 2 * kHidden)});
  bench.time(name, Gelu{.x = of(kTokens, 4 * kWidth), .y = of(kTokens, 4 * kWidth)});
  bench.time(name, Norm{.x = of(kTokens, kWidth),
                        .w = vector(type, kWidth),
                        .y = of(kTokens, kWidth),
                        .rstd = vector(DType::f32, kTokens)});
  bench.time(name, NormBackward{.x = of(kTokens, kWidth),
                                .w = vector(type, kWidth),
                                .rstd = vector(DType::f32, kTokens),
                                .dy = of(kTokens, kWidth),
                                .dx = of(kTokens, kWidth),
                                .dw = vector(DType::f32, kWidth)});
  bench.time(
      name, Rope{.x = of(kTokens, kWidth), .positions = vector(DType::i32, kTokens), .table = f32(kHeadDim, kHeadDim)});
  bench.time(name, Add{.x = of(kTokens, kWidth), .y = of(kTokens, kWidth), .out = of(kTokens, kWidth)});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  Bench bench(argc > 1 ? std::atof(argv[1]) : 1.0);
  Operands memory;
  fmt::print("{:<22} {:<5} {:>9} {:>9} {:>7}\n", "op", "type", "GB/s", "of", "ratio");
  for (const DType type : {DType::f32, DType::bf16}) time_all(bench, memory, type);
  const Tensor gradients = memory.of(DType::f32, {int64_t{1} << 23}), out = memory.of(DType::f64, {1});
  bench.time("f32", SumSquares{.x = gradients, .out = out});
  return 0;
}
