// Tensors that go by a fabric: the bits of the host's communicators, whatever the sizes, and their ways to fail.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "comm/joined.h"
#include "comm/same_collectives.h"
#include "support.h"
#include "weft/comm/local_group.h"

namespace weft {
namespace {

using testing::everything;
using testing::HostFabric;
using testing::HostWires;
using testing::joined;
using testing::nothing;
using testing::Values;

// As run_local, with all tensors on devices.
void run_joined(const MeshSizes& sizes, const std::function<void(const ProcessMesh&)>& body) {
  HostWires wires;
  run_local(sizes, [&](const ProcessMesh& host) { body(joined(host, wires).mesh); });
}

TEST(FabricSlow, CollectivesHaveTheBitsOfTheHosts) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    HostWires wires;
    run_local(MeshSizes{.tp = ranks}, [&](const ProcessMesh& host) {
      const ProcessMesh mesh = joined(host, wires).mesh;
      testing::SameCollectives(host[Axis::tp], mesh[Axis::tp]).expect_all();
    });
    EXPECT_EQ(wires.exchanges > 0, ranks > 1);
  }
}

// Several axes at a time: each rank starts them in an order of its own, and waits in another.
TEST(Fabric, AxesGoOnBesideEachOther) {
  HostWires wires;
  run_local(MeshSizes{.dp = 3, .tp = 2}, [&](const ProcessMesh& host) {
    const ProcessMesh mesh = joined(host, wires).mesh;
    const auto run = [&](const ProcessMesh& m) {
      std::deque<Values> tensors;
      std::vector<Work> works;
      const auto reduce = [&](Axis axis) {
        tensors.emplace_back(DType::f32, 3000, host.world->rank());
        works.push_back(m[axis].all_reduce(tensors.back().tensor()));
      };
      const bool tp_first = host.world->rank() % 2 == 1;
      for (int i = 0; i < 8; ++i) reduce((i < 4) == tp_first ? Axis::tp : Axis::dp);
      for (size_t i = works.size(); i-- > 0;) works[i].wait();
      return tensors;
    };
    EXPECT_TRUE(run(host) == run(mesh));
  });
}

// Around the ring both ways, all sends before any receive.
TEST(Fabric, MessagesPassEachOther) {
  for (const int ranks : {2, 3, 5}) {
    run_joined({.pp = ranks}, [&](const ProcessMesh& mesh) {
      Communicator& pp = *mesh.pp;
      const auto neighbours = [&](int r) { return std::array{(r + 1) % ranks, (r + ranks - 1) % ranks}; };
      std::deque<Values> sent;
      std::vector<Work> works;
      for (int i = 0; i < 3; ++i) {
        for (const int to : neighbours(pp.rank())) {
          sent.emplace_back(DType::bf16, 5000 + i, pp.rank());
          works.push_back(pp.send(sent.back().tensor(), to));
        }
      }
      for (const int from : std::set<int>{neighbours(pp.rank())[0], neighbours(pp.rank())[1]}) {
        for (int i = 0; i < 3; ++i) {
          for (const int to : neighbours(from)) {
            if (to != pp.rank()) continue;
            Values got(DType::bf16, 5000 + i, 7);
            pp.recv(got.tensor(), from).wait();
            EXPECT_TRUE(got == Values(DType::bf16, 5000 + i, from));
          }
        }
      }
      for (Work& w : works) w.wait();
    });
  }
}

TEST(Fabric, MessagesBetweenRanksThatAreNoNeighboursGoByTheHost) {
  run_joined({.pp = 4}, [&](const ProcessMesh& mesh) {
    Values x(DType::f32, 9, mesh.pp->rank());
    if (mesh.pp->rank() == 0) mesh.pp->send(x.tensor(), 2).wait();
    if (mesh.pp->rank() != 2) return;
    mesh.pp->recv(x.tensor(), 0).wait();
    EXPECT_TRUE(x == Values(DType::f32, 9, 0));
  });
}

TEST(Fabric, WhatLiesElsewhereGoesByTheHost) {
  HostWires wires;
  run_local(MeshSizes{.pp = 2, .tp = 2}, [&](const ProcessMesh& host) {
    const ProcessMesh mesh = joined(host, wires, nothing).mesh;
    barrier(*mesh.world);
    const int64_t before = wires.exchanges;
    barrier(*mesh.world);
    float x = 1;
    const Tensor t{&x, DType::f32, {1}};
    mesh[Axis::tp].all_reduce(t).wait();
    if (mesh.pp->rank() == 0) mesh.pp->send(t, 1).wait();
    if (mesh.pp->rank() == 1) mesh.pp->recv(t, 0).wait();
    EXPECT_EQ(x, 2);
    barrier(*mesh.world);
    EXPECT_EQ(wires.exchanges, before);
  });
}

TEST(Fabric, TensorsOfACallThatLieInDifferentMemoryAreRefused) {
  static std::array<float, 4> of_device;
  const auto holds = [](const void* at) { return at >= of_device.data() && at < of_device.data() + of_device.size(); };
  HostWires wires;
  EXPECT_THROW(run_local(MeshSizes{.tp = 2},
                         [&](const ProcessMesh& host) {
                           const ProcessMesh mesh = joined(host, wires, holds).mesh;
                           std::array<float, 2> elsewhere;
                           mesh[Axis::tp]
                               .reduce_scatter({of_device.data(), DType::f32, {4}}, {elsewhere.data(), DType::f32, {2}})
                               .wait();
                         }),
               CheckFailure);
}

