// A dry step runs a loop of its schedule a few times only; what it finds must be what all times need.
#include "weft/plan/dry_step.h"

#include <gtest/gtest.h>

#include "models/tiny.h"
#include "schedule/liveness.h"

namespace weft {
namespace {

// The step of one stage that has one block in each chunk.
StepSpec step_of(const Pipeline& pipeline, int stage, int64_t micro_batches) {
  StepSpec step = testing::step_spec({.num_micro_batches = micro_batches});
  step.evaluates = false;
  step.pipeline = pipeline;
  step.schedule = schedule_of(pipeline, stage, micro_batches);
  step.mesh.pp = pipeline.num_stages;
  step.rank = stage;
  for (int c = 0; c < pipeline.num_chunks; ++c) {
    const int v = virtual_stage(pipeline, {stage, c});
    step.model.parts.push_back({.blocks = {v, 1}, .embedding = v == 0, .head = v == pipeline.num_virtual_stages() - 1});
  }
  return step;
}

std::vector<Liveness> planned(const Pipeline& pipeline, int stage, int64_t micro_batches) {
  ModelSpec model = testing::tiny_llama();
  model.num_layers = pipeline.num_virtual_stages();
  const auto optimizer = make_adamw({});
  std::vector<Liveness> slots;
  for (const auto& chunk : measure_memory(model, step_of(pipeline, stage, micro_batches), *optimizer, {}).chunks)
    slots.push_back(chunk.slots);
  return slots;
}

TEST(DryStep, KeepsAsManyMicroBatchesAliveAsItsSchedule) {
  for (const std::string_view name : kScheduleNames) {
    for (const int stages : {1, 3, 8, 9, 16}) {
      const Pipeline pipeline = pipeline_named(name, stages, name == "interleaved_1f1b" ? 2 : 0);
      for (const int64_t m : {5, 12, 40, 203}) {
        for (const int stage : {0, 1, stages / 2, stages - 1}) {
          if (stage >= stages) continue;
          EXPECT_EQ(planned(pipeline, stage, m), testing::liveness_of_chunks(schedule_of(pipeline, stage, m)))
              << name << ", stage " << stage << " of " << stages << ", " << m << " micro-batches";
        }
      }
    }
  }
}

TEST(DryStep, OneThatMeasuresWeightsHasRoomForACopyOfTheMasters) {
  const auto optimizer = make_adamw({});
  StepSpec step = testing::step_spec({});
  const MemoryPlan without = measure_memory(testing::tiny_llama(), step, *optimizer, {});
  step.measures_weights = true;
  const MemoryPlan with = measure_memory(testing::tiny_llama(), step, *optimizer, {});
  const int64_t masters =
      DryStep(testing::tiny_llama(), step, *optimizer, {}).state().params.num_elements() * int64_t(sizeof(double));
  ASSERT_GT(masters, 2 * without.scratch);
  EXPECT_GE(with.scratch, masters);
  EXPECT_LT(with.scratch, masters + masters / 10) << "each block begins at an aligned address";
  EXPECT_EQ(with.total_bytes() - without.total_bytes(),
            with.scratch - without.scratch + with.persistent.records - without.persistent.records);
}

}  // namespace
}  // namespace weft
