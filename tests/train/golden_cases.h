// Every case of the folders of golden cases, by its kind: another folder of such cases is tested as it is.
#pragma once
#include <set>

#include "golden_folders.h"
#include "train/golden.h"
#include "weft/models/hf_config.h"

namespace weft::testing {

struct GoldenCase {
  std::string name;
  std::filesystem::path folder;
  nlohmann::json train, trace;  // null where the folder has none
};

inline std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> all;
  for (const auto& [name, folder] : golden_case_folders()) {
    const auto json = [&, &at = folder](const char* file) {
      return std::filesystem::exists(at / file) ? read_json(at / file) : nlohmann::json();
    };
    all.push_back({name, folder, json("train.json"), json("trace.json")});
  }
  return all;
}

// The most at once, up to four, that divide a batch.
inline std::string up_to_four(const GoldenCase& c) {
  int64_t size = 4;
  while (c.train["global_batch_size"].get<int64_t>() % size != 0) --size;
  return fmt::format("train.micro_batch_size={}", size);
}

inline std::string kind_of(const GoldenCase& c) { return c.train.value("kind", "pretrain"); }

inline bool has_experts(const GoldenCase& c) {
  const nlohmann::json config = read_json(c.folder / "config.json");
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"})
    if (config.contains(key)) return true;
  return false;
}

// What weft has not built yet that the case is about; "" if it can be run. Anything else that keeps it from running is
// a fault.
inline std::string not_built_yet(const GoldenCase& c) {
  if (c.train.is_null()) return "a case without a run";
  const std::string kind = kind_of(c);
  if (kind == "adam8_vectors") return "";  // without a model: golden_cpu_adam8_test.cpp
  const std::set<std::string> built{"pretrain", "dpo", "grpo", "kto", "reward_model", "ppo", "lora", "distill"};
  if (built.count(kind) == 0) return "kind " + kind;
  if (const std::string optimizer = c.train.value("optimizer", "adamw");
      optimizer != "adamw" && optimizer != "adamw8bit")
    return "optimizer " + optimizer;
  try {
    read_hf_config(c.folder);
  } catch (const ConfigError& e) {
    const std::string type = read_json(c.folder / "config.json").value("model_type", "");
    if (std::string(e.what()).find("\"model_type\"") != std::string::npos) return "model_type " + type;
    throw;
  }
  return "";
}

// Whether it is the run of a model, that weft can do.
inline bool is_a_run(const GoldenCase& c) { return not_built_yet(c).empty() && kind_of(c) != "adam8_vectors"; }

// Settings of the optimizer, the adapter, and of the losses beside cross-entropy, by the recipe's keys.
inline std::vector<std::string> case_settings(const GoldenCase& c) {
  std::vector<std::string> settings;
  if (c.train.contains("optimizer")) settings.push_back("optimizer.name=" + c.train["optimizer"].get<std::string>());
  if (c.train.contains("min_8bit_size"))
    settings.push_back(fmt::format("optimizer.min_8bit_size={}", c.train["min_8bit_size"].get<int64_t>()));
  const auto set = [&](const char* key, const std::string& setting) {
    if (c.train.contains(key)) settings.push_back(fmt::format("{}={}", setting, c.train[key].get<double>()));
  };
  if (c.train.value("kind", "") == "lora") {
    const nlohmann::json adapter = read_json(c.folder / "adapter/adapter_config.json");
    const bool in_codes = std::filesystem::exists(c.folder / "quantised.safetensors");
    const std::string kind = std::string(in_codes ? "q" : "") + (adapter.value("use_dora", false) ? "dora" : "lora");
    settings.insert(settings.end(), {"adapter.kind=" + kind, "adapter.path=" + (c.folder / "adapter").string(),
                                     fmt::format("adapter.rank={}", adapter["r"].get<int64_t>()),
                                     fmt::format("adapter.alpha={}", adapter["lora_alpha"].get<double>()),
                                     fmt::format("adapter.rslora={}", adapter["use_rslora"].get<bool>())});
  }
  if (!has_experts(c)) return settings;
  set("aux_loss_coef", c.train.value("balance", "") == "global" ? "moe.global_aux_loss_coef" : "moe.aux_loss_coef");
  set("z_loss_coef", "moe.z_loss_coef");
  set("bias_update_rate", "moe.bias_update_rate");
  set("mtp_loss_coef", "train.mtp_loss_coef");
  return settings;
}

