// Recipes that are written for a purpose.
#include "weft/forecast/new_recipe.h"

#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/layout_planner.h"

namespace weft {
namespace {

HfConfig config_for(Purpose purpose) {
  nlohmann::json json{{"architectures", {"LlamaForCausalLM"}},
                      {"model_type", "llama"},
                      {"hidden_size", 256},
                      {"intermediate_size", 704},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"vocab_size", 1000},
                      {"max_position_embeddings", 4096},
                      {"rms_norm_eps", 1e-5},
                      {"hidden_act", "silu"},
                      {"tie_word_embeddings", false}};
  if (purpose == Purpose::experts)
    json.update({{"architectures", {"MixtralForCausalLM"}},
                 {"model_type", "mixtral"},
                 {"num_local_experts", 4},
                 {"num_experts_per_tok", 2}});
  return parse_hf_config(json, "config");
}

// Few layouts, and short samples: quick to search.
NewRecipeSpec spec_for(Purpose purpose) {
  return {.model = "model",
          .purpose = purpose,
          .data = {"book.txt"},
          .devices = purpose == Purpose::many_devices ? 2 : 1,
          .seq_length = 512,
          .threads = 1};
}

ClusterSpec one_a_node(double memory_bytes = 8e10) {
  ClusterSpec c = preset_of("H100-SXM");
  c.devices_per_node = c.domain = 1;
  c.device.memory_bytes = memory_bytes;
  return c;
}

NewRecipe made(const NewRecipeSpec& spec, const ClusterSpec& cluster) {
  return new_recipe(spec, config_for(spec.purpose), cluster, Profiles::built_in());
}

TEST(NewRecipe, OfEveryPurposeReadsBackAndIsForecastToFit) {
  for (size_t i = 0; i < names_of(Purpose()).size(); ++i) {
    const NewRecipeSpec spec = spec_for(Purpose(i));
    SCOPED_TRACE(name_of(spec.purpose));
    const NewRecipe n = made(spec, one_a_node());
    const Recipe read = parse_recipe(n.toml, "it", {});
    EXPECT_EQ(read, n.recipe);
    EXPECT_EQ(mesh_sizes_of(read).world(), spec.devices);
    EXPECT_LE(double(n.forecast.memory_bytes()), 8e10 - usual_reserve(one_a_node()));
    std::istringstream lines(n.toml);
    std::string before;
    for (std::string line; std::getline(lines, line); before = line)
      EXPECT_TRUE(line.find(" = ") == std::string::npos || line[0] == '#' || before.starts_with("# ")) << line;
  }
}

TEST(NewRecipe, HasTheLayoutThatTheSearchFinds) {
  NewRecipeSpec spec = spec_for(Purpose::pretrain);
  spec.devices = 2;
  const NewRecipe n = made(spec, one_a_node());
  const SearchResult found =
      search_layouts(n.recipe, config_for(spec.purpose), one_a_node(), Profiles::built_in(),
                     {.device_counts = {2}, .most = 1, .reserve_bytes = usual_reserve(one_a_node())});
  LayoutChoice here = choice_of(n.recipe);
  here.sequence_parallel = found.best.at(0).layout.sequence_parallel;
  EXPECT_EQ(to_string(here), to_string(found.best[0].layout));
  EXPECT_EQ(n.forecast.step.step_s, found.best[0].step.step_s);
  EXPECT_SAYS(n.toml, " a step (+");  // what another value loses
}

TEST(NewRecipe, TakesTheFirstWayThatFits) {
  const NewRecipeSpec spec = spec_for(Purpose::finetune);
  const HfConfig config = config_for(spec.purpose);
  const NewRecipe roomy = made(spec, one_a_node());
  EXPECT_EQ(roomy.recipe.optimizer.name, OptimizerKind::adamw);
  const ClusterSpec cluster = one_a_node();
  LayoutPlanner planner(roomy.recipe, config, cluster, Profiles::built_in());
  int64_t refused = 0, least = roomy.forecast.memory_bytes();  // that moments in f32 need
  for (const LayoutChoice& c : layouts_on(1, roomy.recipe, config.spec, cluster, refused))
    if (const auto one = planner.plan(c)) least = std::min(least, one->memory_bytes);
  const NewRecipe tight = made(spec, one_a_node(double(least) * 0.999 / 0.95));
  EXPECT_EQ(tight.recipe.optimizer.name, OptimizerKind::adamw8bit);
  EXPECT_LT(tight.forecast.memory_bytes(), least);
  EXPECT_SAYS(tight.toml, "moments in 8 bits; without it: no layout fits");
}

TEST(NewRecipe, SaysWhatComesNearestWhereNothingFits) {
  const std::string error = testing::error_of<ConfigError>([] { made(spec_for(Purpose::finetune), one_a_node(1e5)); });
  EXPECT_SAYS(error, "nothing of --purpose finetune fits on 1 H100-SXM: no layout fits; ");
  EXPECT_SAYS(error, "the nearest that works: more --devices, or --purpose lora");
}

TEST(NewRecipe, SavesAsOftenAsFailuresAsk) {
  ClusterSpec cluster = one_a_node();
  const NewRecipe unknown = made(spec_for(Purpose::many_devices), cluster);
  cluster.failures_per_device_hour = 1;
  cluster.disk_bytes_per_s = 1e12;
  const NewRecipe failing = made(spec_for(Purpose::many_devices), cluster);
  EXPECT_NEAR(double(failing.recipe.checkpoint.save_interval),
              best_save_interval(failing.forecast.failures()) / failing.forecast.step.step_s, 1);
  EXPECT_NE(failing.recipe.checkpoint.save_interval, unknown.recipe.checkpoint.save_interval);
  EXPECT_SAYS(failing.toml, "(Daly 2006)");
}

TEST(NewRecipe, ABatchIsWholeOnDevicesOfAnyNumber) {
  NewRecipeSpec spec = spec_for(Purpose::pretrain);
  spec.devices = 3;
  const NewRecipe n = made(spec, one_a_node());
  EXPECT_EQ(n.recipe.train.global_batch_size % 3, 0);
  EXPECT_EQ(mesh_sizes_of(n.recipe).world(), 3);
}

TEST(NewRecipe, RefusesWhatIsNotForThePurpose) {
  const auto error = [](const NewRecipeSpec& spec, const HfConfig& config) {
    return testing::error_of<ConfigError>([&] { new_recipe(spec, config, one_a_node(), Profiles::built_in()); });
  };
  const HfConfig dense = config_for(Purpose::pretrain);
  EXPECT_SAYS(error(spec_for(Purpose::experts), dense), "the model has no experts; the nearest that works: ");
  NewRecipeSpec few = spec_for(Purpose::many_devices);
  few.devices = 1;
  EXPECT_SAYS(error(few, dense), "these devices are in one; the nearest that works: --purpose pretrain");
  HfConfig table = dense;
  table.spec.learned_positions = true;
  table.spec.rope.reset();
  EXPECT_SAYS(error(spec_for(Purpose::long_context), table), "has a table of positions");
  NewRecipeSpec beyond = spec_for(Purpose::pretrain);
  beyond.seq_length = 8192;
  EXPECT_SAYS(error(beyond, table), "what works: --seq-length 4096");
}

}  // namespace
}  // namespace weft
