// Communicators that know the host's memory alone, called with tensors that the host does not reach.
#include "weft/comm/through_host.h"

#include <gtest/gtest.h>

#include <vector>

#include "guarded_memory.h"
#include "support.h"
#include "weft/comm/local_group.h"
#include "weft/device/arena.h"

namespace weft {
namespace {

class ThroughHost : public ::testing::Test {
 protected:
  // Calls f(rank's world communicator, arena of tensors out of reach) on so many ranks, as threads whose own
  // communicator would crash on such a tensor.
  template <class F>
  static void on_ranks(int ranks, const F& f) {
    const auto memory = std::make_shared<testing::GuardedMemory>();
    const testing::GuardedMover mover;
    run_local(
        {.dp = ranks},
        [&](const ProcessMesh& mesh) {
          Arena arena("tensors", 1 << 12, memory);
          const ProcessMesh through = through_host(mesh, mover);
          f(*through.world, arena);
        },
        *host_mover());
  }
  static Tensor made(Arena& arena, const std::vector<float>& values) {
    const Tensor x = arena.alloc(DType::f32, {int64_t(values.size())});
    if (!values.empty()) arena.memory()->copy(x.data, values.data(), size_t(x.bytes()));
    return x;
  }
  static std::vector<float> values_of(const Arena& arena, const Tensor& x) {
    std::vector<float> values(size_t(x.elements()));
    if (!values.empty()) arena.memory()->copy(values.data(), x.data, size_t(x.bytes()));
    return values;
  }
  using Values = std::vector<float>;
};

TEST_F(ThroughHost, CollectivesComeBackWhenTheyHaveBeenWaitedFor) {
  on_ranks(2, [](Communicator& ranks, Arena& arena) {
    const float me = float(ranks.rank() + 1);
    const Tensor x = made(arena, {me, 10 * me}), nothing = made(arena, {});
    Work sum = ranks.all_reduce(x);
    sum.wait();
    EXPECT_EQ(values_of(arena, x), (Values{3, 30}));
    ranks.all_reduce(nothing).wait();
    const Tensor full = made(arena, {0, 0, 0, 0}), shard = full.slice_rows(2 * ranks.rank(), 2);
    const Values mine{me, 2 * me};
    arena.memory()->copy(shard.data, mine.data(), size_t(shard.bytes()));
    ranks.all_gather(shard, full).wait();  // a shard in its place
    EXPECT_EQ(values_of(arena, full), (Values{1, 2, 2, 4}));
    const Tensor part = made(arena, {0, 0});
    ranks.reduce_scatter(full, part).wait();
    EXPECT_EQ(values_of(arena, part), ranks.rank() == 0 ? (Values{2, 4}) : (Values{4, 8}));
    EXPECT_EQ(values_of(arena, full), (Values{1, 2, 2, 4}));
  });
}

TEST_F(ThroughHost, SendsAndWhatTheHostReachesAnyway) {
  on_ranks(3, [](Communicator& ranks, Arena& arena) {
    const int next = (ranks.rank() + 1) % 3, before = (ranks.rank() + 2) % 3;
    const Tensor mine = made(arena, {float(ranks.rank())}), theirs = made(arena, {-1});
    Work sent = ranks.send(mine, next);
    ranks.recv(theirs, before).wait();
    sent.wait();
    EXPECT_EQ(values_of(arena, theirs), Values{float(before)});
    double here = 1;
    ranks.all_reduce({&here, DType::f64, {1}}).wait();
    EXPECT_EQ(here, 3);
  });
}

TEST_F(ThroughHost, OneRankGathersAndScattersToItself) {
  on_ranks(1, [](Communicator& ranks, Arena& arena) {
    const Tensor shard = made(arena, {7}), full = made(arena, {0}), back = made(arena, {0});
    ranks.all_gather(shard, full).wait();
    ranks.reduce_scatter(full, back).wait();
    EXPECT_EQ(values_of(arena, back), Values{7});
  });
}

// For the address sanitizer: tensors of a work that nobody waits for stay until nobody uses them.
TEST_F(ThroughHost, AWorkThatIsDroppedFailsItsRanksByName) {
  const auto drop = [](Communicator& ranks, Arena& arena) {
    const Tensor x = made(arena, {1});
    const Work dropped = ranks.all_reduce(x);
    if (ranks.rank() == 0) throw Error("rank 0 is gone");
    Work(dropped).wait();
  };
  EXPECT_EQ(testing::error_of<Error>([&] { on_ranks(2, drop); }), "rank 0 is gone");
}

TEST_F(ThroughHost, TensorsWithGapsAreRefused) {
  on_ranks(2, [](Communicator& ranks, Arena& arena) {
    const Tensor gaps = arena.alloc(DType::f32, {2, 4}).slice_cols(0, 2);
    EXPECT_THROW(ranks.all_reduce(gaps).wait(), CheckFailure);
  });
}

}  // namespace
}  // namespace weft