// Whether it has moments in 8 bits.
inline bool is_in_codes(const GoldenCase& c) { return c.train.contains("min_8bit_size"); }

// A case may only ask for what this runner knows.
inline void expect_known_keys(const GoldenCase& c) {
  std::set<std::string> known{"kind",
                              "seq_len",
                              "global_batch_size",
                              "steps",
                              "lr",
                              "min_lr",
                              "warmup_steps",
                              "betas",
                              "eps",
                              "weight_decay",
                              "clip_grad",
                              "aux_loss_coef",
                              "balance",
                              "z_loss_coef",
                              "bias_update_rate",
                              "mtp_loss_coef",
                              "groups_per_batch",
                              "max_completion_length",
                              "clip_eps",
                              "temperature",
                              "alpha",
                              "divergence",
                              "optimizer",
                              "min_8bit_size"};
  known.insert(std::begin(kObjectiveSettings), std::end(kObjectiveSettings));
  for (const auto& [key, value] : c.train.items()) EXPECT_EQ(known.count(key), 1u) << c.name << " asks for " << key;
  if (has_experts(c)) return;
  for (const char* key : {"aux_loss_coef", "z_loss_coef", "bias_update_rate", "mtp_loss_coef"})
    EXPECT_EQ(c.train.value(key, 0.0), 0.0) << c.name << ": " << key << " of a model without experts";
}

// In f32: what the cases' tables allow (README.md of their folders), or ten times the trace's own distance from fp64
// where that is more. Traces of the first set do not say theirs. The first steps of qwen3-moe-aux, and step 1 of a
// reward model, are held to tighter bounds (golden.h says why).
inline GoldenTolerance f32_tolerance(const GoldenCase& c) {
  const auto deviation = c.trace.find("f64_deviation");
  if (deviation == c.trace.end()) {
    if (c.train.value("aux_loss_coef", 0.0) == 0) return kGoldenF32;
    GoldenTolerance t = kGoldenNearTies;
    if (c.name == "qwen3-moe-aux") t.first_tie = 10;
    return t;
  }
  const auto larger = [&](const char* key, double least) { return std::max(least, 10 * deviation->value(key, 0.0)); };
  // A moment that is nearly half way between two levels may have the code of either.
  const double codes = is_in_codes(c) ? 10 : 1;
  GoldenTolerance t{.loss = larger("loss", codes * 2e-6),
                    .grad_norm = larger("grad_norm", codes * 2e-5),
                    .tensor_norm = larger("grad_norm_by_tensor", 1e-4),
                    .weights = larger("final_abs_sum", 1e-4)};
  t.deviation = &*deviation;
  if (kind_of(c) == "reward_model") {
    t.term = kSmallestGradientTerm;
    t.loss = std::max(t.loss, t.term);
    t.loss_is_absolute = true;
    t.first_tie = 2;
  }
  if (kind_of(c) == "grpo" || kind_of(c) == "ppo") {  // a loss that may be near 0
    t.loss_is_absolute = true;
    t.loss = larger("loss_absolute", 2e-6);
  }
  return t;
}

// The same where sums are in another order than on one rank: choices that are nearly ties may then fall otherwise in
// any step (those of qwen3-moe-aux do in step 8 on ep 2 x cp 2 x tp 2). In fp64 layouts are equal to 1e-11
// (LayoutMatrix).
inline GoldenTolerance tolerance_of_layouts(const GoldenCase& c) {
  GoldenTolerance t = f32_tolerance(c);
  t.first_tie = 1;
  return t;
}

inline void expect_golden(const GoldenCase& c, const Machine& machine, std::vector<std::string> overrides,
                          const GoldenTolerance& tolerance) {
  expect_known_keys(c);
  const std::vector<std::string> settings = case_settings(c);
  overrides.insert(overrides.begin(), settings.begin(), settings.end());
  expect_golden_run(c.folder, machine, overrides, tolerance);
}

}  // namespace weft::testing
