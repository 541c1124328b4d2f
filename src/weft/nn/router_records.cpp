#include "weft/nn/router_records.h"

#include <algorithm>
#include <numeric>

#include "weft/device/host_parts.h"
#include "weft/device/tensor_values.h"

namespace weft {
namespace {

template <class F>
void for_values(const Tensor& x, const F& f) {
  if (x.data == nullptr) return;
  if (x.dtype == DType::f64)
    std::for_each_n(x.as<double>(), x.elements(), f);
  else
    std::for_each_n(x.as<float>(), x.elements(), f);
}

}  // namespace

RouterRecords::RouterRecords(Layers layers, int64_t experts, Spmd stream, bool drops)
    : layers_(layers.model + layers.modules),
      of_model_(layers.model),
      experts_(experts),
      join_(Axis::tp, stream == Spmd::Shard0 ? Spmd::Partial : Spmd::Invariant, Spmd::Invariant),
      dropped_(drops ? size_t(layers_) : 0) {}

void RouterRecords::allocate(Arena& records, DType stat) {
  const Placement each = Placement().on_tp(join_.from());
  sums_ = records.alloc(DType::f64, {layers_, RouterSums::size(experts_)}, each);
  whole_ = records.alloc(stat, {layers_, experts_});
}

void RouterRecords::begin_step() {
  for (const Tensor& t : {sums_, whole_}) for_values(t, [](auto& x) { x = 0; });
  std::fill(dropped_.begin(), dropped_.end(), 0.0);
}

void RouterRecords::add_dropped(int64_t layer, int64_t pairs) {
  if (!dropped_.empty()) dropped_[size_t(layer)] += double(pairs);
}

void RouterRecords::wait_sum_whole(const ProcessMesh& mesh, double factor) {
  mesh.dense.all->all_reduce(whole_).wait();
  for_values(whole_, [&](auto& x) { x = std::remove_reference_t<decltype(x)>(double(x) * factor); });
}

void RouterRecords::wait_sum(const ProcessMesh& mesh) {
  Arena nowhere("router records");
  join_.forward(mesh, sums_, nowhere);
  mesh.dense.all->all_reduce(sums_).wait();
  mesh.pp->all_reduce(sums_).wait();
  if (dropped_.empty()) return;
  const Tensor dropped(dropped_.data(), DType::f64, {layers_});
  mesh.dense.all->all_reduce(dropped).wait();
  mesh.pp->all_reduce(dropped).wait();
}

void RouterRecords::wait_correct(const ParamStore& params, double rate) const {
  for (const Bias& bias : biases_) {
    const double* load = sums(bias.layer).as<double>() + RouterSums::kScalars;
    const double mean = std::accumulate(load, load + experts_, 0.0) / double(experts_);
    for (const ParamStore::Stored& block : params.stored(*bias.of)) {
      std::vector<double> values;
      for_each_value(params.memory(), block.master, [&](int64_t, int64_t, double x) { values.push_back(x); });
      write_parts(params.memory(), block.master, [&](const Tensor& part, int64_t first) {
        for_values(part, [&, e = first](auto& x) mutable {
          using T = std::remove_reference_t<decltype(x)>;
          const double of_e = load[block.rows.first + e];
          x = T(values[size_t(e++)]) + T(rate) * T((of_e < mean) - (of_e > mean));
        });
      });
    }
  }
}

RouterReport RouterRecords::report(int64_t tokens, bool of_whole_batch) const {
  RouterReport r;
  const double t = double(tokens), e = double(experts_);
  for (int64_t l = 0; l < layers_; ++l) {
    const double *of = sums(l).as<double>(), *counts = of + RouterSums::kScalars, *shares = counts + experts_;
    double pairs = 0, whole = 0;
    for (int64_t i = 0; i < experts_; ++i) pairs += counts[i], whole += counts[i] * shares[i];
    if (pairs == 0) continue;
    const bool of_module = l >= of_model_;
    if (!of_module) {
      r.aux_loss += of_whole_batch ? e / pairs * whole / t : of[0] / t;
      r.z_loss += of[1] / t;
    }
    (of_module ? r.mtp_entropy : r.entropy).push_back(of[2] / t);
    (of_module ? r.mtp_load : r.load).emplace_back(counts, counts + experts_);
    if (!dropped_.empty()) (of_module ? r.mtp_dropped : r.dropped).push_back(int64_t(dropped_[size_t(l)]));
  }
  return r;
}

}  // namespace weft
