#include "weft/comm/local_group.h"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

TEST(LocalGroup, ReducesInRankOrderAndGathers) {
  run_local(3, [](Communicator& c) {
    const float mine = float(c.rank() + 1);
    std::array<float, 3> x{mine, 10 * mine, 100 * mine}, all{};
    float slice = 0;
    c.reduce_scatter({x.data(), DType::f32, {3}}, {&slice, DType::f32, {1}}).wait();
    EXPECT_EQ(slice, (std::array<float, 3>{6, 60, 600})[size_t(c.rank())]);
    c.all_gather({&slice, DType::f32, {1}}, {all.data(), DType::f32, {3}}).wait();
    EXPECT_EQ(all, (std::array<float, 3>{6, 60, 600}));
    c.all_reduce({x.data(), DType::f32, {3}}).wait();
    EXPECT_EQ(x, all);
  });
}

TEST(LocalGroup, SendsAroundARing) {
  run_local(4, [](Communicator& c) {
    int32_t mine = c.rank(), got = -1;
    Work sent = c.send({&mine, DType::i32, {1}}, (c.rank() + 1) % 4);
    c.recv({&got, DType::i32, {1}}, (c.rank() + 3) % 4).wait();
    sent.wait();
    EXPECT_EQ(got, (c.rank() + 3) % 4);
  });
}

TEST(LocalGroup, ARankThatDiesDoesNotLeaveTheOthersWaiting) {
  const auto dies = [](Communicator& c) {
    if (c.rank() == 1) throw Error("rank 1 is gone");
    float x = 0;
    c.all_reduce({&x, DType::f32, {1}}).wait();
  };
  try {
    run_local(3, dies);
    FAIL();
  } catch (const Error& e) { EXPECT_STREQ(e.what(), "rank 1 is gone"); }
}

}  // namespace
}  // namespace weft
