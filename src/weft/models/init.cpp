#include "weft/models/init.h"

#include "weft/base/parallel.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements a thread takes at once

template <class T>
void fill(const ParamSpec& spec, uint64_t seed, const Tensor& master, int num_threads) {
  T* w = master.as<T>();
  const uint64_t key = rng_key(seed, spec.name);
  parallel_for(master.elements(), num_threads, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      switch (spec.init.kind) {
        case Init::Kind::normal:
          w[i] = T(spec.init.std * random_normal(key, uint64_t(i)));
          break;
        case Init::Kind::ones:
          w[i] = T(1);
          break;
        case Init::Kind::zeros:
          w[i] = T(0);
          break;
      }
    }
  });
}

}  // namespace

void init_weights(const ParamStore& params, uint64_t seed, int num_threads) {
  for (const Param* p : params.params()) {
    const Tensor master = params.master(*p);
    if (master.dtype == DType::f64)
      fill<double>(p->spec(), seed, master, num_threads);
    else
      fill<float>(p->spec(), seed, master, num_threads);
  }
}

}  // namespace weft
