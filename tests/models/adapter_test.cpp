// Low-rank adapters beside a frozen model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include "models/tiny.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/models/peft.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TinyRun;

ModelSpec with_adapter(ModelSpec model, std::vector<std::string> targets = {"all-linear"}, double dropout = 0) {
  model.adapter = adapter_of(model, {.rank = 3, .alpha = 5, .dropout = dropout, .targets = std::move(targets)}, "test");
  return model;
}

// Models whose matrices are fused, biased, normed and recomputed in every way.
std::vector<std::pair<std::string, ModelSpec>> adapted_models() {
  ModelSpec fused = testing::tiny_llama();
  fused.family = Family::phi3;
  return {
      {"llama", with_adapter(testing::tiny_llama())},
      {"some of llama", with_adapter(testing::tiny_llama(), {"k_proj", "v_proj", "up_proj", "*.layers.1.*down_proj"})},
      {"fused", with_adapter(fused)},
      {"gpt2", with_adapter(testing::tiny_gpt2())},
      {"dropping", with_adapter(testing::tiny_llama(), {"all-linear"}, 0.3)},
      {"qwen3", with_adapter(testing::tiny_qwen3())},
      {"experts", with_adapter(testing::tiny_experts(), {"q_proj", "o_proj"})}};
}

// B is zero at first, which would hide half of what is to be seen.
void draw_adapter(TinyRun& run) {
  std::mt19937 gen(5);
  std::normal_distribution<double> n;
  for (const Param* p : run.state.params.params())
    for (int64_t i = 0; p->spec().is_adapter && i < p->spec().shape.elements(); ++i)
      run.state.params.stored(*p)[0].master.as<double>()[i] = 0.3 * n(gen);
}

TEST(Adapter, ItsGradientIsTheDerivativeOfTheLoss) {
  for (const auto& [name, model] : adapted_models()) {
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      TinyRun run(model, {.keep_activations = schedule[0] == '1', .num_micro_batches = 2, .schedule = schedule});
      draw_adapter(run);
      run.loss_and_gradients();
      double slope = 0;
      const auto move = [&](double h) {
        std::mt19937 gen(3);
        std::normal_distribution<double> n;
        for (const Param* p : run.state.params.params()) {
          if (!p->learns()) continue;
          const ParamStore::Stored s = run.state.params.stored(*p)[0];
          for (int64_t i = 0; i < p->spec().shape.elements(); ++i) {
            const double v = n(gen);
            s.master.as<double>()[i] += h * v;
            if (h == 0) slope += s.grad.as<double>()[i] * v;
          }
        }
      };
      const bool drops = model.adapter->dropout > 0;
      const auto loss = [&] { return drops ? run.loss_and_gradients() : run.evaluate(); };
      move(0);
      const double h = 1e-6;
      move(h);
      const double above = loss();
      move(-2 * h);
      const double below = loss();
      EXPECT_GT(std::abs(slope), 1e-3) << name;
      EXPECT_NEAR((above - below) / (2 * h), slope, 1e-8 * std::abs(slope) + 1e-9) << name << " " << schedule;
    }
  }
}

// As files name the matrices, row by row: W + scale B A.
TEST(Adapter, ItsModelIsTheOneWithItsProductsAdded) {
  for (const auto& [name, model] : adapted_models()) {
    TinyRun with(model, {});
    draw_adapter(with);
    ModelSpec plain = model;
    plain.adapter.reset();
    TinyRun merged(plain, {});
    std::map<std::string, const double*> weights;
    for (const Param* p : with.state.params.params())
      weights[p->spec().name] = with.state.params.stored(*p)[0].master.as<double>();
    const double before = merged.evaluate();
    std::map<std::string, int64_t> a_rows, b_rows;  // of each weight, so far
    for (const AdapterSpec::Target& t : model.adapter->targets) {
      const std::string product = t.weight.substr(0, t.weight.rfind('.'));
      const double *a = weights.at(product + ".lora_A.weight"), *b = weights.at(product + ".lora_B.weight");
      for (const Param* p : merged.state.params.params()) {
        if (p->spec().name != t.weight) continue;
        const int64_t in = p->spec().shape[1], r = model.adapter->rank;
        double* w = merged.state.params.stored(*p)[0].master.as<double>() + t.rows.first * in;
        for (int64_t i = 0; i < t.rows.count; ++i)
          for (int64_t j = 0; j < in; ++j)
            for (int64_t k = 0; k < r; ++k)
              w[i * in + j] +=
                  model.adapter->scale * b[(b_rows[product] + i) * r + k] * a[(a_rows[product] + k) * in + j];
      }
      a_rows[product] += model.adapter->rank;
      b_rows[product] += t.rows.count;
    }
    EXPECT_NEAR(with.evaluate(), merged.evaluate(), 1e-12) << name;
    EXPECT_GT(std::abs(merged.evaluate() - before), 1e-3) << name;
  }
}

TEST(Adapter, BeginsAsTheModelItself) {
  for (const auto& [name, model] : adapted_models()) {
    ModelSpec plain = model;
    plain.adapter.reset();
    EXPECT_EQ(TinyRun(model, {}).evaluate(), TinyRun(plain, {}).evaluate()) << name;
  }
}

