// The runs of an independent implementation (tests/golden), made again.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/checkpoint/shared_writer.h"
#include "weft/models/hf_weights.h"
#include "weft/models/merge_adapter.h"
#include "weft/train/run_folder.h"
#include "weft/train/train_on_ranks.h"

namespace weft::testing {

inline const std::vector<std::string> kGoldenCases = {
    "gpt2", "llama-gqa", "llama3-rope-tied", "qwen2-bias", "qwen3-qknorm", "mistral-window", "llama-sft-mask"};

struct GoldenTolerance {
  double loss, grad_norm, tensor_norm;        // relative
  double weights = 1e-4;                      // of sums of final weights; 0: not compared
  double term = 2e-6;                         // absolute, of losses beside cross-entropy, rewards and margins
  double logp = 2e-5;                         // absolute, of sums of log-probabilities
  bool loss_is_absolute = false;              // the loss may be near 0
  const nlohmann::json* deviation = nullptr;  // of the trace from fp64; a term may be ten times as far off
  int64_t first_tie = 1;                      // steps before this one are held to kGoldenF32, or to their deviation
};

// f32: the bounds that the traces' own distance from fp64 allows (tests/golden/README.md). bf16 has eight bits:
// activations and weights are each rounded to 2^-9, so a loss of a few nats moves by about 1e-3. fp16 has three bits
// more: measured at most 8e-5 of a loss, 3e-3 of a norm.
inline constexpr GoldenTolerance kGoldenF32{.loss = 1e-6, .grad_norm = 2e-5, .tensor_norm = 1e-4};
// qwen3-moe-aux: its router's choices are nearly ties. In step 10 the trace, which is f32, has one that fp64 has not:
// its aux_loss jumps by 7.4e-5, that is E / (k S B) = 8 / (2 x 64 x 8) times 0.0095, a difference of two mean
// probabilities; it is the trace's, for f32 and fp64 here have the same load of every expert in all 20 steps. From then
// on the trace is of another run: at most 7.4e-4 in aux_loss, 5.4e-6 in loss and 1.3e-4 in grad_norm from fp64, the
// last two as README.md has them.
inline constexpr GoldenTolerance kGoldenNearTies{
    .loss = 5e-5, .grad_norm = 1e-3, .tensor_norm = 1e-3, .weights = 1e-3, .term = 8e-4};
// reward-model: the smallest of its 26,000 first gradients, of o_proj.weight[16][22] in layer 0, is 5e-9 once clipped.
// The rounding of f32, 2e-7 of the gradients' root mean square of 6e-3, is a fifth of that, and Adam's eps is 1e-8: so
// the first update of this one weight, lr / 3 x g / (g + eps), is 1.4e-5 off, and rewards by as much from step 2 on
// (1.9e-5 at most on twelve layouts, of which those that round in another order have 3e-6). The loss of a pair is
// -log sigmoid of the difference of two rewards, so it moves by no more than they (1.2e-5, built by clang). Step 1 has
// no part in it, nor has fp64 (GoldenRefSlow): both are held to README's bounds. Any reward model may have such a
// weight, as most have more of them.
inline constexpr double kSmallestGradientTerm = 4e-5;
inline constexpr GoldenTolerance kGoldenBf16{.loss = 2e-3, .grad_norm = 6e-2, .tensor_norm = 6e-2, .weights = 0};
inline constexpr GoldenTolerance kGoldenF16{.loss = 2.5e-4, .grad_norm = 8e-3, .tensor_norm = 8e-3, .weights = 0};

inline nlohmann::json read_json(const std::filesystem::path& file) { return nlohmann::json::parse(slurp(file)); }

// The most tokens of a prompt with any completion, so that they can be cut over four ranks of cp.
inline int64_t longest_of(const std::filesystem::path& rows) {
  size_t prompt = 0, completion = 0;
  std::istringstream in(slurp(rows));
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    prompt = std::max(prompt, row["prompt"].size());
    for (const char* field : {"chosen", "rejected", "completion"})
      if (row.contains(field)) completion = std::max(completion, row[field].size());
  }
  return int64_t(prompt + completion + 7) / 8 * 8;
}

