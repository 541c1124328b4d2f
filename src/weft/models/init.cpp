#include "weft/models/init.h"

#include <algorithm>

#include "weft/base/parallel.h"
#include "weft/base/rng.h"
#include "weft/device/host_parts.h"

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements a thread takes at once

template <class T>
T rounded(double x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return T(float(x));
}

template <class F>
void for_values(const Tensor& w, const F& f) {
  switch (w.dtype) {
    case DType::f64:
      return f(w.as<double>());
    case DType::bf16:  // frozen weights, as layers read them
      return f(w.as<bf16>());
    case DType::f16:
      return f(w.as<f16>());
    default:
      return f(w.as<float>());
  }
}

template <class T>
void fill(const ParamSpec& spec, uint64_t key, int64_t first, T* w, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    switch (spec.init.kind) {
      case Init::Kind::normal:
        w[i] = rounded<T>(spec.init.std * random_normal(key, uint64_t(first + i)));
        break;
      case Init::Kind::uniform:
        w[i] = rounded<T>(spec.init.std * (2 * random_uniform(key, uint64_t(first + i)) - 1));
        break;
      case Init::Kind::ones:
        w[i] = rounded<T>(1);
        break;
      case Init::Kind::zeros:
        w[i] = rounded<T>(0);
        break;
    }
  }
}

// Consecutive elements of the whole weight that lie together here.
struct Span {
  int64_t first, at, count;
};
std::vector<Span> spans_of(Run all_rows, Run cols, int64_t width) {
  std::vector<Span> spans;
  const bool together = cols.count == width;
  const int64_t rows = together ? 1 : all_rows.count, each = together ? all_rows.count * width : cols.count;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t at = 0; at < each; at += kGrain)
      spans.push_back({(all_rows.first + r) * width + cols.first + at, r * each + at, std::min(kGrain, each - at)});
  return spans;
}

template <class Chosen>
void init_where(const ParamStore& params, uint64_t seed, int num_threads, const Chosen& chosen) {
  for (const Param* p : params.params(ParamStore::Copies::with)) {
    const ParamSpec& spec = p->spec();
    if (!chosen(spec)) continue;
    const uint64_t key = rng_key(seed, spec.name);
    for (const ParamStore::Stored& block : params.stored(*p)) {
      write_parts(params.memory(), block.master, [&](const Tensor& part, int64_t first_row) {
        const Run rows{block.rows.first + first_row, part.rows()};
        const std::vector<Span> spans = spans_of(rows, block.cols, spec.shape.elements() / spec.shape[0]);
        parallel_for(int64_t(spans.size()), num_threads, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const Span& span = spans[size_t(i)];
            for_values(part, [&](auto* values) { fill(spec, key, span.first, values + span.at, span.count); });
          }
        });
      });
    }
  }
}

}  // namespace

void init_weights(const ParamStore& params, uint64_t seed, int num_threads) {
  init_where(params, seed, num_threads, [](const ParamSpec&) { return true; });
}

void init_adapter(const ParamStore& params, uint64_t seed, int num_threads) {
  init_where(params, seed, num_threads, [](const ParamSpec& spec) { return spec.is_adapter; });
}

void init_weight(const ParamStore& params, std::string_view name, uint64_t seed, int num_threads) {
  init_where(params, seed, num_threads, [&](const ParamSpec& spec) { return spec.name == name; });
}

}  // namespace weft
