#include "weft/schedule/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using Each = std::function<void(const Pipeline&, int64_t m)>;

// Every schedule on 1 to 8 ranks, with the chunks that fit, for 1 to 17 micro-batches.
void for_each_case(const Each& each) {
  for (const std::string_view name : kScheduleNames) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      if (name == "interleaved_1f1b" ? chunks < 2 : chunks != (name == "zbv" ? 2 : 1)) continue;
      for (int stages = 1; stages <= 8; ++stages) {
        const Pipeline pipeline = pipeline_named(name, stages, chunks);
        for (int64_t m = 1; m <= 17; ++m) {
          SCOPED_TRACE(fmt::format("{}: {} stages of {} chunks, {} micro-batches", name, stages, chunks, m));
          each(pipeline, m);
        }
      }
    }
  }
}

std::vector<int64_t> up_to_17() {
  std::vector<int64_t> all(17);
  for (int64_t i = 0; i < 17; ++i) all[size_t(i)] = i + 1;
  return all;
}

Timeline timeline_of(const Pipeline& pipeline, int64_t m, ActionTimes times) {
  return simulate(pipeline, schedules_of(pipeline, m), times);
}

std::string failure_of(const Pipeline& pipeline, const std::vector<Schedule>& schedules, Sends sends = Sends::free) {
  return testing::error_of<CheckFailure>(
      [&] { simulate(pipeline, schedules, uniform_times(pipeline, 1, 1, 1), sends); });
}

constexpr Do F = Do::forward, B = Do::backward, D = Do::dgrad, W = Do::wgrad;

TEST(Simulate, EveryScheduleIsLegalAndEndsForFreeAndForBoundedSends) {
  for_each_case([](const Pipeline& pipeline, int64_t m) {
    const auto schedules = schedules_of(pipeline, m);
    EXPECT_EQ(what_is_wrong(pipeline, schedules, m), "");
    ActionTimes times = uniform_times(pipeline, 3, 2, 1.5);
    times.communication = 0.25;
    const double ends = simulate(pipeline, schedules, times).makespan;
    EXPECT_GE(simulate(pipeline, schedules, times, Sends::one_at_a_time).makespan, ends);
  });
}

// Ends of all actions by kind, virtual stage and micro-batch, and what a result takes to another rank.
struct Ends {
  const Pipeline& pipeline;
  double communication;
  std::map<std::tuple<Do, int, int64_t>, double> ends = {};
  Do backward = Do::backward;

  void note(const TimedAction& t, int k) {
    ends[{t.action.what, k, t.action.micro_batch}] = t.end;
    if (t.action.what == Do::dgrad) backward = Do::dgrad;
  }
  double there(Do what, int from, int to, int64_t micro_batch) const {
    const bool far = place_of(pipeline, from).stage != place_of(pipeline, to).stage;
    return ends.at({what, from, micro_batch}) + (far ? communication : 0);
  }
  // When all that the action needs is there.
  double earliest(const Action& a, int k) const {
    if (a.what == F) return k == 0 ? 0 : there(F, k - 1, k, a.micro_batch);
    if (a.what == W) return ends.at({D, k, a.micro_batch});
    const double own = ends.at({F, k, a.micro_batch});
    return k + 1 == pipeline.num_virtual_stages() ? own : std::max(own, there(backward, k + 1, k, a.micro_batch));
  }
};

TEST(Simulate, NothingBeginsBeforeWhatItNeeds) {
  for_each_case([](const Pipeline& pipeline, int64_t m) {
    ActionTimes times = uniform_times(pipeline, 1, 1, 1);
    times.communication = 0.5;
    const Timeline timeline = timeline_of(pipeline, m, times);
    Ends ends{pipeline, times.communication};
    const auto each = [&](auto use) {
      for (int rank = 0; rank < pipeline.num_stages; ++rank)
        for (const TimedAction& t : timeline.ranks[size_t(rank)])
          use(t, virtual_stage(pipeline, {rank, t.action.chunk}));
    };
    each([&](const TimedAction& t, int k) { ends.note(t, k); });
    each([&](const TimedAction& t, int k) { EXPECT_GE(t.start, ends.earliest(t.action, k)); });
    for (const auto& of_rank : timeline.ranks)
      for (size_t i = 1; i < of_rank.size(); ++i) EXPECT_GE(of_rank[i].start, of_rank[i - 1].end);
  });
}

