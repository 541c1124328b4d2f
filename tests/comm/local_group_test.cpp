#include "weft/comm/local_group.h"
#include "weft/comm/all_to_all.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "support.h"
#include "weft/comm/agree.h"

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

TEST(LocalGroup, TheFirstRanksTextReachesAllWholeHoweverLongItIs) {
  const std::string text = std::string(1022, 'x') + "\xc3\xa9, and what to do about it";  // a character of two bytes
  run_local(3, [&](Communicator& c) {
    EXPECT_EQ(first_text(c, ""), "");
    EXPECT_EQ(first_text(c, c.rank() == 0 ? "" : text + std::to_string(c.rank())), text + "1");
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

// Sends and receives are pairs': a rank between two others makes more of them than they, and meets them all the same.
TEST(LocalGroup, RanksMeetThoughSomeHaveSentMoreThanOthers) {
  run_local(3, [](Communicator& c) {
    float x = 1;
    const Tensor t{&x, DType::f32, {1}};
    if (c.rank() > 0) c.recv(t, c.rank() - 1).wait();
    if (c.rank() < 2) c.send(t, c.rank() + 1).wait();
    c.all_reduce(t).wait();
    EXPECT_EQ(x, 3);
  });
}

TEST(LocalGroup, ARankThatDiesDoesNotLeaveTheOthersWaiting) {
  const auto dies = [](Communicator& c) {
    if (c.rank() == 1) throw Error("rank 1 is gone");
    float x = 0;
    c.all_reduce({&x, DType::f32, {1}}).wait();
  };
  EXPECT_EQ(testing::error_of<Error>([&] { run_local(3, dies); }), "rank 1 is gone");
}

// All but the first only poll, and then stay away from it for as long as it waits.
TEST(LocalGroup, CollectivesGoOnWhileRanksDoOtherThings) {
  std::atomic<int> issued{0}, polled{0};
  std::atomic<bool> first_is_over{false};
  const auto until = [](const auto& over) {
    const auto began = std::chrono::steady_clock::now();
    while (!over() && std::chrono::steady_clock::now() - began < std::chrono::seconds(20)) std::this_thread::yield();
    return over();
  };
  run_local(MeshSizes{.dp = 2, .tp = 2}, [&](const ProcessMesh& mesh) {
    std::array<double, 3> sums{1, 10, 100};
    std::array<int32_t, 2> got{-1, -1}, mine{mesh.world->rank(), 7};
    std::vector<Work> works;
    for (double& sum : sums) works.push_back(mesh[Axis::dp].all_reduce({&sum, DType::f64, {1}}));
    double of_tp = 5;
    works.push_back(mesh[Axis::tp].all_reduce({&of_tp, DType::f64, {1}}));
    const int peer = (mesh.world->rank() + 2) % 4;
    for (int32_t& x : got) works.push_back(mesh.world->recv({&x, DType::i32, {1}}, peer));
    for (int32_t& x : mine) works.push_back(mesh.world->send({&x, DType::i32, {1}}, peer));
    ++issued;
    EXPECT_TRUE(until([&] { return issued == 4; }));
    mesh.progress->poll();
    ++polled;
    EXPECT_TRUE(until([&] { return polled == 4; }));
    if (mesh.world->rank() > 0) {
      EXPECT_TRUE(until([&] { return first_is_over.load(); })) << "it needs this rank";
    }
    for (size_t i = works.size(); i-- > 0;) works[i].wait();
    if (mesh.world->rank() == 0) first_is_over = true;
    EXPECT_EQ(sums, (std::array<double, 3>{2, 20, 200}));
    EXPECT_EQ(of_tp, 10);
    EXPECT_EQ(got, (std::array<int32_t, 2>{peer, 7}));
  });
}

// Its memory must outlive all readers, which the address sanitizer checks.
TEST(LocalGroup, ARankThatDiesWithSomethingUnderWayIsWhatIsReported) {
  for (int turn = 0; turn < 20; ++turn) {
    EXPECT_THROW(run_local(3,
                           [](Communicator& c) {
                             std::vector<float> x(1 << 18, 1.f);
                             const Tensor t{x.data(), DType::f32, {int64_t(x.size())}};
                             Work first = c.all_reduce(t), second = c.all_reduce(t);
                             if (c.rank() == 1) throw NumericsError("rank 1 has a bad value");
                             first.wait();
                             second.wait();
                           }),
                 NumericsError);
  }
}

TEST(LocalGroup, ATypeWithoutASumIsRefusedAtTheCall) {
  EXPECT_THROW(run_local(2,
                         [](Communicator& c) {
                           int32_t x = 1;
                           c.all_reduce({&x, DType::i32, {1}}).wait();
                         }),
               CheckFailure);
}

std::string failure_of(int size, const std::function<void(Communicator&)>& body) {
  return testing::error_of<CommError>([&] { run_local(size, body); });
}

// The shorter tensor's memory is not read beyond its end: the ranks find out before they touch any.
TEST(LocalGroup, RanksThatDoNotAgreeAreNamedWithBothSites) {
  for (const int64_t longer : {1, 4, 1000}) {
    const std::string text = failure_of(3, [&](Communicator& c) {
      std::vector<float> x(size_t(c.rank() == 2 ? longer : 2), 1.f);
      c.all_reduce({x.data(), DType::f32, {int64_t(x.size())}}).wait();
    });
    EXPECT_NE(text.find("rank 0 is in all-reduce 0 of 2 f32 at "), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("rank 2 in all-reduce 0 of {} f32 at ", longer)), std::string::npos) << text;
    EXPECT_NE(text.find("local_group_test.cpp:"), std::string::npos) << text;
  }
  const std::string text = failure_of(2, [&](Communicator& c) {
    std::array<double, 2> x{}, y{};
    if (c.rank() == 0)
      c.all_reduce({x.data(), DType::f64, {1}}).wait();
    else
      c.all_gather({x.data(), DType::f64, {1}}, {y.data(), DType::f64, {2}}).wait();
  });
  EXPECT_NE(text.find("all-reduce 0 of 1 f64"), std::string::npos) << text;
  EXPECT_NE(text.find("all-gather 0 of 1 f64"), std::string::npos) << text;
}

TEST(LocalGroupSlow, AWaitThatCannotEndIsNamed) {
  std::atomic<int> told{0};
  const auto began = std::chrono::steady_clock::now();
  const std::string text = failure_of(3, [&](Communicator& c) {
    float x = 0;
    try {
      if (c.rank() == 0) c.all_reduce({&x, DType::f32, {1}}).wait();
      if (c.rank() == 1) c.recv({&x, DType::f32, {1}}, 0).wait();
    } catch (const CommError& e) {
      told += std::string(e.what()).find("rank 1 waits in receive 0 of 1 f32 with rank 0") != std::string::npos;
      throw;
    }
  });
  EXPECT_NE(text.find("rank 0 waits in all-reduce 0 of 1 f32"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2 has ended"), std::string::npos) << text;
  EXPECT_EQ(told, 2);  // everyone who waited
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(8));
}

TEST(ProcessMesh, AxesHoldTheRanksThatDifferInNothingElse) {
  run_local(MeshSizes{.dp = 2, .pp = 2, .cp = 1, .tp = 2}, [](const ProcessMesh& mesh) {
    const int rank = mesh.world->rank();
    EXPECT_EQ(mesh[Axis::tp].rank(), rank % 2);
    EXPECT_EQ(mesh[Axis::dp].rank(), rank / 2 % 2);
    EXPECT_EQ(mesh.pp->rank(), rank / 4);
    double sum = rank;
    mesh[Axis::dp].all_reduce({&sum, DType::f64, {1}}).wait();
    EXPECT_EQ(sum, 2 * (rank - rank / 2 % 2 * 2) + 2);
  });
}

TEST(ProcessMesh, RanksAreNumberedInTheOrderOfTheAxes) {
  MeshSizes sizes{.dp = 2, .pp = 3, .cp = 4, .tp = 5};
  for (const char* text : {"tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp", "ep-cp-pp-tp-dp"}) {
    sizes.order = mesh_order(text).value();
    EXPECT_EQ(rank_at(sizes, {}), 0);
    for (int rank = 0; rank < sizes.world(); ++rank) EXPECT_EQ(rank_at(sizes, place_of(sizes, rank)), rank) << text;
  }
  sizes.order = mesh_order("pp-dp-ep-cp-tp").value();
  EXPECT_EQ(rank_at(sizes, {.dp = 0, .pp = 1, .cp = 0, .tp = 0}), 1);
  EXPECT_EQ(rank_at(sizes, {.dp = 1, .pp = 0, .cp = 0, .tp = 0}), 3);
  EXPECT_EQ(rank_at(sizes, {.dp = 0, .pp = 0, .cp = 1, .tp = 0}), 6);
  EXPECT_EQ(rank_at(sizes, {.dp = 0, .pp = 0, .cp = 0, .tp = 1}), 24);
  for (const char* text :
       {"", "tp", "tp-cp-ep-dp", "tp-cp-ep-dp-pp-", "tp-cp-ep-dp-dp", "tp cp ep dp pp", "tp-cp-ep-dp-xx"})
    EXPECT_FALSE(mesh_order(text).has_value()) << text;
}

// Whatever the order: each group's ranks are 0, 1, 2, ... in the order of the world's, as engines need them.
TEST(ProcessMesh, ExpertsAreCutOverTheDataRanksInAnyOrder) {
  for (const char* text : {"tp-cp-ep-dp-pp", "tp-cp-dp-ep-pp", "dp-cp-ep-tp-pp", "pp-ep-dp-cp-tp", "cp-pp-dp-tp-ep"}) {
    const MeshSizes sizes{.dp = 4,
                          .pp = 2,
                          .cp = 3,
                          .tp = 2,
                          .ep = 6,
                          .shards = 2,
                          .frozen_ep = 3,
                          .frozen_shards = 4,
                          .order = mesh_order(text).value()};
    std::map<std::string, int> members;
    for (int rank = 0; rank < sizes.world(); ++rank)
      make_mesh(sizes, rank, [&](const MeshGroup& g) {
        EXPECT_EQ(g.rank, members[g.name]++) << text << " " << g.name;
        return std::shared_ptr<Communicator>();
      });
    for (const auto& [name, count] : members) {
      if (name.starts_with("ep")) { EXPECT_EQ(count, 6) << text << " " << name; }
      if (name.starts_with("frozen_ep")) { EXPECT_EQ(count, 3) << text << " " << name; }
      if (name.starts_with("frozen_shards")) { EXPECT_EQ(count, 4) << text << " " << name; }
    }
  }
}

// Rank i has i + 2 j numbers for rank j, which are none for two of them.
TEST(LocalGroup, AnAllToAllGivesEachRankWhatTheOthersHaveForIt) {
  constexpr int kRanks = 3;
  run_local(kRanks, [](Communicator& ranks) {
    const auto count = [](int from, int to) { return int64_t(from + 2 * to); };
    const int me = ranks.rank();
    std::vector<std::vector<double>> out, in;
    std::vector<Tensor> sent, received;
    for (int r = 0; r < kRanks; ++r) {
      out.emplace_back(size_t(count(me, r)), 10.0 * me + r);
      in.emplace_back(size_t(count(r, me)), -1.0);
    }
    for (int r = 0; r < kRanks; ++r) {
      sent.push_back({out[size_t(r)].data(), DType::f64, {count(me, r)}});
      received.push_back({in[size_t(r)].data(), DType::f64, {count(r, me)}});
    }
    wait_all_to_all(ranks, sent, received);
    for (int r = 0; r < kRanks; ++r)
      for (const double x : in[size_t(r)]) EXPECT_EQ(x, r == me ? -1.0 : 10.0 * r + me) << r << " to " << me;
  });
}

TEST(ProcessMesh, ADryMeshCountsTheBytesThatLeaveTheRankInARing) {
  Traffic traffic;
  const ProcessMesh mesh = dry_mesh({.dp = 4, .tp = 2, .shards = 4}, 3, &traffic);
  const Tensor whole{nullptr, DType::f32, {80}}, quarter{nullptr, DType::f32, {20}};
  for (int i = 0; i < 2; ++i) mesh[Axis::dp].all_reduce(whole).wait();
  mesh.dense.shards->all_gather(quarter, whole).wait();
  mesh.dense.shards->reduce_scatter(whole, quarter).wait();
  mesh.dense.replicas->all_reduce(whole).wait();  // of one rank
  mesh[Axis::tp].send(whole, 0).wait();
  mesh[Axis::tp].recv(whole, 0).wait();
  const Traffic::Counts expected{{{"dp", Traffic::Kind::all_reduce}, {2, 2 * 480}},
                                 {{"dp", Traffic::Kind::all_gather}, {1, 240}},
                                 {{"dp", Traffic::Kind::reduce_scatter}, {1, 240}},
                                 {{"tp", Traffic::Kind::send}, {1, 320}}};
  EXPECT_EQ(traffic.counts(), expected);
}

// What replaces the communicators of a mesh replaces these too.
TEST(ProcessMesh, FrozenModelsMayShareTheDataRanksOtherwise) {
  ProcessMesh mesh = dry_mesh({.dp = 4, .tp = 2, .shards = 2, .frozen_ep = 2, .frozen_shards = 4}, 3);
  const ProcessMesh frozen = mesh.of_frozen();
  EXPECT_EQ(mesh.dense.shards->size(), 2);
  EXPECT_EQ(frozen.dense.shards->size(), 4);
  EXPECT_EQ(frozen.dense.shards->rank(), 1);
  EXPECT_EQ(mesh[Axis::ep].size(), 1);
  EXPECT_EQ(frozen[Axis::ep].size(), 2);
  EXPECT_EQ(frozen[Axis::edp].size(), 2);
  EXPECT_EQ(frozen.experts.shards->size(), 2);
  EXPECT_EQ(frozen.dense.all, mesh.dense.all);
  EXPECT_EQ(frozen.sizes.shards, 4);
  std::set<const Communicator*> seen;
  mesh.each([&](std::shared_ptr<Communicator>& ranks, const std::string& name) {
    EXPECT_TRUE(seen.insert(ranks.get()).second) << name;
    ranks = single_mesh().world;
  });
  const ProcessMesh replaced = mesh.of_frozen();
  for (const auto& ranks : {replaced.dense, replaced.experts})
    EXPECT_EQ(ranks.all->size() * ranks.shards->size() * ranks.replicas->size(), 1);
  EXPECT_EQ(replaced[Axis::ep].size(), 1);
  const ProcessMesh alike = dry_mesh({.dp = 4, .ep = 2, .shards = 2});
  EXPECT_EQ(alike.of_frozen().dense.shards, alike.dense.shards);
  EXPECT_EQ(&alike.of_frozen()[Axis::ep], &alike[Axis::ep]);
}

// Its groups are ranks of the same world, and those that were replaced in a copy are still the mesh's own.
TEST(ProcessMesh, ATeacherWithAxesOfItsOwnHasAMeshOfTheSameRanks) {
  const ProcessMesh mesh = dry_mesh({.dp = 4, .tp = 2, .teacher = TeacherAxes{.pp = 2, .tp = 4}}, 5);
  const ProcessMesh teacher = mesh.of_teacher();
  EXPECT_EQ(teacher.sizes.dp, 1);
  EXPECT_EQ(teacher[Axis::tp].size(), 4);
  EXPECT_EQ(teacher[Axis::tp].rank(), 1);
  EXPECT_EQ(teacher.pp->size(), 2);
  EXPECT_EQ(teacher.pp->rank(), 1);
  EXPECT_EQ(teacher.world, mesh.world);
  ProcessMesh copy = mesh;
  std::set<std::string> names;
  copy.each([&](std::shared_ptr<Communicator>& ranks, const std::string& name) {
    names.insert(name);
    ranks = single_mesh().world;
  });
  EXPECT_TRUE(names.contains("teacher_tp") && names.contains("teacher_pp") && !names.contains("teacher_world"));
  EXPECT_EQ(copy.of_teacher()[Axis::tp].size(), 1);
  EXPECT_EQ(copy.of_teacher().world, copy.world);
  EXPECT_EQ(mesh.of_teacher()[Axis::tp].size(), 4);
  EXPECT_EQ(mesh.of_frozen().of_teacher()[Axis::tp].size(), 4);
}

}  // namespace
}  // namespace weft
