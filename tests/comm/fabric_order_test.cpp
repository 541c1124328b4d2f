// Ordered calls: after the device's earlier work and before its later work, without the host waiting.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>

#include "comm/joined.h"
#include "comm/same_collectives.h"
#include "support.h"
#include "weft/comm/local_group.h"
#include "weft/comm/through_host.h"
#include "weft/comm/timed.h"

namespace weft {
namespace {

using testing::everything;
using testing::HostWires;
using testing::ThreadQueue;
using testing::Values;

// A rank whose device begins nothing before somebody waits for it.
struct OrderedRank {
  OrderedRank(const ProcessMesh& host, HostWires& wires, double timeout_s = 20)
      : mesh(testing::joined(host, wires, everything, timeout_s).mesh) {
    mesh.progress->order_by([this] { return &device; });
  }
  OrderedRank(const OrderedRank&) = delete;
  OrderedRank& operator=(const OrderedRank&) = delete;
  ~OrderedRank() {
    if (std::uncaught_exceptions() > 0) mesh.progress->give_up();
  }
  void wait_all() {
    mesh.progress->settle();
    device.wait_all();
  }
  ProcessMesh mesh;
  ThreadQueue device{true};  // ends before the mesh, whose queues it may be waiting for
};

void set_stalled(HostWires& wires, bool stalled) {
  const std::lock_guard lock(wires.mutex);
  wires.stalled = stalled;
  wires.news.notify_all();
}

TEST(FabricOrder, CallsComeBehindOpsAndOpsBehindCalls) {
  constexpr int kRounds = 50, kRanks = 3;
  HostWires wires;
  run_local(MeshSizes{.dp = kRanks}, [&](const ProcessMesh& host) {
    std::array<float, 700> x = {};
    std::vector<float> seen;
    OrderedRank rank(host, wires);
    const int me = host.world->rank();
    for (int round = 0; round < kRounds; ++round) {
      rank.device.give([&x, round, me] { x.fill(float(round * 10 + me)); });
      rank.mesh[Axis::dp].all_reduce({x.data(), DType::f32, {int64_t(x.size())}}).wait();
      rank.device.give([&] { seen.push_back(std::accumulate(x.begin(), x.end(), 0.0F)); });
    }
    rank.wait_all();
    ASSERT_EQ(seen.size(), size_t(kRounds));
    for (int round = 0; round < kRounds; ++round) EXPECT_EQ(seen[size_t(round)], float((30 * round + 3) * 700));
  });
}

TEST(FabricOrder, CollectivesHaveTheBitsOfTheHosts) {
  HostWires wires;
  run_local(MeshSizes{.tp = 3}, [&](const ProcessMesh& host) {
    OrderedRank rank(host, wires);
    const testing::Place there{.take_back = [&](Values&, const Tensor&) { rank.wait_all(); }};
    testing::SameCollectives same(host[Axis::tp], rank.mesh[Axis::tp], there);
    for (const int64_t n : testing::kSizes) same.expect(DType::bf16, n);
    same.expect(DType::i32, 65);
  });
}

// What one rank's device sends, the other's has when it needs it.
TEST(FabricOrder, MessagesFollowEachOther) {
  HostWires wires;
  run_local(MeshSizes{.pp = 2}, [&](const ProcessMesh& host) {
    int64_t x = 0;
    const Tensor t{&x, DType::i64, {1}};
    OrderedRank rank(host, wires);
    Communicator& pp = *rank.mesh.pp;
    const int me = pp.rank(), other = 1 - me;
    for (int turn = 0; turn < 40; ++turn) {
      if (turn % 2 == me) {
        rank.device.give([&] { x = 2 * x + 1; });
        pp.send(t, other).wait();
      } else {
        pp.recv(t, other).wait();
      }
    }
    rank.wait_all();
    EXPECT_EQ(x, (int64_t{1} << 40) - 1);
  });
}

TEST(FabricOrder, NoHostWaitsForADevice) {
  HostWires wires;
  run_local(MeshSizes{.dp = 2}, [&](const ProcessMesh& host) {
    std::array<float, 100> x = {};
    std::atomic<bool> ran = false;
    OrderedRank rank(host, wires);
    barrier(*host.world);
    if (host.world->rank() == 0) set_stalled(wires, true);
    barrier(*host.world);
    rank.mesh[Axis::dp].all_reduce({x.data(), DType::f32, {100}}).wait();
    rank.device.give([&] { ran = true; });
    const int64_t behind = rank.device.mark();
    const auto began = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(50))
      EXPECT_FALSE(rank.device.passed(behind));
    EXPECT_FALSE(ran);
    barrier(*host.world);
    set_stalled(wires, false);
    rank.wait_all();
    EXPECT_TRUE(ran);
  });
}

TEST(FabricOrder, WhatIsNotOrderedWaitsForTheDeviceFirst) {
  HostWires wires;
  run_local(MeshSizes{.pp = 4}, [&](const ProcessMesh& host) {
    std::array<float, 4> x = {};
    const Tensor of_device{x.data(), DType::f32, {4}}, empty{x.data(), DType::f32, {0}};
    int finished = 0;
    const std::function<void()> finish = [&] { ++finished; };
    OrderedRank rank(host, wires);
    const int me = rank.mesh.pp->rank(), next = (me + 1) % 4, before = (me + 3) % 4, opposite = (me + 2) % 4;
    EXPECT_TRUE(rank.mesh.pp->is_ordered(of_device, next));
    EXPECT_TRUE(rank.mesh.pp->is_ordered(empty, opposite));
    EXPECT_FALSE(rank.mesh.pp->is_ordered(of_device, opposite));  // no neighbour: by the host
    EXPECT_FALSE(rank.mesh.pp->is_ordered(of_device));            // as collectives of the pipeline do
    EXPECT_FALSE(rank.mesh.world->is_ordered(of_device));
    const ProcessMesh mesh = after(rank.mesh, finish);
    Work sent = mesh.pp->send(of_device, next);
    mesh.pp->recv(of_device, before).wait();
    sent.wait();
    rank.wait_all();
    EXPECT_EQ(finished, 0);
    mesh.pp->all_reduce(of_device).wait();
    EXPECT_EQ(finished, 1);
  });
}

// Its host was done with it long before.
TEST(FabricOrder, CallsHaveTheTimesOfTheirDevice) {
  HostWires wires;
  run_local(MeshSizes{.dp = 2}, [&](const ProcessMesh& host) {
    std::array<float, 100> x = {};
    CommTimes times;
    std::vector<CommEvent> events;
    OrderedRank rank(host, wires);
    const auto now_s = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
    const ProcessMesh mesh = timed(rank.mesh, times, {.now_s = now_s, .events = &events});
    EXPECT_TRUE(mesh[Axis::dp].is_ordered({x.data(), DType::f32, {100}}));
    barrier(*host.world);
    set_stalled(wires, true);
    const double began_s = now_s();
    for (int i = 0; i < 2; ++i) mesh[Axis::dp].all_reduce({x.data(), DType::f32, {100}}).wait();
    const double waited_s = now_s();
    barrier(*host.world);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(events.empty());
    const double goes_on_s = now_s();
    set_stalled(wires, false);
    mesh.progress->settle();
    rank.device.wait_all();
    ASSERT_EQ(events.size(), 2u);
    EXPECT_LE(began_s, events[0].began_s);
    EXPECT_LE(events[0].began_s, goes_on_s);
    EXPECT_LE(events[0].ended_s, events[1].began_s);
    EXPECT_LE(events[1].ended_s, now_s());
    for (const CommEvent& e : events) {
      EXPECT_LE(waited_s + 0.02, e.ended_s);
      EXPECT_EQ(e.waited_s, e.ended_s);
      EXPECT_EQ(e.bytes, 400);
    }
    double under_way_s = 0;  // one behind the other
    for (const CommEvent& e : events) under_way_s += e.ended_s - e.began_s;
    EXPECT_NEAR(times.at("dp").under_way_s, under_way_s, 1e-6);
    EXPECT_EQ(times.at("dp").calls, 2);
  });
}

// All ranks are there, but the devices hang: the waiting rank reports it.
TEST(FabricOrder, WhatADeviceDoesNotEndIsNamedWithItsCall) {
  HostWires wires;
  const std::string text = testing::error_of([&] {
    run_local(MeshSizes{.dp = 2}, [&](const ProcessMesh& host) {
      std::array<float, 100> x = {};
      OrderedRank rank(host, wires, 0.5);
      barrier(*host.world);
      set_stalled(wires, true);
      rank.mesh[Axis::dp].all_reduce({x.data(), DType::f32, {100}}).wait();
      rank.mesh[Axis::dp].all_reduce({x.data(), DType::f32, {50}}).wait();
      rank.wait_all();
    });
  });
  EXPECT_NE(text.find("threads: all-reduce 0 of 100 f32 at "), std::string::npos) << text;
  EXPECT_NE(text.find("is not over after "), std::string::npos) << text;
}

std::string failure_of(const MeshSizes& sizes, const std::function<void(OrderedRank&)>& body) {
  HostWires wires;
  const auto run = [&](const ProcessMesh& host) {
    OrderedRank rank(host, wires);
    body(rank);
  };
  return testing::prompt_error_of([&] { run_local(sizes, run); });
}

// One device waits for the other, which never gets the matching call.
TEST(FabricOrder, ARankThatDiesDoesNotLeaveDevicesWaiting) {
  for (int turn = 0; turn < 10; ++turn) {
    static std::array<float, 5000> x;
    const std::string text = failure_of({.pp = 2}, [](OrderedRank& rank) {
      if (rank.mesh.pp->rank() == 1) throw NumericsError("rank 1 has a bad value");
      rank.mesh.pp->send({x.data(), DType::f32, {5000}}, 1).wait();
      EXPECT_THROW(rank.mesh.progress->settle(), CommError);
      rank.device.wait_all();  // nothing is left that it waits for
      throw CommError("the other one");
    });
    EXPECT_EQ(text, "rank 1 has a bad value");
  }
}

// One queue waits for the device, which waits for the other queue, which hangs.
TEST(FabricOrder, QueuesThatWaitForEachOtherEndTogether) {
  for (const auto& [first, second] : {std::pair{Axis::tp, Axis::dp}, std::pair{Axis::dp, Axis::tp}}) {
    static std::array<std::array<float, 100>, 4> x, y;
    HostWires wires;
    const auto run = [&, first = first, second = second](const ProcessMesh& host) {
      const auto me = size_t(host.world->rank());
      OrderedRank rank(host, wires);
      barrier(*host.world);
      set_stalled(wires, true);
      rank.mesh[first].all_reduce({x[me].data(), DType::f32, {100}}).wait();
      rank.device.give([] {});
      const Work under_way = rank.mesh[second].all_reduce({y[me].data(), DType::f32, {100}});
      throw Error("given up");
    };
    EXPECT_EQ(testing::prompt_error_of([&] { run_local(MeshSizes{.dp = 2, .tp = 2}, run); }), "given up");
  }
}

// Later calls are refused, and so is waiting for what was under way.
TEST(FabricOrder, ARankThatHasGivenUpCallsNothingMore) {
  static std::array<std::array<float, 100>, 2> all;
  const std::string text = failure_of({.dp = 2}, [](OrderedRank& rank) {
    auto& x = all[size_t(rank.mesh.world->rank())];
    rank.mesh[Axis::dp].all_reduce({x.data(), DType::f32, {100}}).wait();
    rank.wait_all();
    if (rank.mesh.world->rank() == 1) return;
    rank.mesh.progress->give_up();
    EXPECT_THROW(rank.mesh.progress->settle(), CommError);
    EXPECT_THROW(rank.mesh[Axis::dp].all_reduce({x.data(), DType::f32, {100}}).wait(), CommError);
    throw Error("given up");
  });
  EXPECT_EQ(text, "given up");
}

}  // namespace
}  // namespace weft