TEST(Simulate, GpipeAnd1F1BIdleForTheOtherStagesForwardAndBackward) {
  for (const char* name : {"gpipe", "1f1b"}) {
    for (int p = 1; p <= 8; ++p) {
      for (const int64_t m : up_to_17()) {
        const Pipeline pipeline = pipeline_named(name, p);
        const Timeline t = timeline_of(pipeline, m, uniform_times(pipeline, 1, 1, 1));
        EXPECT_DOUBLE_EQ(t.makespan, 3.0 * double(m + p - 1));
        for (int rank = 0; rank < p; ++rank)
          EXPECT_NEAR(t.bubble_fraction(rank), double(p - 1) / double(m + p - 1), 1e-12) << name << p << m;
        EXPECT_NEAR(t.bubble_fraction(), double(p - 1) / double(m + p - 1), 1e-12);
      }
    }
  }
}

TEST(Simulate, InterleavingDividesTheBubbleByTheChunksWhereTheStagesDivideTheMicroBatches) {
  for (int v = 2; v <= 4; ++v) {
    for (int p = 1; p <= 8; ++p) {
      for (int64_t m = p; m <= 17; m += p) {
        const Pipeline pipeline = pipeline_named("interleaved_1f1b", p, v);
        const double f = 2.0 / v, d = 1.5 / v, w = 2.5 / v;  // of a whole stage: 2, 1.5, 2.5
        const Timeline t = timeline_of(pipeline, m, uniform_times(pipeline, f, d, w));
        for (int rank = 0; rank < p; ++rank)
          EXPECT_NEAR(t.makespan - t.busy(rank), (p - 1) * 6.0 / v, 1e-9) << p << " " << v << " " << m;
      }
    }
  }
}

TEST(Simulate, ZbH1IdlesForAThirdOf1F1BWhereAllTakeTheSameTime) {
  for (int p = 1; p <= 8; ++p) {
    for (int64_t m = p; m <= 17; ++m) {
      const Pipeline pipeline = pipeline_named("zb_h1", p);
      const Timeline t = timeline_of(pipeline, m, uniform_times(pipeline, 1, 1, 1));
      for (int rank = 0; rank < p; ++rank) EXPECT_DOUBLE_EQ(t.makespan - t.busy(rank), p - 1) << p << " " << m;
    }
  }
}

TEST(Simulate, ZbH1IsNeverSlowerThan1F1B) {
  for (int p = 1; p <= 8; ++p) {
    for (const int64_t m : up_to_17()) {
      const Pipeline h1 = pipeline_named("zb_h1", p), plain = pipeline_named("1f1b", p);
      const ActionTimes times = uniform_times(h1, 1, 1.25, 0.75);
      EXPECT_LE(timeline_of(h1, m, times).makespan, timeline_of(plain, m, times).makespan) << p << " " << m;
    }
  }
}

TEST(Simulate, ARankOfZbvNeverIdlesBetweenItsFirstAndLastAction) {
  for (int p = 1; p <= 8; ++p) {
    for (int64_t m = 2 * p - 1; m <= 17; ++m) {
      const Pipeline pipeline = pipeline_named("zbv", p);
      const Timeline t = timeline_of(pipeline, m, uniform_times(pipeline, 1, 1, 1));
      for (int rank = 0; rank < p; ++rank) {
        const auto& of_rank = t.ranks[size_t(rank)];
        EXPECT_DOUBLE_EQ(of_rank.front().start, rank);
        EXPECT_DOUBLE_EQ(of_rank.back().end - of_rank.front().start, t.busy(rank)) << p << " " << m;
      }
      EXPECT_DOUBLE_EQ(t.makespan, double(6 * m + p - 1));
    }
  }
}

TEST(Simulate, UnequalStagesAndCommunicationTakeTheirTime) {
  const Pipeline pipeline = pipeline_named("1f1b", 2);
  const ActionTimes times{.forward = {1, 2}, .dgrad = {3, 4}, .wgrad = {5, 6}, .communication = 0.5};
  const Timeline t = timeline_of(pipeline, 1, times);
  EXPECT_DOUBLE_EQ(t.ranks[1][0].start, 1.5);
  EXPECT_DOUBLE_EQ(t.ranks[1][1].end, 13.5);
  EXPECT_DOUBLE_EQ(t.ranks[0][1].start, 14);
  EXPECT_DOUBLE_EQ(t.makespan, 22);
  EXPECT_DOUBLE_EQ(t.bubble_fraction(0), 1 - 9.0 / 22);
}