std::string failure_of(const MeshSizes& sizes, const std::function<void(const ProcessMesh&)>& body) {
  return testing::prompt_error_of([&] { run_joined(sizes, body); });
}

TEST(Fabric, RanksThatDoNotAgreeAllFailAndSayWhere) {
  const std::string text = failure_of({.dp = 3}, [](const ProcessMesh& mesh) {
    Values x(DType::f32, mesh.world->rank() == 1 ? 100 : 90, 0);
    mesh[Axis::dp].all_reduce(x.tensor()).wait();
  });
  EXPECT_NE(text.find("do not agree"), std::string::npos) << text;
  EXPECT_NE(text.find("all-reduce 0 of 100 f32"), std::string::npos) << text;
  EXPECT_NE(text.find("all-reduce 0 of 90 f32"), std::string::npos) << text;
  EXPECT_NE(text.find("fabric_test.cpp"), std::string::npos) << text;
}

TEST(FabricSlow, RanksThatWaitForEachOtherWithoutEndFail) {
  const std::string text = failure_of({.dp = 2}, [](const ProcessMesh& mesh) {
    Values x(DType::f32, 100, 0);
    if (mesh.world->rank() == 0) mesh[Axis::dp].all_reduce(x.tensor()).wait();
  });
  EXPECT_NE(text.find("has ended"), std::string::npos) << text;
}

// The others wait for a device that waits for it; their memory ends only when no device touches it any more.
TEST(Fabric, ARankThatDiesDoesNotLeaveTheOthersWaiting) {
  for (int turn = 0; turn < 20; ++turn) {
    const std::string text = failure_of({.dp = 3}, [](const ProcessMesh& mesh) {
      Values x(DType::f32, 50000, 0), y(DType::f32, 50000, 0);
      Work first = mesh[Axis::dp].all_reduce(x.tensor()), second = mesh[Axis::dp].all_reduce(y.tensor());
      if (mesh.world->rank() == 1) throw NumericsError("rank 1 has a bad value");
      first.wait();
      second.wait();
    });
    EXPECT_EQ(text, "rank 1 has a bad value");
  }
}

// Memory ends before the works in it do, as where an arena is declared behind them.
TEST(Fabric, ARankThatGivesUpEndsWhatItHasUnderWay) {
  const std::string text = failure_of({.dp = 2}, [](const ProcessMesh& mesh) {
    if (mesh.world->rank() == 0) {
      Values x(DType::f32, 50000, 0);
      Work under_way = mesh[Axis::dp].all_reduce(x.tensor());
      mesh.progress->give_up();
      EXPECT_THROW(under_way.wait(), CommError);
      EXPECT_THROW(mesh[Axis::dp].all_reduce(x.tensor()).wait(), CommError);
      throw Error("given up");
    }
    Values x(DType::f32, 50000, 0);
    mesh[Axis::dp].all_reduce(x.tensor()).wait();
  });
  EXPECT_EQ(text, "given up");
}

// All ranks are there, but the devices hang.
std::string failure_of_stalled(const std::string& failure, double timeout_s) {
  HostWires wires;
  const auto stall = [&](const ProcessMesh& host) {
    const ProcessMesh mesh = joined(host, wires, everything, timeout_s, 0.05).mesh;
    barrier(*mesh.world);
    {
      const std::lock_guard lock(wires.mutex);
      wires.stalled = true;
      wires.failure = failure;
    }
    Values x(DType::f32, 100, 0);
    mesh[Axis::dp].all_reduce(x.tensor()).wait();
  };
  return testing::error_of<CommError>([&] { run_local(MeshSizes{.dp = 2}, stall); });
}

TEST(Fabric, WhatADeviceCannotDoIsNamedWithItsCall) {
  const std::string broken = failure_of_stalled("the cable is out", 20);
  EXPECT_NE(broken.find("threads has failed in all-reduce 0 of 100 f32 at "), std::string::npos) << broken;
  EXPECT_NE(broken.find("the cable is out"), std::string::npos) << broken;
  const std::string slow = failure_of_stalled("", 0.1);
  EXPECT_NE(slow.find("threads: all-reduce 0 of 100 f32 at "), std::string::npos) << slow;
  EXPECT_NE(slow.find("is not over after "), std::string::npos) << slow;
}

TEST(Fabric, RanksThatShareADeviceGoByTheHost) {
  HostWires wires;
  run_local(MeshSizes{.dp = 3}, [&](const ProcessMesh& host) {
    const auto fabric = std::make_shared<HostFabric>(wires, host.world->rank() == 0 ? "a" : "b", everything);
    const FabricMesh all = over_fabric(host, {.fabric = fabric});
    EXPECT_NE(all.note.find("ranks 1 and 2 share a GPU"), std::string::npos) << all.note;
    EXPECT_EQ(all.mesh.axes, host.axes);
  });
}

TEST(Fabric, WhereARankHasNoneAllGoByTheHost) {
  HostWires wires;
  run_local(MeshSizes{.dp = 3}, [&](const ProcessMesh& host) {
    std::shared_ptr<Fabric> fabric;
    if (host.world->rank() != 2) fabric = std::make_shared<HostFabric>(wires, "a", everything);
    const FabricMesh all = over_fabric(host, {.fabric = fabric, .why_none = "there is no library"});
    EXPECT_NE(all.note.find("rank 2: there is no library"), std::string::npos) << all.note;
    EXPECT_EQ(all.mesh.axes, host.axes);
  });
}

}  // namespace
}  // namespace weft