// What a case's train.json and [objective] call alike, of objectives with rows.
constexpr const char* kObjectiveSettings[] = {"loss_type",
                                              "beta",
                                              "label_smoothing",
                                              "average_logps",
                                              "inner_updates",
                                              "group_size",
                                              "clip_eps_low",
                                              "clip_eps_high",
                                              "kl_beta",
                                              "normalisation",
                                              "advantage_std",
                                              "advantage_eps",
                                              "desirable_weight",
                                              "undesirable_weight",
                                              "gamma",
                                              "lambda",
                                              "whiten_advantages",
                                              "value_clip",
                                              "value_coef",
                                              "kl_coef"};

// What a case reads, and the settings of its objective, which have the names of train.json.
inline std::vector<std::string> golden_data(const std::filesystem::path& folder, const nlohmann::json& t) {
  std::string kind = t.value("kind", "pretrain");
  if (kind == "reward_model") kind = "reward";  // as weft calls it
  if (kind == "pretrain" || kind == "lora")
    return {"data.train=" + (folder / "tokens.bin").string(),
            fmt::format("train.seq_length={}", t["seq_len"].get<int64_t>())};
  if (kind == "distill") {
    std::vector<std::string> all{"train.objective=distill", "data.train=" + (folder / "tokens.bin").string(),
                                 fmt::format("train.seq_length={}", t["seq_len"].get<int64_t>()),
                                 "objective.teacher=" + (folder / "teacher").string()};
    for (const char* key : {"temperature", "alpha", "divergence"})
      all.push_back(fmt::format("objective.{}={}", key, t[key].dump()));
    return all;
  }
  const std::string rows = kind == "grpo" || kind == "ppo" ? "rollouts" : kind == "kto" ? "examples" : "pairs";
  const std::filesystem::path file = folder / (rows + ".jsonl");
  std::vector<std::string> all{"train.objective=" + kind, "data." + rows + "=" + file.string(),
                               fmt::format("train.seq_length={}", longest_of(file))};
  for (const char* key : kObjectiveSettings)
    if (t.contains(key) && !(kind == "ppo" && key == std::string("group_size")))
      all.push_back(fmt::format("objective.{}={}", key, t[key].dump()));
  for (const char* bound : {"low", "high"})
    if (t.contains("clip_eps")) all.push_back(fmt::format("objective.clip_eps_{}={}", bound, t["clip_eps"].dump()));
  if (t.value("normalisation", "") == "constant")  // else it says nothing
    all.push_back(fmt::format("objective.max_completion_length={}", t["max_completion_length"].get<int64_t>()));
  return all;
}

