#include "weft/optim/weight_norms.h"

#include <array>
#include <map>

namespace weft {

WeightNorms::WeightNorms(const ParamStore& store, Arena& records)
    : store_(store), one_(records.alloc(DType::f64, {1})) {}

double WeightNorms::wait_squares(Backend& backend, const Tensor& x) const {
  backend.run(SumSquares{.x = x, .out = one_});
  backend.wait_all();
  return one_.data != nullptr ? *one_.as<double>() : 0;
}

std::vector<PartSums> WeightNorms::wait_update(Backend& backend, Arena& scratch, bool measures,
                                               const std::function<void()>& update) const {
  struct Kept {
    Tensor now, then;
    double before = 0;
  };
  const Scope copies(scratch);
  std::vector<Kept> kept;
  for (const Param* p : store_.params()) {
    if (!p->learns()) continue;
    for (const ParamStore::Stored& block : store_.stored(*p))
      kept.push_back({block.master, scratch.alloc(block.master.dtype, block.master.shape)});
  }
  if (!measures) {
    update();
    return {};
  }
  for (Kept& k : kept) {
    backend.run(Copy{.from = k.now, .to = k.then});
    k.before = wait_squares(backend, k.then);
  }
  update();
  std::vector<std::array<double, kSums>> sums;
  for (const Kept& k : kept) {
    const double after = wait_squares(backend, k.now);
    backend.run(Axpby{.x = k.now, .y = k.then, .out = k.then, .a = 1, .b = -1});
    sums.push_back({k.before, after, wait_squares(backend, k.then)});
  }
  if (one_.data == nullptr) return {};
  std::map<const void*, size_t> at;
  for (size_t i = 0; i < kept.size(); ++i) at[kept[i].now.data] = i;
  return wait_sum_parts(store_, kSums, [&](const ParamStore::Stored& block, double* to) {
    const auto& of_block = sums[at.at(block.master.data)];
    for (size_t s = 0; s < kSums; ++s) to[s] += of_block[s];
  });
}

}  // namespace weft