// Frozen weights have neither gradients nor state, and no product is computed for them.
TEST(Adapter, OnlyItsMatricesMoveAndHaveMemory) {
  for (const auto& [name, model] : adapted_models()) {
    TinyRun run(model, {});
    draw_adapter(run);
    const auto masters = [&](bool learning) {
      std::vector<double> all;
      for (const Param* p : run.state.params.params()) {
        const double* values = run.state.params.stored(*p)[0].master.as<double>();
        if (p->learns() == learning) all.insert(all.end(), values, values + p->spec().shape.elements());
      }
      return all;
    };
    const std::vector<double> frozen = masters(false), learning = masters(true);
    run.loss_and_gradients();
    run.update();
    EXPECT_EQ(masters(false), frozen) << name;
    const std::vector<double> moved = masters(true);
    for (size_t i = 0; i < moved.size(); ++i) EXPECT_NE(moved[i], learning[i]) << name << " " << i;
    const auto bytes = int64_t(learning.size() * sizeof(double)), padding = int64_t{256} * 8 * 8 * model.num_layers;
    EXPECT_LE(run.used().grads, bytes + padding) << name;
    EXPECT_LE(run.used().states, 2 * (bytes + padding)) << name;
  }
}

// A third of the products of a step are gradients of weights; an adapter's own are few where it is narrow.
TEST(Adapter, NoGradientOfFrozenWeightsIsComputed) {
  ModelSpec plain = testing::tiny_llama();
  plain.width = plain.ffn_width = 256;
  plain.num_heads = plain.num_kv_heads = 16;
  plain.head_dim = 16;
  ModelSpec adapted = plain;
  adapted.adapter = adapter_of(plain, {.rank = 1}, "test");
  const double all = TinyRun(plain, {}).plan().arithmetic.model_flops;
  EXPECT_LT(TinyRun(adapted, {}).plan().arithmetic.model_flops, 0.7 * all);
}

TEST(Adapter, TargetsAreNamedAsInFiles) {
  const ModelSpec llama = testing::tiny_llama();
  EXPECT_EQ(with_adapter(llama).adapter->targets.size(), 2u * 7);
  const AdapterSpec some = *with_adapter(llama, {"model.layers.1.self_attn.v_proj"}).adapter;
  ASSERT_EQ(some.targets.size(), 1u);
  EXPECT_EQ(some.targets[0].weight, "blocks.1.attn.qkv.weight");
  EXPECT_EQ(some.targets[0].rows.first, 4 * 6 + 2 * 6);
  EXPECT_EQ(some.targets[0].rows.count, 2 * 6);
  EXPECT_DOUBLE_EQ(some.scale, 5.0 / 3);
  const auto refusal = [&](const ModelSpec& model, const std::string& target) {
    return error_of<ConfigError>([&] { with_adapter(model, {target}); });
  };
  EXPECT_SAYS(refusal(llama, "q_prj"), "the model has no module \"q_prj\"");
  EXPECT_SAYS(refusal(llama, "lm_head"), "lm_head is no matrix that a block multiplies with");
  EXPECT_SAYS(refusal(llama, "norm"), "is no matrix");
  EXPECT_SAYS(refusal(testing::tiny_experts(), "down_proj"), "experts, which have no adapters yet");
  EXPECT_SAYS(refusal(testing::tiny_experts(), "all-linear"), "name the modules that shall have adapters");
  EXPECT_SAYS(refusal(testing::tiny_latent(), "o_proj"), "latent attention has no adapters yet");
}

// What a file of PEFT's says that weft does not do is refused by its name.
TEST(Adapter, ConfigsOfOtherAdaptersAreRefused) {
  testing::TempDir dir;
  const nlohmann::json good{{"peft_type", "LORA"},
                            {"r", 4},
                            {"lora_alpha", 8},
                            {"target_modules", {"q_proj"}},
                            {"base_model_name_or_path", "base"}};
  const auto with = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json json = good;
    json[key] = value;
    std::ofstream(dir / "adapter_config.json") << json;
    return error_of<FileError>([&] { read_peft_config(dir.path()); });
  };
  EXPECT_EQ(with("lora_dropout", 0.1), "");
  const PeftConfig read = read_peft_config(dir.path());
  EXPECT_EQ(read.rank, 4);
  EXPECT_EQ(read.base, "base");
  EXPECT_SAYS(with("use_dora", true), "\"use_dora\"");
  EXPECT_SAYS(with("peft_type", "IA3"), "\"peft_type\"");
  EXPECT_SAYS(with("bias", "all"), "\"bias\"");
  EXPECT_SAYS(with("modules_to_save", {"lm_head"}), "\"modules_to_save\"");
  EXPECT_SAYS(with("rank_pattern", {{"q_proj", 2}}), "\"rank_pattern\"");
  EXPECT_SAYS(with("r", 0), "\"r\"");
  EXPECT_SAYS(with("lora_alpha", "8"), "\"lora_alpha\"");
  EXPECT_SAYS(with("target_modules", {1}), "\"target_modules\"");
  EXPECT_SAYS(with("target_modules", "q_.*"), "\"target_modules\"");
  EXPECT_EQ(with("base_model_name_or_path", "nowhere"), "");
  EXPECT_SAYS(error_of<FileError>([&] { base_of_adapter(dir.path(), read_peft_config(dir.path())); }),
              "\"base_model_name_or_path\"");
}

}  // namespace
}  // namespace weft