// The case as settings of a recipe, before `overrides`.
inline std::vector<std::string> golden_settings(const std::filesystem::path& folder, const std::filesystem::path& run,
                                                const std::vector<std::string>& overrides) {
  const nlohmann::json t = read_json(folder / "train.json");
  std::vector<std::string> all{"model.path=" + folder.string(),
                               "data.shuffle=false",
                               fmt::format("train.global_batch_size={}", t["global_batch_size"].get<int64_t>()),
                               fmt::format("train.train_iters={}", t["steps"].get<int64_t>()),
                               fmt::format("optimizer.lr={}", t["lr"].get<double>()),
                               fmt::format("optimizer.min_lr={}", t["min_lr"].get<double>()),
                               fmt::format("optimizer.lr_warmup_iters={}", t["warmup_steps"].get<int64_t>()),
                               fmt::format("optimizer.adam_beta1={}", t["betas"][0].get<double>()),
                               fmt::format("optimizer.adam_beta2={}", t["betas"][1].get<double>()),
                               fmt::format("optimizer.adam_eps={}", t["eps"].get<double>()),
                               fmt::format("optimizer.weight_decay={}", t["weight_decay"].get<double>()),
                               fmt::format("optimizer.clip_grad={}", t["clip_grad"].get<double>()),
                               "train.log_grad_norms=true",
                               "run.dir=" + run.string()};
  const std::vector<std::string> data = golden_data(folder, t);
  all.insert(all.end(), data.begin(), data.end());
  if (std::filesystem::exists(folder / "mask.bin")) all.push_back("data.loss_mask=" + (folder / "mask.bin").string());
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

inline Recipe golden_recipe(const std::filesystem::path& folder, const std::filesystem::path& run,
                            const std::vector<std::string>& overrides) {
  return parse_recipe("", "golden", golden_settings(folder, run, overrides));
}

// Measuring takes every rank a tenth of a second, for the record alone.
inline Machine unmeasured(Machine machine) {
  machine.measure_matmul_rate = [](DType) { return 0.0; };
  for (Machine& device : machine.devices) device = unmeasured(device);
  return machine;
}

inline void train(const Recipe& recipe, const Machine& measured, const RunRanks& run = run_on_threads) {
  const Machine machine = unmeasured(measured);
  const std::atomic<bool> stop{false};
  const RunLock lock = claim_run_folder(recipe);
  const int nowhere = open("/dev/null", O_WRONLY);
  EXPECT_TRUE(train_on_ranks({.recipe = recipe, .machine = machine, .stop = stop, .terminal_fd = nowhere, .run = run}));
  close(nowhere);
}

// Sums of tensors beside those of the independent run, in units of their mean size.
inline void expect_golden_sums(const SafetensorsFile& file, const nlohmann::json& expected, const std::string& name,
                               const GoldenTolerance& tolerance) {
  for (const auto& [tensor, sums] : expected.items()) {
    // Without rotation, the bias of k has a gradient of zero in theory: Adam turns its rounding noise into steps.
    if (tolerance.weights == 0 || tensor.ends_with("c_attn.bias")) continue;
    const SafetensorsEntry* entry = file.find(tensor);
    ASSERT_NE(entry, nullptr) << name << " " << tensor;
    double sum = 0, abs_sum = 0;
    const auto bytes = file.bytes(*entry);
    const auto add = [&](auto zero) {
      for (size_t at = 0; at < bytes.size(); at += sizeof zero) {
        auto x = zero;
        std::memcpy(&x, bytes.data() + at, sizeof x);
        sum += double(x), abs_sum += std::abs(double(x));
      }
    };
    if (entry->dtype == FileDType::f64)
      add(0.0);
    else
      add(0.0f);
    const double bound = tolerance.weights * std::max(sums["abs_sum"].get<double>(), 1e-6);
    EXPECT_NEAR(abs_sum, sums["abs_sum"].get<double>(), bound) << name << " " << tensor;
    EXPECT_NEAR(sum, sums["sum"].get<double>(), bound) << name << " " << tensor;
  }
}

// The weights as they were written; of an adapter also the model that it makes of its base.
inline void expect_golden_weights(const std::filesystem::path& checkpoint, const nlohmann::json& trace,
                                  const std::string& name, const GoldenTolerance& tolerance) {
  if (!std::filesystem::exists(checkpoint / "adapter_model.safetensors"))
    return expect_golden_sums(SafetensorsFile::open(checkpoint / "model.safetensors"), trace["final"], name, tolerance);
  expect_golden_sums(SafetensorsFile::open(checkpoint / "adapter_model.safetensors"), trace["final"], name, tolerance);
  const HfConfig config = read_hf_config(checkpoint);
  ModelSpec plain = config.spec;
  plain.adapter.reset();
  const TempDir merged;
  const SafetensorsLayout layout = hf_layout(plain, DType::f32);
  create_files(merged.path(), layout);
  write_merged({{checkpoint, config}}, layout, DType::f32, merged.path());
  expect_golden_sums(SafetensorsFile::open(merged / "model.safetensors"), trace["merged_final"], name, tolerance);
}

// The biases by which routers choose, number by number: those of as many equal steps from the same ones.
inline void expect_golden_biases(const std::filesystem::path& checkpoint, const nlohmann::json& trace,
                                 const std::string& name) {
  if (!trace.contains("final_bias")) return;
  const SafetensorsFile file = SafetensorsFile::open(checkpoint / "model.safetensors");
  for (const auto& [tensor, values] : trace["final_bias"].items()) {
    const SafetensorsEntry* entry = file.find(tensor);
    ASSERT_NE(entry, nullptr) << name << " " << tensor;
    const auto bytes = file.bytes(*entry);
    const auto expect = [&, &tensor = tensor, &values = values](auto zero) {
      ASSERT_EQ(bytes.size(), values.size() * sizeof zero) << name << " " << tensor;
      for (size_t e = 0; e < values.size(); ++e) {
        std::memcpy(&zero, bytes.data() + e * sizeof zero, sizeof zero);
        EXPECT_NEAR(double(zero), values[e].get<double>(), 1e-6) << name << " " << tensor << " " << e;
      }
    };
    entry->dtype == FileDType::f64 ? expect(0.0) : expect(0.0f);
  }
}

inline double tolerance_of(const GoldenTolerance& t, const std::string& term) {
  const double least = term.starts_with("logp") ? t.logp : t.term;
  return t.deviation == nullptr ? least : std::max(least, 10 * t.deviation->value(term + "_absolute", 0.0));
}

// The share of tokens whose values rounding moves out of their bound, at most. Of ten traces of small batches that
// were drawn by lot, four had steps with one such token, of 12 to 32.
constexpr double kRoundedOut = 0.1;

// The losses beside cross-entropy of one step, and each expert's load in each layer: a line of metrics.jsonl beside the
// trace's, as far as that has them. A dense model has none of them.
inline void expect_golden_terms(const nlohmann::json& line, const nlohmann::json& step, const std::string& name,
                                const GoldenTolerance& tolerance) {
  for (const char* term : {"aux_loss", "z_loss", "mtp_loss"}) {
    if (step.value(term, 0.0) == 0 && line.contains("expert_load")) continue;  // not counted there: it is above 0
    const double expected = step.value(term, 0.0);
    EXPECT_NEAR(line.value(term, 0.0), expected, tolerance_of(tolerance, term))
        << name << " " << term << " step " << step["step"];
  }
  for (const char* term :
       {"reward_chosen", "reward_rejected", "margin", "accuracy", "logp_chosen", "logp_rejected", "kl_before_clamp",
        "policy_loss", "kl", "ratio_mean", "clip_fraction", "value_loss", "value_clip_fraction", "approx_kl", "ce"}) {
    if (!step.contains(term)) continue;
    if (term == std::string("accuracy") && step["margin"] == 0) continue;  // all margins are 0 but for rounding
    ASSERT_TRUE(line.contains(term)) << name << " " << term << " step " << step["step"];
    // In the trace a value within its bound may count: old + (value - old) rounds away from it.
    const bool may_round = term == std::string("value_clip_fraction") && step[term] > line[term];
    EXPECT_NEAR(line[term].get<double>(), step[term].get<double>(),
                may_round ? kRoundedOut : tolerance_of(tolerance, term))
        << name << " " << term << " step " << step["step"];
  }
  if (!step.contains("expert_load")) return;
  EXPECT_EQ(line.value("expert_load", nlohmann::json()), step["expert_load"]) << name << " step " << step["step"];
}

inline std::vector<nlohmann::json> step_lines(const std::filesystem::path& metrics) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(slurp(metrics));
  for (std::string line; std::getline(in, line);)
    if (const auto json = nlohmann::json::parse(line); json.contains("grad_norm")) lines.push_back(json);
  return lines;
}

