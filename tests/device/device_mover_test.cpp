// Tensors of ranks on several devices, whatever these reach of each other: the bits that the host has.
#include "weft/device/device_mover.h"

#include <gtest/gtest.h>

#include "comm/same_collectives.h"
#include "several_devices.h"
#include "weft/device/arena.h"

namespace weft {
namespace {

using testing::kSums;
using testing::Values;

constexpr int kDevices = 3, kRanks = 5;
constexpr int64_t kStaging = 4096;  // pieces of a few hundred elements

// A tensor of each rank on its device, and the values that they have.
struct Ranks {
  Ranks(const testing::SeveralDevices& devices, DType dtype, int64_t n) {
    for (int r = 0; r < kRanks; ++r) {
      values.emplace_back(dtype, n, r);
      arenas.emplace_back("tensors", 2 * n * size_of(dtype) + 2 * kArenaAlignment, devices.memory(r % kDevices));
      tensors.push_back(arenas.back().alloc(dtype, {n}));
      arenas.back().memory()->copy(tensors.back().data, values.back().bytes.data(), size_t(tensors.back().bytes()));
    }
  }
  Values at(const Tensor& x) {
    Values now(x.dtype, x.elements(), 0);
    for (Arena& arena : arenas)
      if (&arena - arenas.data() == rank_of(x)) arena.memory()->copy(now.bytes.data(), x.data, size_t(x.bytes()));
    return now;
  }
  std::ptrdiff_t rank_of(const Tensor& x) const {
    for (size_t r = 0; r < tensors.size(); ++r)
      if (tensors[r].data == x.data) return std::ptrdiff_t(r);
    return -1;
  }
  template <class Pointer>
  std::vector<Pointer> pointers() const {
    std::vector<Pointer> all;
    for (const Tensor& x : tensors) all.push_back(x.data);
    return all;
  }
  std::vector<Values> values;
  std::vector<Arena> arenas;
  std::vector<Tensor> tensors;
};

// By the host, of the same values.
Values sum_of(std::vector<Values> values) {
  std::vector<const void*> from;
  Values out = values[0];
  for (const Values& v : values) from.push_back(v.bytes.data());
  host_mover()->sum(from, out.dtype, out.tensor().elements(), out.bytes.data());
  return out;
}

struct Case {
  testing::Reach reach;
  DType dtype;
  int64_t n;
};

class DeviceMover : public ::testing::Test {
 protected:
  template <class F>
  static void for_each_case(const F& f) {
    for (const testing::Reach reach : {testing::all_others, testing::none, testing::the_next})
      for (const DType dtype : kSums)
        for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{513}, int64_t{4099}})
          f(std::make_shared<testing::SeveralDevices>(kDevices, reach), Case{reach, dtype, n});
  }
};

TEST_F(DeviceMover, SumsHaveTheBitsOfTheHosts) {
  for_each_case([](const std::shared_ptr<testing::SeveralDevices>& devices, const Case& c) {
    const auto mover = make_device_mover(devices, host_mover(), kStaging);
    for (int mine = 0; mine < kRanks; ++mine) {
      Ranks ranks(*devices, c.dtype, c.n);
      const Values expected = sum_of(ranks.values);
      Arena arena("out", c.n * size_of(c.dtype) + kArenaAlignment, devices->memory(mine % kDevices));
      const Tensor out = arena.alloc(c.dtype, {c.n});
      mover->sum(ranks.pointers<const void*>(), c.dtype, c.n, out.data);
      Values got(c.dtype, c.n, 7);
      arena.memory()->copy(got.bytes.data(), out.data, size_t(out.bytes()));
      EXPECT_TRUE(got == expected) << c.n << " " << name_of(c.dtype) << " by rank " << mine;
      for (int r = 0; r < kRanks; ++r) EXPECT_TRUE(ranks.at(ranks.tensors[size_t(r)]) == ranks.values[size_t(r)]);
    }
  });
}

TEST_F(DeviceMover, SumsInPlaceAreWholeForEveryRank) {
  for_each_case([](const std::shared_ptr<testing::SeveralDevices>& devices, const Case& c) {
    const auto mover = make_device_mover(devices, host_mover(), kStaging);
    for (int mine = 0; mine < kRanks; ++mine) {
      Ranks ranks(*devices, c.dtype, c.n);
      const Values expected = sum_of(ranks.values);
      const int64_t before = devices->sums_of(mine % kDevices);
      mover->sum_in_place(ranks.pointers<void*>(), mine, c.dtype, c.n);
      for (const Tensor& x : ranks.tensors)
        EXPECT_TRUE(ranks.at(x) == expected) << c.n << " " << name_of(c.dtype) << " by rank " << mine;
      EXPECT_EQ(devices->sums_of(mine % kDevices) > before, c.n > 0);  // by the device of the rank that asks
    }
  });
}

