#include <algorithm>
#include <cmath>

#include "weft/apps/measure_machine.h"
#include "weft/apps/ordinary_numbers.h"
#include "weft/base/error.h"
#include "weft/comm/communicator.h"

namespace weft {
namespace {

using Kind = Traffic::Kind;

constexpr int64_t kSizes[] = {1 << 8, 1 << 12, 1 << 16, 1 << 19, 1 << 22, 1 << 25};  // bytes of the whole tensor
constexpr int64_t kBytesOfAToken = 1 << 14;                                          // of the largest tensor
constexpr int64_t kProduct = 192;  // its sizes: some tenths of a millisecond

class CollectiveTimer {
 public:
  explicit CollectiveTimer(const MeasuringRank& rank)
      : rank_(rank),
        axis_(*rank.mesh.dense.shards),
        operands_("operands", 4 * kProduct * kProduct * int64_t(sizeof(float)), rank.machine.memory) {
    product_ = {.a = operands_.alloc(DType::f32, {kProduct, kProduct}),
                .b = operands_.alloc(DType::f32, {kProduct, kProduct}),
                .out = operands_.alloc(DType::f32, {kProduct, kProduct})};
    for (const Tensor* t : {&product_.a, &product_.b})
      fill_with_ordinary_numbers(static_cast<std::byte*>(t->data), size_t(t->bytes()));
    workspace_ = std::make_unique<Arena>("workspace", rank.machine.workspace_model->of(product_), rank.machine.memory);
    backend_ = rank.machine.make_backend(*workspace_);
  }

  // A call on a tensor of about so many bytes, which each rank has an equal part of: how many they are, and the mean
  // time of the ranks that take part.
  struct Timed {
    double bytes = 0, seconds = 0;
  };
  Timed time(Kind kind, int64_t bytes) {
    const int64_t n = axis_.size(), elements = std::max<int64_t>(n, bytes / int64_t(sizeof(float)) / n * n);
    Arena arena("tensors", 2 * elements * int64_t(sizeof(float)) + 4 * kArenaAlignment, rank_.machine.memory);
    const Tensor full = arena.alloc(DType::f32, {elements});
    const Tensor shard = arena.alloc(DType::f32, {elements / n});
    fill_with_ordinary_numbers(static_cast<std::byte*>(full.data), size_t(full.bytes()));
    fill_with_ordinary_numbers(static_cast<std::byte*>(shard.data), size_t(shard.bytes()));
    call(kind, full, shard);
    std::vector<double> took;
    for (int64_t i = 0; i < rank_.iters * (bytes < (1 << 20) ? 8 : 2); ++i) {
      backend_->run(product_);
      const double began = rank_.now_s();
      call(kind, full, shard);
      took.push_back(rank_.now_s() - began);
    }
    const bool takes_part = kind != Kind::send || peer() < axis_.size();
    double sums[] = {takes_part ? typical_s(std::move(took), rank_.crowded) : 0, takes_part ? 1.0 : 0.0};
    rank_.mesh.world->all_reduce({sums, DType::f64, {2}}).wait();
    return {.bytes = double(full.bytes()), .seconds = sums[0] / sums[1]};
  }

 private:
  int peer() const { return axis_.rank() ^ 1; }
  void call(Kind kind, const Tensor& full, const Tensor& shard) {
    switch (kind) {
      case Kind::all_reduce:
        return axis_.all_reduce(full).wait();
      case Kind::all_gather:
        return axis_.all_gather(shard, full).wait();
      case Kind::reduce_scatter:
        return axis_.reduce_scatter(full, shard).wait();
      case Kind::send:
        break;
    }
    // From the first rank to the second; all others to theirs, and who has none waits for nobody.
    const int with = peer();
    if (with >= axis_.size()) return;
    (axis_.rank() < with ? axis_.send(full, with) : axis_.recv(full, with)).wait();
    (axis_.rank() < with ? axis_.recv(full, with) : axis_.send(full, with)).wait();
  }
  const MeasuringRank& rank_;
  Communicator& axis_;
  Arena operands_;
  Matmul product_;
  std::unique_ptr<Arena> workspace_;
  std::unique_ptr<Backend> backend_;
};

// What leaves a rank (comm/traffic.h) of a tensor of so many bytes.
double bytes_sent(Kind kind, double bytes, double n) {
  if (kind == Kind::send) return bytes;
  return (kind == Kind::all_reduce ? 2 : 1) * (n - 1) / n * bytes;
}

}  // namespace

void require_hosts_alike(Communicator& world, int here) {
  std::vector<double> all(size_t(world.size()));
  all[size_t(world.rank())] = here;
  world.all_reduce({all.data(), DType::f64, {int64_t(all.size())}}).wait();
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  if (*least != *most)
    throw ConfigError(fmt::format(
        "one host has {} of these ranks, another {}; what works: as many on each, as in mpirun --map-by ppr:{}:node",
        *least, *most, *least));
}

std::vector<CollectiveCurve> measure_collectives(const MeasuringRank& rank, bool far) {
  const int n = rank.mesh.dense.shards->size();
  CollectiveTimer timer(rank);
  std::vector<CollectiveCurve> curves;
  for (const Kind kind : {Kind::all_reduce, Kind::all_gather, Kind::reduce_scatter, Kind::send}) {
    std::vector<TimedOp> points;
    for (const int64_t bytes : kSizes) {
      if (bytes > rank.most_tokens * kBytesOfAToken) break;
      const auto timed = timer.time(kind, bytes);
      points.push_back({.op = "",
                        .dtypes = "",
                        .bytes = bytes_sent(kind, timed.bytes, n),
                        .seconds = timed.seconds / (kind == Kind::send ? 2 : 1)});  // there and back
    }
    curves.push_back({.kind = kind, .ranks = n, .far = far, .curve = curves_of(points)[0].curve});
  }
  return curves;
}

}  // namespace weft
