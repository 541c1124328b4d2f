#include "weft/models/init.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/base/rng.h"
#include "weft/device/host_parts.h"
#include "weft/nn/magnitude.h"
#include "weft/sharding/quantise.h"

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

void init_codes(const ParamStore& params, const Param& p, uint64_t key, int num_threads) {
  const int64_t cols = width_of(p.spec());
  for (size_t i = 0; i < p.parts().size(); ++i) {
    const Run part = p.parts()[i].part_rows;
    quantise({.name = p.spec().name,
              .rows = part.count,
              .cols = cols,
              .read =
                  [&](Run rows, float* to) {
                    parallel_for(rows.count * cols, num_threads, kGrain, [&](int64_t begin, int64_t end) {
                      fill(p.spec(), key, (part.first + rows.first) * cols + begin, to + begin, end - begin);
                    });
                  }},
             params, p, i, num_threads);
  }
}

template <class Chosen>
void init_where(const ParamStore& params, uint64_t seed, int num_threads, const Chosen& chosen) {
  for (const Param* p : params.params(ParamStore::Copies::with)) {
    const ParamSpec& spec = p->spec();
    if (!chosen(spec)) continue;
    const uint64_t key = rng_key(seed, spec.name);
    if (spec.in_codes()) {
      init_codes(params, *p, key, num_threads);
      continue;
    }
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

[[noreturn]] void refuse_row_of_zeros(const std::string& lengths) {
  throw ConfigError(
      fmt::format("magnitudes cannot begin: {}: the weight beside it has a row of zeros, which has no direction; the "
                  "nearest that works: adapter.kind = \"lora\" (beside a base in codes \"qlora\"), or other "
                  "adapter.targets",
                  lengths));
}

// The square roots of these squares, in the masters of m.
void write_lengths(const ParamStore& params, const Param& m, const Tensor& squares) {
  for (const ParamStore::Stored& block : params.stored(m)) {
    const HeldPart& part = m.parts()[size_t(block.part)];
    const int64_t first = part.local_row + block.rows.first - part.rows.first;
    write_parts(params.memory(), block.master, [&](const Tensor& to, int64_t first_row) {
      read_parts(params.memory(), squares.slice_rows(first + first_row, to.rows()),
                 [&](const Tensor& from, int64_t at) {
                   const auto write = [&](const auto* s, auto* lengths) {
                     for (int64_t i = 0; i < from.rows(); ++i) {
                       if (s[i] == 0) refuse_row_of_zeros(m.spec().name);
                       lengths[at + i] = std::sqrt(s[i]);
                     }
                   };
                   from.dtype == DType::f64 ? write(from.as<double>(), to.as<double>())
                                            : write(from.as<float>(), to.as<float>());
                 });
    });
  }
}

// What is here of the largest part of a weight.
int64_t most_elements_of_part(const Param& w) {
  int64_t most = 0;
  for (const HeldPart& part : w.parts()) most = std::max(most, part.rows.count * part.cols.count);
  return most;
}

void init_magnitude(const ParamStore& params, Backend& backend, const std::map<std::string, Param*>& weights,
                    Param& m) {
  const std::string product = m.spec().name.substr(0, m.spec().name.size() - Magnitude::kSuffix.size());
  const Param& w = *weights.at(product + ".weight");
  const Adapter adapter(*weights.at(product + ".lora_A.weight"), *weights.at(product + ".lora_B.weight"),
                        *params.adapter(), product, w);
  const Precision& precision = params.precision();
  Arena counts("counts");
  counts.alloc(precision.stat, {m.shape()});
  const MatrixNumbers numbers(w, precision.stat);
  if (numbers.in_codes()) counts.alloc(precision.compute, {most_elements_of_part(w)});
  Arena arena("lengths of rows", counts.used(), params.shared_memory());
  const MicroBatch none{};
  Pass p{backend, params.mesh(), precision, none, &arena, &arena, &arena, &arena, &arena};
  const Tensor squares = Magnitude(m, numbers, adapter).squares_of_base(p, arena);
  backend.wait_all();
  write_lengths(params, m, squares);
}

}  // namespace

void init_weights(const ParamStore& params, uint64_t seed, int num_threads) {
  init_where(params, seed, num_threads, [](const ParamSpec&) { return true; });
}

void init_adapter(const ParamStore& params, uint64_t seed, int num_threads) {
  init_where(params, seed, num_threads, [](const ParamSpec& spec) { return spec.is_adapter; });
}

void init_magnitudes(ParamStore& params, Backend& backend) {
  if (!params.adapter() || !params.adapter()->magnitudes) return;
  for (int unit = 0; unit < params.num_units(); ++unit) {
    params.fetch(unit);
    std::map<std::string, Param*> weights;
    for (Param* p : params.params_of(unit)) weights[p->spec().name] = p;
    for (const auto& [name, m] : weights)
      if (name.ends_with(Magnitude::kSuffix)) init_magnitude(params, backend, weights, *m);
    params.release(unit);
  }
}

void init_weight(const ParamStore& params, std::string_view name, uint64_t seed, int num_threads) {
  init_where(params, seed, num_threads, [&](const ParamSpec& spec) { return spec.name == name; });
}

}  // namespace weft
