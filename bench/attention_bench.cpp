// Attention on this machine: f32, bf16 by vectors, bf16 by matrix units where the CPU has them, and a large bf16
// product.
//   attention_bench [threads] [seconds for each size]
// The ways take turns call by call, so that they meet the same state of a machine that others use too. What counts is
// the ratio of their 10th percentiles. Rates are of 4 operations for each pair of a query and a key that it sees and
// element of a head forward, and 8 backward (of 10 that are done).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "weft/device/arena.h"
#include "weft/ops/cpu/cpu_backend.h"
#include "weft/ops/cpu/omp_threads.h"

namespace weft {
namespace {

constexpr int64_t kHeads = 8, kKeyHeads = 4, kLarge = 2048;

Tensor filled(Arena& arena, DType type, std::vector<int64_t> shape) {
  const Tensor t = arena.alloc(type, {shape[0], shape[1]});
  for (int64_t i = 0; i < t.elements(); ++i) {
    const float x = float(i * 2654435761 % 1009) * 0.002f - 1;
    if (type == DType::bf16)
      t.as<bf16>()[i] = bf16(x);
    else
      t.as<float>()[i] = x;
  }
  return t;
}

// Attention of one document, with its gradients' tensors.
class Operands {
 public:
  Operands(Arena& arena, DType type, int64_t tokens, int64_t dim)
      : spans_{{.q_count = tokens, .k_count = tokens}},
        backward_{.q = filled(arena, type, {tokens, kHeads * dim}),
                  .k = filled(arena, type, {tokens, kKeyHeads * dim}),
                  .v = filled(arena, type, {tokens, kKeyHeads * dim}),
                  .o = filled(arena, type, {tokens, kHeads * dim}),
                  .lse = filled(arena, DType::f32, {tokens, kHeads}),
                  .dout = filled(arena, type, {tokens, kHeads * dim}),
                  .dq = filled(arena, type, {tokens, kHeads * dim}),
                  .dk = filled(arena, type, {tokens, kKeyHeads * dim}),
                  .dv = filled(arena, type, {tokens, kKeyHeads * dim}),
                  .spans = spans_,
                  .heads = {.q = kHeads,
                            .kv = kKeyHeads,
                            .dim = dim,
                            .first = 0,
                            .total = kHeads,
                            .scale = 1 / std::sqrt(double(dim))}} {}
  Attention forward() const {
    return {.q = backward_.q,
            .k = backward_.k,
            .v = backward_.v,
            .o = backward_.o,
            .lse = backward_.lse,
            .spans = backward_.spans,
            .heads = backward_.heads};
  }
  const AttentionBackward& backward() const { return backward_; }

 private:
  std::vector<AttentionSpan> spans_;
  AttentionBackward backward_;
};

struct Way {
  std::string name;
  double operations;
  std::function<void()> run;
  std::vector<double> times = {};  // in seconds
};

void time_ways(std::vector<Way>& ways, double budget_s) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(budget_s);
  for (int turn = 0; turn < 4 || Clock::now() < end; ++turn)
    for (Way& way : ways) {
      const auto begin = Clock::now();
      way.run();
      if (turn > 0) way.times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
}

void measure(int threads, int64_t tokens, int64_t dim, double budget_s) {
  Arena tensors("tensors", int64_t{1} << 30), memory("workspace", int64_t{1} << 30);
  CpuBackend vectors({.threads = threads, .tiles = false}, memory), tiles({.threads = threads}, memory);
  const Operands f32(tensors, DType::f32, tokens, dim), narrow(tensors, DType::bf16, tokens, dim);
  const Matmul large{.a = filled(tensors, DType::bf16, {kLarge, kLarge}),
                     .b = filled(tensors, DType::bf16, {kLarge, kLarge}),
                     .out = filled(tensors, DType::bf16, {kLarge, kLarge})};
  const double pairs = double(tokens) * double(tokens + 1) / 2 * double(kHeads * dim);
  std::vector<Way> ways;
  const auto add = [&](const std::string& name, CpuBackend& backend, const Operands& operands) {
    ways.push_back({name + " forward", 4 * pairs, [&] { backend.run(operands.forward()); }});
    ways.push_back({name + " backward", 8 * pairs, [&] { backend.run(operands.backward()); }});
  };
  ways.push_back({"large product", 2.0 * kLarge * kLarge * kLarge, [&] { tiles.run(large); }});
  add("f32", vectors, f32);
  add("bf16 by vectors", vectors, narrow);
  add("bf16", tiles, narrow);
  time_ways(ways, budget_s);
  fmt::print("\n{} tokens, {} heads of {} ({} of keys), {} threads\n", tokens, kHeads, dim, kKeyHeads, threads);
  double product = 0;
  for (Way& way : ways) {
    std::sort(way.times.begin(), way.times.end());
    const double rate = way.operations / way.times[way.times.size() / 10] * 1e-9;
    if (product == 0) product = rate;
    fmt::print("{:<26}{:>8.0f} GFLOP/s {:>6.2f}\n", way.name, rate, rate / product);
  }
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const double budget_s = argc > 2 ? std::atof(argv[2]) : 2;
  const OmpThreads scope(threads);
  for (const int64_t tokens : {512, 2048, 8192})
    for (const int64_t dim : {64, 128}) measure(threads, tokens, dim, budget_s);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::main(argc, argv); }
