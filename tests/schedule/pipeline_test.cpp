#include "weft/schedule/pipeline.h"

#include <gtest/gtest.h>

#include <set>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

std::vector<int> virtual_stages_of(const Pipeline& pipeline, int chunk) {
  std::vector<int> all;
  for (int stage = 0; stage < pipeline.num_stages; ++stage) all.push_back(virtual_stage(pipeline, {stage, chunk}));
  return all;
}

std::string refusal(std::string_view name, int num_chunks) {
  return testing::error_of<ConfigError>([&] { pipeline_named(name, 4, num_chunks); });
}

TEST(Pipeline, InterleavedChunksGoRoundAndZbvComesBackAsAV) {
  const Pipeline rounds = pipeline_named("interleaved_1f1b", 4, 3);
  EXPECT_EQ(virtual_stages_of(rounds, 0), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(virtual_stages_of(rounds, 2), (std::vector{8, 9, 10, 11}));
  const Pipeline v = pipeline_named("zbv", 4);
  EXPECT_EQ(virtual_stages_of(v, 0), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(virtual_stages_of(v, 1), (std::vector{7, 6, 5, 4}));
}

TEST(Pipeline, EveryVirtualStageHasOnePlace) {
  for (const std::string_view name : kScheduleNames) {
    for (int stages = 1; stages <= 8; ++stages) {
      const Pipeline pipeline = pipeline_named(name, stages);
      std::set<std::pair<int, int>> places;
      for (int k = 0; k < pipeline.num_virtual_stages(); ++k) {
        const PipelinePlace place = place_of(pipeline, k);
        EXPECT_EQ(virtual_stage(pipeline, place), k) << name;
        places.insert({place.stage, place.chunk});
      }
      EXPECT_EQ(places.size(), size_t(pipeline.num_virtual_stages())) << name;
    }
  }
}

TEST(Pipeline, ChunksThatAreNotSaidAreWhatTheScheduleNeeds) {
  for (const std::string_view name : {"gpipe", "1f1b", "zb_h1"}) EXPECT_EQ(pipeline_named(name, 2).num_chunks, 1);
  for (const std::string_view name : {"interleaved_1f1b", "zbv"}) EXPECT_EQ(pipeline_named(name, 2).num_chunks, 2);
  for (const std::string_view name : kScheduleNames) EXPECT_EQ(name_of(pipeline_named(name, 2).kind), name);
}

TEST(Pipeline, AWrongNumberOfChunksIsRefusedWithWhatFits) {
  EXPECT_EQ(refusal("1f1b", 2), "schedule 1f1b has 1 of the model's chunks on each rank, not 2");
  EXPECT_EQ(refusal("zbv", 3), "schedule zbv has 2 of the model's chunks on each rank, not 3");
  EXPECT_EQ(refusal("interleaved_1f1b", 1),
            "schedule interleaved_1f1b has at least 2 of the model's chunks on each rank, not 1");
  EXPECT_EQ(refusal("interleaved_1f1b", 5), "");
}

TEST(Pipeline, APlaceThatDoesNotExistIsABug) {
  EXPECT_THROW(virtual_stage(pipeline_named("zbv", 2), {2, 0}), CheckFailure);
  EXPECT_THROW(virtual_stage(pipeline_named("1f1b", 2), {0, 1}), CheckFailure);
  EXPECT_THROW(place_of(pipeline_named("zbv", 2), 4), CheckFailure);
}

}  // namespace
}  // namespace weft
