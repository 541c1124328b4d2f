#include "weft/comm/sent_bytes.h"

#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "weft/comm/local_group.h"

namespace weft {
namespace {

const MeshSizes kLayouts[] = {{.dp = 4, .tp = 2},
                              {.dp = 2, .pp = 2, .tp = 2},
                              {.dp = 2, .cp = 2, .tp = 2, .shards = 2},
                              {.dp = 4, .tp = 2, .ep = 2, .shards = 2, .frozen_shards = 4},
                              {.dp = 2, .pp = 2, .cp = 2, .order = *mesh_order("pp-tp-cp-ep-dp")},
                              {.dp = 2, .pp = 2, .teacher = TeacherAxes{.tp = 2}}};

// The same calls for each communicator of several ranks, of other sizes on each.
void call_all(ProcessMesh mesh) {
  int64_t n = 1;
  mesh.each([&](std::shared_ptr<Communicator>& c, const std::string&) {
    if (c->size() == 1) return;
    const int64_t elements = 64 * c->size() * n++;
    std::vector<float> full(size_t(elements), 1), shard(size_t(elements / c->size()), 1), got(3);
    const Tensor all{full.data(), DType::f32, {elements}}, part{shard.data(), DType::f32, {int64_t(shard.size())}};
    c->all_reduce(all).wait();
    c->all_gather(part, all).wait();
    c->reduce_scatter(all, part).wait();
    const int next = (c->rank() + 1) % c->size(), before = (c->rank() + c->size() - 1) % c->size();
    Work sent = c->send({full.data(), DType::f32, {3}}, next);
    c->recv({got.data(), DType::f32, {3}}, before).wait();
    sent.wait();
  });
}

nlohmann::json counted_calls(const MeshSizes& sizes) {
  nlohmann::json told;
  run_local(sizes, [&](const ProcessMesh& mesh) {
    SentBytes sent;
    const ProcessMesh counted = sent.counted(mesh);
    call_all(counted);
    sent.clear();
    call_all(counted);
    nlohmann::json mine = sent.wait_gather(*mesh.world);
    if (mesh.world->rank() == 0) told = std::move(mine);
  });
  return told;
}

TEST(SentBytes, GroupsAreTheRanksThatMeet) {
  for (const MeshSizes& sizes : kLayouts) {
    const MeshGroups groups = groups_of(sizes);
    run_local(sizes, [&](const ProcessMesh& plain) {
      ProcessMesh mesh = plain;
      size_t axis = 0;
      mesh.each([&](std::shared_ptr<Communicator>& c, const std::string& name) {
        int32_t me = plain.world->rank();
        std::vector<int32_t> met(size_t(c->size()));
        c->all_gather({&me, DType::i32, {1}}, {met.data(), DType::i32, {c->size()}}).wait();
        const auto& all = groups.axes.at(axis++).groups;
        EXPECT_EQ(std::count(all.begin(), all.end(), std::vector<int>(met.begin(), met.end())), 1) << name;
      });
      EXPECT_EQ(axis, groups.axes.size());
    });
  }
}

TEST(SentBytes, AreThoseThatTheDryRunCountsOnEveryRankByAxis) {
  for (const MeshSizes& sizes : kLayouts) {
    const nlohmann::json told = counted_calls(sizes);
    ASSERT_EQ(told["world"], sizes.world());
    for (int rank = 0; rank < sizes.world(); ++rank) {
      Traffic traffic;
      call_all(dry_mesh(sizes, rank, &traffic));
      std::map<std::string, Traffic::Count> planned, counted;
      for (const auto& [what, count] : traffic.counts()) {
        planned[what.first].calls += count.calls;
        planned[what.first].bytes += count.bytes;
      }
      for (const nlohmann::json& axis : told["axes"]) {
        Traffic::Count& c = counted[axis["axis"]];
        c.calls += axis["calls"][size_t(rank)].get<int64_t>();
        c.bytes += axis["collectives"][size_t(rank)].get<int64_t>();
        for (const nlohmann::json& message : axis["messages"])
          if (message[0] == rank) c.bytes += message[2].get<int64_t>();
      }
      EXPECT_EQ(planned, counted) << "rank " << rank << ": " << told;
    }
  }
}

TEST(SentBytes, AMessageIsCountedFromItsRankToItsRank) {
  const nlohmann::json told = counted_calls({.pp = 3});
  ASSERT_EQ(told["axes"].at(0)["axis"], "pp") << told;
  const nlohmann::json around = nlohmann::json::parse("[[0,1,12],[1,2,12],[2,0,12]]");
  EXPECT_EQ(told["axes"][0]["messages"], around);
}

TEST(SentBytes, PartsForOthersAddUp) {
  EXPECT_EQ(parts_for_others(10, 3), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(parts_for_others(0, 1), (std::vector<int64_t>{0}));
}

}  // namespace
}  // namespace weft
