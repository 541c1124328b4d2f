// What losses cost, on devices and with batches.
#include "weft/forecast/loss_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

HfConfig config_of_width(int64_t width) {
  return parse_hf_config({{"architectures", {"LlamaForCausalLM"}},
                          {"model_type", "llama"},
                          {"hidden_size", width},
                          {"intermediate_size", 2 * width},
                          {"num_hidden_layers", 1},
                          {"num_attention_heads", 2},
                          {"num_key_value_heads", 2},
                          {"vocab_size", 1000},
                          {"max_position_embeddings", 512},
                          {"rms_norm_eps", 1e-5},
                          {"hidden_act", "silu"},
                          {"tie_word_embeddings", false}},
                         "config");
}

Recipe recipe_from_nothing() {
  Recipe r;
  r.model.init = InitChoice::random;
  r.data.train = {"book.txt"};
  r.train.seq_length = 512;
  r.train.global_batch_size = 1;
  r.train.precision = PrecisionChoice::bf16;
  return r;
}

ClusterSpec priced_cluster() {
  ClusterSpec c = preset_of("H100-SXM");
  c.price_per_device_hour = 2;
  return c;
}

// One that small models can follow.
LossLaw easy_law() {
  const ScalingLaw best{.e = 1, .a = 20, .alpha = 0.25, .b = 50, .beta = 0.25};
  ScalingLaw other = best;
  other.b = 60;
  return {.source = "made up", .best = best, .others = {other}};
}

LossPlan planned(const LossAsk& ask, const ClusterSpec& cluster = priced_cluster(),
                 const Recipe& recipe = recipe_from_nothing()) {
  return plan_losses(recipe, {{"small", config_of_width(1024)}}, cluster, Profiles::built_in(), easy_law(), ask);
}

TEST(LossPlan, TimeAndPriceAreThoseOfTheTokensThatALossTakes) {
  const LossAsk ask{.target = 3.5, .device_counts = {1, 2}};
  const LossPlan plan = planned(ask);
  ASSERT_EQ(plan.rows.size(), 2u);
  for (const LossRow& r : plan.rows) {
    const double fewest = easy_law().best.tokens_to(3.5, r.parameters);
    EXPECT_EQ(r.batch_tokens, 512.0 * double(r.batch));
    EXPECT_NEAR(r.tokens, fewest * (1 + r.batch_tokens / critical_batch_tokens(3.5)), 1e-9 * r.tokens);
    EXPECT_NEAR(r.run_s, r.tokens / r.batch_tokens * r.step_s, 1e-9 * r.run_s);
    EXPECT_NEAR(r.price, r.run_s / 3600 * double(r.devices) * 2, 1e-9 * r.price);
    EXPECT_EQ(r.run_range.low, r.run_s);
    EXPECT_GT(r.run_range.high, r.run_s);
    EXPECT_GT(r.batch, 1);  // one sequence a step leaves a device idle
  }
  EXPECT_LT(plan.rows[1].run_s, plan.rows[0].run_s);
  EXPECT_TRUE(plan.no_help.empty());
  EXPECT_EQ(to_json(plan, ask)["rows"][0]["to_target"]["run_s"], plan.rows[0].run_s);
  EXPECT_SAYS(to_string(plan, ask, priced_cluster()), "to a loss of 3.5");
}

TEST(LossPlan, ABudgetBuysWhatItsTimeReaches) {
  const LossAsk ask{.budget = 2, .device_counts = {1}};
  const LossPlan plan = planned(ask);
  for (const LossRow& r : plan.rows) {
    EXPECT_NEAR(r.spent_s, 3600 / double(r.devices), 1e-9);
    const double tokens = r.spent_s / r.step_s * r.batch_tokens;
    EXPECT_NEAR(r.spent_tokens, tokens, 1e-6 * tokens);
    const double learned = tokens / (1 + r.batch_tokens / critical_batch_tokens(r.loss));
    EXPECT_NEAR(r.loss, easy_law().best.loss(r.parameters, learned), 1e-9);
    EXPECT_GT(r.loss_range.high, r.loss);
  }
  LossAsk sooner = ask;
  sooner.deadline_s = 60;
  EXPECT_EQ(planned(sooner).rows[0].spent_s, 60);
  EXPECT_GT(planned(sooner).rows[0].loss, plan.rows[0].loss);
}

TEST(LossPlan, NamesTheDevicesBeyondWhichMoreDoNotHelp) {
  ClusterSpec slow = priced_cluster();
  slow.scale_up.bytes_per_s = slow.scale_out.bytes_per_s = 1e7;
  for (const LossAsk& ask :
       {LossAsk{.target = 3.5, .device_counts = {1, 2}}, {.deadline_s = 60, .device_counts = {1, 2}}}) {
    const LossPlan plan = planned(ask, slow);
    ASSERT_EQ(plan.no_help.size(), 1u);
    EXPECT_SAYS(plan.no_help[0], "small: more than 1 devices no longer help: 2 ");
  }
}

TEST(LossPlan, ALossBelowWhatTheModelCanHaveIsNeverReached) {
  const LossAsk ask{.target = 1.2, .device_counts = {1}};
  const LossPlan plan = planned(ask);
  EXPECT_TRUE(std::isinf(plan.rows[0].run_s));
  EXPECT_TRUE(to_json(plan, ask)["rows"][0]["to_target"]["run_s"].is_null());
  EXPECT_SAYS(to_string(plan, ask, priced_cluster()), "never");
}

TEST(LossPlan, FailuresMakeALossDearer) {
  ClusterSpec fails = priced_cluster();
  fails.failures_per_device_hour = 0.5;
  const LossAsk ask{.target = 3.5, .device_counts = {1}};
  const LossRow with = planned(ask, fails).rows.at(0), without = planned(ask).rows.at(0);
  EXPECT_GT(with.slower, 1.05);
  EXPECT_NEAR(with.run_s, without.run_s * with.slower, 1e-6 * with.run_s);
}

TEST(LossPlan, SaysWhatDoesNotFitAndRefusesWhatNoLawIsOf) {
  ClusterSpec tiny = priced_cluster();
  tiny.device.memory_bytes = 1e5;
  EXPECT_SAYS(planned({.target = 3.5, .device_counts = {1}}, tiny).rows.at(0).why_not, "no layout fits");
  const auto refused = [&](const Recipe& recipe, const ClusterSpec& cluster, const LossAsk& ask) {
    return testing::error_of<ConfigError>([&] { planned(ask, cluster, recipe); });
  };
  Recipe trained = recipe_from_nothing();
  trained.model.init = InitChoice::pretrained;
  EXPECT_SAYS(refused(trained, priced_cluster(), {.target = 3, .device_counts = {1}}),
              "the nearest that works: model.init = \"random\"");
  ClusterSpec unpriced = priced_cluster();
  unpriced.price_per_device_hour = 0;
  EXPECT_SAYS(refused(recipe_from_nothing(), unpriced, {.budget = 5, .device_counts = {1}}), "--budget needs a price");
}

}  // namespace
}  // namespace weft