inline GoldenTolerance of_step(const GoldenTolerance& tolerance, int64_t step) {
  if (step >= tolerance.first_tie) return tolerance;
  GoldenTolerance early = kGoldenF32;
  if (tolerance.deviation == nullptr) return early;
  early.deviation = tolerance.deviation;
  early.loss = std::max(early.loss, 10 * tolerance.deviation->value("loss", 0.0));
  early.grad_norm = std::max(early.grad_norm, 10 * tolerance.deviation->value("grad_norm", 0.0));
  return early;
}

// Whether weft reports the aux_loss that the trace has. The second set's Mixtral layout reports that of the global
// batch even where no loss has it; weft, which would need a pass over the batch to know it, then reports that of each
// sequence.
inline bool reports_aux_loss(const std::filesystem::path& folder) {
  const nlohmann::json t = read_json(folder / "train.json");
  const bool of_batch = t.value("balance", "") == "global" ||
                        (t.contains("kind") && read_json(folder / "config.json").value("model_type", "") == "mixtral");
  return !of_batch || t.value("aux_loss_coef", 0.0) > 0;
}

// A tensor without a gradient (a router of one expert, whose weight is always 1) has in the trace what f32's rounding
// leaves: a sixth of a rounding error of the whole gradient's norm.
constexpr double kOfNoGradient = 1e-8;

