// Collectives on the same values by two communicators, the second of which may be of devices.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "weft/base/rng.h"
#include "weft/comm/communicator.h"
#include "weft/device/arena.h"
#include "weft/device/mover.h"

namespace weft::testing {

// Any, other ones for each rank.
struct Values {
  Values(DType dtype, int64_t n, int rank) : dtype(dtype), bytes(size_t(n * size_of(dtype))) {
    const uint64_t key = rng_key(7, "values");
    for (int64_t i = 0; i < n; ++i) {
      const double x = double(uint32_t(rng_key(key, uint64_t(i * 8 + rank)))) * 0x1p-30 - 1.7;
      std::byte* const to = bytes.data() + i * size_of(dtype);
      const auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
      if (dtype == DType::f64) put(x);
      if (dtype == DType::f32) put(float(x));
      if (dtype == DType::bf16) put(bf16(float(x)));
      if (dtype == DType::f16) put(f16(float(x)));
      if (dtype == DType::i32) put(int32_t(x * 1e6));
      if (dtype == DType::i64) put(int64_t(x * 1e9));
      if (dtype == DType::u8) put(uint8_t(i * 31 + rank));
    }
  }
  Tensor tensor() { return {bytes.data(), dtype, {int64_t(bytes.size()) / size_of(dtype)}}; }
  bool operator==(const Values& other) const { return bytes == other.bytes; }
  DType dtype;
  std::vector<std::byte> bytes;
};

inline constexpr DType kSums[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
inline constexpr DType kOthers[] = {DType::i32, DType::i64, DType::u8};
// Sizes around the limit below which a tensor goes whole to every rank, and around 4,096 bytes.
inline constexpr int64_t kSizes[] = {0, 1, 2, 63, 64, 65, 1000, 4099, 33000};

// Where tensors lie: as they are, or copied to a device and back.
struct Place {
  std::function<Tensor(Values&)> put = [](Values& v) { return v.tensor(); };
  std::function<void(Values&, const Tensor&)> take_back = [](Values&, const Tensor&) {};
};

// In an arena whose memory `mover` reaches; room that is taken stays taken.
inline Place place_in(Arena& arena, const Mover& mover) {
  return {.put =
              [&](Values& v) {
                const Tensor from = v.tensor(), to = arena.alloc(from.dtype, from.shape);
                if (from.bytes() > 0) mover.copy(to.data, from.data, from.bytes());
                return to;
              },
          .take_back =
              [&](Values& v, const Tensor& from) {
                if (from.bytes() > 0) mover.copy(v.tensor().data, from.data, from.bytes());
              }};
}

// Throughout, `device` has tensors where `there` says.
class SameCollectives {
 public:
  SameCollectives(Communicator& host, Communicator& device, Place there = {})
      : host_(host), device_(device), there_(std::move(there)) {}

  void expect(DType t, int64_t n) {
    const std::string what = fmt::format("{} {}", n, name_of(t));
    const int size = host_.size(), rank = host_.rank();
    expect_same("all-gather of " + what, [&](Communicator& c, const Place& place) {
      Values mine(t, n, rank), all(t, n * size, 7);
      const Tensor to = place.put(all);
      c.all_gather(place.put(mine), to).wait();
      place.take_back(all, to);
      return all;
    });
    if (std::find(std::begin(kSums), std::end(kSums), t) == std::end(kSums)) return;
    expect_same("all-reduce of " + what, [&](Communicator& c, const Place& place) {
      Values values(t, n, rank);
      const Tensor x = place.put(values);
      c.all_reduce(x).wait();
      place.take_back(values, x);
      return values;
    });
    expect_same("reduce-scatter to " + what, [&](Communicator& c, const Place& place) {
      Values full(t, n * size, rank), shard(t, n, 7);
      const Tensor to = place.put(shard);
      c.reduce_scatter(place.put(full), to).wait();
      place.take_back(shard, to);
      return shard;
    });
    expect_same("reduce-scatter and all-gather in place of " + what, [&](Communicator& c, const Place& place) {
      Values full(t, n * size, rank);
      const Tensor all = place.put(full), shard = all.slice_rows(rank * n, n);
      c.reduce_scatter(all, shard).wait();
      c.all_gather(shard, all).wait();
      place.take_back(full, all);
      return full;
    });
  }
  void expect_all() {
    for (const int64_t n : kSizes) {
      for (const DType t : kSums) expect(t, n);
      for (const DType t : kOthers) expect(t, n);
    }
  }

 private:
  template <class F>
  void expect_same(const std::string& what, const F& f) {
    EXPECT_TRUE(f(host_, Place()) == f(device_, there_))
        << what << " on rank " << host_.rank() << " of " << host_.size();
  }
  Communicator &host_, &device_;
  Place there_;
};

}  // namespace weft::testing
