#include "weft/plan/step_data.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/plan/layout_plan.h"

namespace weft {
namespace {

RunPlan plan_of(std::vector<std::string> layout) {
  const std::string model = (std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa").string();
  std::vector<std::string> all{"model.path=" + model, "model.init=random",        "data.train=none",
                               "train.seq_length=8",  "train.micro_batch_size=1", "run.backend=ref"};
  all.insert(all.end(), layout.begin(), layout.end());
  return plan_run(parse_recipe("", "test", all), WorkspaceModel());
}
StepData data_of(const std::vector<std::string>& layout) { return step_data_of(plan_of(layout), WorkspaceModel()); }

// What all actions send, each as often as a step has it, and the end.
Traffic traffic_of(const StepData& data) {
  Traffic all;
  const auto add = [&](const StepPart& part, int64_t times) {
    for (const auto& [what, count] : part.transfers) {
      all.count(what.first, what.second).calls += times * count.calls;
      all.count(what.first, what.second).bytes += times * count.bytes;
    }
  };
  for (const StepAction& a : data.actions)
    for (const StepPart& p : a.parts) add(p, a.times);
  add(data.before, 1);
  add(data.end, 1);
  return all;
}

TEST(StepData, ItsTransfersAreTheTrafficOfTheStep) {
  const std::vector<std::string> layouts[] = {
      {"parallel.dp=2", "parallel.zero_stage=3", "train.global_batch_size=60"},
      {"parallel.tp=2", "parallel.pp=2", "train.global_batch_size=30"},
      {"parallel.dp=2", "parallel.pp=2", "parallel.pipeline_schedule=zbv", "train.global_batch_size=40"},
      {"parallel.dp=2", "parallel.pp=2", "parallel.zero_stage=3", "train.global_batch_size=8", "train.objective=dpo",
       "data.pairs=none"}};
  for (const auto& layout : layouts) {
    const RunPlan run = plan_of(layout);
    EXPECT_EQ(traffic_of(step_data_of(run, WorkspaceModel())).counts(), run.memory.traffic.counts()) << layout[1];
  }
}

TEST(StepData, HasEveryActionAsOftenAsTheSchedule) {
  const RunPlan run = plan_of({"parallel.pp=2", "train.global_batch_size=30"});
  int64_t actions = 0;
  for (const StepAction& a : step_data_of(run, WorkspaceModel()).actions) actions += a.times;
  EXPECT_EQ(actions, int64_t(run.step.schedule.size()));
}

TEST(StepData, ItsOpsAreTheArithmeticOfTheStep) {
  const RunPlan run = plan_of({"train.global_batch_size=30"});
  double flops = 0;
  for (const StepAction& a : step_data_of(run, WorkspaceModel()).actions)
    for (const StepPart& p : a.parts)
      for (const StepOp& op : p.ops) flops += double(a.times) * op.flops;
  EXPECT_NEAR(flops, run.memory.arithmetic.hardware_flops, 1e-9 * flops);
}

TEST(StepData, ItHasThePassesBeforeTheStep) {
  const RunPlan run = plan_of({"train.global_batch_size=4", "train.objective=dpo", "data.pairs=none"});
  const StepData data = step_data_of(run, WorkspaceModel());
  double before = 0, flops = 0;
  for (const StepOp& op : data.before.ops) before += double(run.step.order.num_micro_batches) * op.flops;
  for (const StepAction& a : data.actions)
    for (const StepPart& p : a.parts)
      for (const StepOp& op : p.ops) flops += double(a.times) * op.flops;
  EXPECT_GT(before, 0.4 * flops) << "two passes forward beside one forward and back";
  EXPECT_NEAR(flops + before, run.memory.arithmetic.hardware_flops, 1e-9 * flops);
  EXPECT_SAYS(to_string(data), "before it, forward only: ");
  EXPECT_EQ(to_json(data)["before"]["ops"].size(), data.before.ops.size());
}

TEST(StepData, AnInstructionNeedsWhatMadeItsOperands) {
  const std::vector<ModelLayer> layers{{LayerKind::block, nullptr, {0}}, {LayerKind::block, nullptr, {1}}};
  const auto needs = [&](Do what) { return needs_of(instructions_of(what, layers), layers); };
  // load, receive, fetch 0, prefetch 1, forward 0, release 0, fetch 1, forward 1, release 1, send
  EXPECT_EQ(needs(Do::forward),
            (std::vector<std::vector<int>>{{}, {}, {}, {}, {0, 1, 2}, {4}, {3}, {0, 1, 4, 6}, {7}, {0, 1, 4, 7}}));
  // open_gradients 1, wgrad 1, reduce_gradients 1, and of 0
  EXPECT_EQ(needs(Do::wgrad), (std::vector<std::vector<int>>{{}, {0}, {1}, {}, {3}, {4}}));
}

TEST(StepData, ItsJsonSaysWhatIsComputedWhereAndOfWhatShape) {
  const nlohmann::json json = to_json(data_of({"parallel.dp=2", "parallel.zero_stage=3", "train.global_batch_size=2"}));
  const nlohmann::json& forward = json["actions"][0];
  EXPECT_EQ(forward["action"], "F");
  bool fetches = false, multiplies = false;
  for (const auto& i : forward["instructions"]) {
    if (i["do"] == "fetch" && i["of"] == "blocks.0") {
      fetches = true;
      EXPECT_EQ(i["after"].size(), 1u) << "the prefetch of the block";
    }
    if (i["do"] == "forward" && i["of"] == "blocks.1")
      for (const auto& op : i["ops"])
        if (op["region"] == "blocks.1.attn" && op["op"] == "matmul") {
          multiplies = true;
          EXPECT_EQ(op["operands"][0]["shape"].get<std::string>().substr(0, 3), "[8,");
          EXPECT_GT(op["flops"], 0);
        }
  }
  EXPECT_TRUE(fetches && multiplies) << forward.dump(1).substr(0, 2000);
  EXPECT_SAYS(to_string(data_of({"train.global_batch_size=9"})), "F of chunk 0, 9 times: load, fetch ");
}

}  // namespace
}  // namespace weft