// What a run folder holds beside the case's trace: every step, every tensor's first gradient and every final weight's
// sums.
inline void expect_golden_records(const std::filesystem::path& run, const std::filesystem::path& folder,
                                  const GoldenTolerance& tolerance) {
  const std::string name = folder.filename().string();
  nlohmann::json trace = read_json(folder / "trace.json");
  if (!reports_aux_loss(folder))
    for (nlohmann::json& step : trace["steps"]) step.erase("aux_loss");
  const Metrics metrics = read_metrics(run / "metrics.jsonl");
  const std::vector<nlohmann::json> lines_of_steps = step_lines(run / "metrics.jsonl");
  ASSERT_EQ(metrics.steps.size(), trace["steps"].size()) << name;
  ASSERT_EQ(lines_of_steps.size(), metrics.steps.size()) << name;
  for (size_t i = 0; i < metrics.steps.size(); ++i) {
    const double loss = trace["steps"][i]["loss"], norm = trace["steps"][i]["grad_norm"];
    const GoldenTolerance& t = of_step(tolerance, int64_t(i) + 1);
    EXPECT_NEAR(metrics.steps[i].loss, loss, t.loss * (t.loss_is_absolute ? 1 : std::abs(loss)))
        << name << " step " << i + 1;
    EXPECT_NEAR(metrics.steps[i].grad_norm, norm, t.grad_norm * norm) << name << " step " << i + 1;
    EXPECT_NEAR(metrics.steps[i].lr, trace["steps"][i]["lr"].get<double>(), 1e-12) << name;
    expect_golden_terms(lines_of_steps[i], trace["steps"][i], name, t);
  }
  std::istringstream lines(slurp(run / "grad_norms.jsonl"));
  std::string first;
  std::getline(lines, first);
  const nlohmann::json norms = nlohmann::json::parse(first)["grad_norm"];
  for (const auto& [tensor, norm] : trace["grad_norm_by_tensor"].items()) {
    ASSERT_TRUE(norms.contains(tensor)) << name << " " << tensor;
    const double least = kOfNoGradient * trace["steps"][0]["grad_norm"].get<double>();
    EXPECT_NEAR(norms[tensor].get<double>(), norm.get<double>(),
                std::max(least, of_step(tolerance, 1).tensor_norm * norm.get<double>()))
        << name << " " << tensor;
  }
  const std::filesystem::path checkpoint = run / fmt::format("checkpoints/step-{}", metrics.steps.size());
  expect_golden_weights(checkpoint, trace, name, tolerance);
  expect_golden_biases(checkpoint, trace, name);
}

inline void expect_golden_run(const std::filesystem::path& folder, const Machine& machine,
                              const std::vector<std::string>& overrides, const GoldenTolerance& tolerance) {
  TempDir run;
  train(golden_recipe(folder, run / "run", overrides), machine);
  expect_golden_records(run / "run", folder, tolerance);
}

// A case of tests/golden.
inline void expect_golden(const std::string& name, const Machine& machine, const std::vector<std::string>& overrides,
                          const GoldenTolerance& tolerance) {
  expect_golden_run(std::filesystem::path(testing::kSourceDir) / "tests/golden" / name, machine, overrides, tolerance);
}

}  // namespace weft::testing
