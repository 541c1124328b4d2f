#include "weft/ops/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "weft/device/arena.h"
#include "weft/ops/cpu/matmul.h"
#include "weft/ops/cpu/rows.h"

namespace weft {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The shortest of several runs of f, once warmed up, within about `budget_s`; within four times that where the two
// shortest are not alike, as other work runs beside.
template <class F>
double best_seconds(double budget_s, const F& f) {
  constexpr double kAlike = 1.05, kMost = 4;
  f();
  double best = 1e30, second = 1e30;
  const auto begin = std::chrono::steady_clock::now();
  const auto goes_on = [&](int runs, double s) {
    return runs < 3 || s < budget_s || (second > kAlike * best && s < kMost * budget_s);
  };
  for (int i = 0; goes_on(i, seconds_since(begin)); ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const double took = seconds_since(start);
    second = std::min(second, std::max(took, best));
    best = std::min(best, took);
  }
  return best;
}

// One thread's part of a pass: like AdamW in what it moves, and too little arithmetic to matter.
void stream(float* __restrict w, const float* __restrict grad, float* __restrict m, float* __restrict v, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    m[i] = 0.5f * m[i] + grad[i];
    v[i] = 0.5f * v[i] + grad[i];
    w[i] += m[i] - v[i];
  }
}

}  // namespace

double measure_matmul_flops(int threads, DType type) {
  constexpr int64_t kSize = 1024;
  CpuMatmul matmul(threads, Numerics::fast);
  Arena arena("peak", kSize * kSize * (2 * size_of(type) + 4));
  Matmul op{.a = arena.alloc(type, {kSize, kSize}),
            .b = arena.alloc(type, {kSize, kSize}),
            .out = arena.alloc(DType::f32, {kSize, kSize})};
  for (const Tensor& t : {op.a, op.b})
    for (int64_t i = 0; i < t.elements(); ++i) {
      const float x = float(i % 13) * 0.125f - 0.75f;
      cpu::with_type_of(t, [&]<class T>() { t.as<T>()[i] = T(x); });
    }
  Arena workspace("peak workspace", std::max<int64_t>(64, matmul.workspace_bytes(op)));
  const Tensor memory = workspace.alloc(DType::u8, {workspace.capacity()});
  const double s = best_seconds(0.06, [&] { matmul.run(op, static_cast<std::byte*>(memory.data)); });
  return 2.0 * double(kSize) * double(kSize) * double(kSize) / s;
}

double measure_memory_bandwidth(int threads, std::span<std::byte> memory) {
  const int64_t n = int64_t(memory.size()) / 4 / int64_t(sizeof(float)) / threads;
  WEFT_CHECK(n > 0, "{} bytes are too few to measure bandwidth", memory.size());
  float* const w = reinterpret_cast<float*>(memory.data());
  float *const grad = w + n * threads, *const m = grad + n * threads, *const v = m + n * threads;
  const double s = best_seconds(0.05, [&] {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int i = 0; i < threads; ++i) stream(w + i * n, grad + i * n, m + i * n, v + i * n, n);
  });
  return double(n * threads) * 7 * sizeof(float) / s;
}

}  // namespace weft