TEST(Simulate, RanksThatWaitForEachOtherAreNamedWithTheirActions) {
  const Pipeline pipeline = pipeline_named("1f1b", 2);
  const std::string message =
      failure_of(pipeline, {{{F, 0}, {B, 0}, {F, 1}, {B, 1}}, {{F, 0}, {F, 1}, {B, 0}, {B, 1}}});
  EXPECT_NE(message.find("rank 0 before B0 for rank 1 to end dgrad of micro-batch 0"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 1 before F1 for rank 0 to end forward of micro-batch 1"), std::string::npos) << message;
}

TEST(Simulate, ABoundedSendWaitsUntilTheLastResultIsUsed) {
  const Pipeline pipeline = pipeline_named("1f1b", 2);
  const ActionTimes times{.forward = {1, 10}, .dgrad = {1, 1}, .wgrad = {1, 1}};
  const std::vector<Schedule> lists(2, {{F, 0}, {F, 1}, {F, 2}, {B, 0}, {B, 1}, {B, 2}});
  EXPECT_DOUBLE_EQ(simulate(pipeline, lists, times).ranks[0][2].start, 2);
  const Timeline bounded = simulate(pipeline, lists, times, Sends::one_at_a_time);
  EXPECT_DOUBLE_EQ(bounded.ranks[0][1].start, 1);
  EXPECT_DOUBLE_EQ(bounded.ranks[0][2].start, 11);  // as F1 of the second rank
}

TEST(Simulate, ABoundedSendCanWaitForEverWhereAFreeOneDoesNot) {
  const Pipeline pipeline =
      pipeline_named("1f1b", 2);  // the second rank takes F1 first, whose sender waits for F0's use
  const std::vector<Schedule> lists{{{F, 0}, {F, 1}, {B, 0}, {B, 1}}, {{F, 1}, {F, 0}, {B, 0}, {B, 1}}};
  EXPECT_EQ(failure_of(pipeline, lists), "");
  const std::string message = failure_of(pipeline, lists, Sends::one_at_a_time);
  EXPECT_NE(message.find("rank 0 before F1 for rank 1 to begin forward of micro-batch 0"), std::string::npos)
      << message;
}

TEST(Simulate, AnIllegalListIsNamedByRankAndAction) {
  const Pipeline one = pipeline_named("1f1b", 1);
  const auto wrong = [&](const Schedule& list, int64_t m = 1) { return what_is_wrong(one, {list}, m); };
  EXPECT_EQ(wrong({{F, 0}, {F, 0}, {B, 0}}), "rank 0, action 1, F0: it is there twice");
  EXPECT_EQ(wrong({{B, 0}, {F, 0}}), "rank 0, action 0, B0: it comes before its forward");
  EXPECT_EQ(wrong({{F, 0}, {W, 0}, {D, 0}}), "rank 0, action 1, W0: it comes before its dgrad");
  EXPECT_EQ(wrong({{F, 0}, {B, 0}, {W, 0}}), "rank 0, action 2, W0: that micro-batch has gone backward already");
  EXPECT_EQ(wrong({{F, 0}, {D, 0}, {B, 0}}), "rank 0, action 2, B0: that micro-batch has gone backward already");
  EXPECT_EQ(wrong({{F, 1}}), "rank 0, action 0, F1: there are 1 micro-batches");
  EXPECT_EQ(wrong({{F, -1}}), "rank 0, action 0, F-1: there are 1 micro-batches");
  EXPECT_EQ(wrong({{F, 0, 1}}), "rank 0, action 0, F0.1: there are 1 chunks");
  EXPECT_EQ(wrong({{F, 0}, {B, 0}}, 2), "rank 0: F1 is missing");
  EXPECT_EQ(wrong({{F, 0}}), "rank 0: D0 is missing");
  EXPECT_EQ(wrong({{F, 0}, {D, 0}}), "rank 0: W0 is missing");
  EXPECT_EQ(what_is_wrong(one, {}, 1), "0 schedules for 1 ranks");
  EXPECT_NE(failure_of(one, {{{F, 0}, {D, 0}}}).find("rank 0: W0 is missing"), std::string::npos);
}

TEST(Simulate, AStepWithoutMicroBatchesTakesNoTime) {
  const Pipeline pipeline = pipeline_named("1f1b", 2);
  const Timeline t = timeline_of(pipeline, 0, uniform_times(pipeline, 1, 1, 1));
  EXPECT_EQ(t.makespan, 0);
  EXPECT_EQ(t.bubble_fraction(), 0);
}

}  // namespace
}  // namespace weft