TEST_F(DeviceMover, CopiesGoBetweenDevicesAndTheHost) {
  for_each_case([](const std::shared_ptr<testing::SeveralDevices>& devices, const Case& c) {
    const auto mover = make_device_mover(devices, host_mover(), kStaging);
    Ranks ranks(*devices, c.dtype, c.n);
    Values from_host(c.dtype, c.n, 6), to_host(c.dtype, c.n, 7);
    const int64_t bytes = c.n * size_of(c.dtype);
    mover->copy(ranks.tensors[1].data, ranks.tensors[0].data, bytes);  // 0 to 1
    mover->copy(ranks.tensors[3].data, from_host.bytes.data(), bytes);
    mover->copy(to_host.bytes.data(), ranks.tensors[2].data, bytes);
    EXPECT_TRUE(ranks.at(ranks.tensors[1]) == ranks.values[0]);
    EXPECT_TRUE(ranks.at(ranks.tensors[3]) == from_host);
    EXPECT_TRUE(to_host == ranks.values[2]);
    mover->copy(to_host.bytes.data(), from_host.bytes.data(), bytes);
    EXPECT_TRUE(to_host == from_host);
    EXPECT_EQ(mover->host_reaches(ranks.tensors[0].data), false);
    EXPECT_TRUE(mover->host_reaches(to_host.bytes.data()));
  });
}

TEST_F(DeviceMover, TensorsOfTheHostAreTheHosts) {
  const auto devices = std::make_shared<testing::SeveralDevices>(kDevices, testing::none);
  const auto mover = make_device_mover(devices, host_mover(), kStaging);
  std::vector<double> a{1, 2}, b{3, 4}, out(2);
  mover->sum(std::vector<const void*>{a.data(), b.data()}, DType::f64, 2, out.data());
  EXPECT_EQ(out, (std::vector<double>{4, 6}));
  mover->sum_in_place(std::vector<void*>{a.data(), b.data()}, 1, DType::f64, 2);
  EXPECT_EQ(a, out);
  EXPECT_EQ(b, out);
}

// Counts what is taken.
class CountingDevices final : public MovingDevices {
 public:
  explicit CountingDevices(testing::Reach reach) : devices_(kDevices, reach) {
    for (int d = 0; d < kDevices; ++d) memories_.push_back(std::make_shared<Counting>());
  }
  int64_t taken(int device) const { return static_cast<const Counting&>(*memories_[size_t(device)]).taken; }
  int count() const override { return kDevices; }
  const std::shared_ptr<Memory>& memory(int device) const override { return memories_[size_t(device)]; }
  int device_of(const void*) const override { return -1; }
  bool reaches(int device, int other) const override { return devices_.reaches(device, other); }
  void copy(int, void*, const void*, int64_t) const override {}
  void sum(int, std::span<const void* const>, DType, int64_t, void*) const override {}

 private:
  struct Counting final : Memory {
    std::byte* take(size_t bytes, const std::string& what) override {
      taken += int64_t(bytes);
      return host_memory()->take(bytes, what);
    }
    void give(std::byte* memory, size_t bytes) override { host_memory()->give(memory, bytes); }
    int64_t taken = 0;
  };
  testing::SeveralDevices devices_;
  std::vector<std::shared_ptr<Memory>> memories_;
};

TEST_F(DeviceMover, TakesMemoryOnceAndOnlyWhereADeviceDoesNotReachAnother) {
  for (const testing::Reach reach : {testing::all_others, testing::none, testing::the_next}) {
    const auto devices = std::make_shared<CountingDevices>(reach);
    const auto mover = make_device_mover(devices, host_mover());
    EXPECT_EQ(needs_staging(*devices), reach != testing::all_others);
    for (int d = 0; d < kDevices; ++d) EXPECT_EQ(devices->taken(d), reach == testing::all_others ? 0 : kMoverStaging);
  }
}

TEST_F(DeviceMover, ASumOfDeviceAndHostIsRefused) {
  const auto devices = std::make_shared<testing::SeveralDevices>(kDevices, testing::none);
  const auto mover = make_device_mover(devices, host_mover(), kStaging);
  Ranks ranks(*devices, DType::f32, 8);
  std::vector<float> here(8);
  const std::vector<const void*> from{ranks.tensors[0].data, here.data()};
  EXPECT_THROW(mover->sum(from, DType::f32, 8, ranks.tensors[0].data), CheckFailure);
}

}  // namespace
}  // namespace weft
