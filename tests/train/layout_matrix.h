// Layouts of every kind beside one rank: what a layout may be made of, and whether it gives the same run.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "token_files.h"
#include "tolerance.h"
#include "train/golden.h"
#include "train/late_backend.h"
#include "train/matrix_models.h"
#include "weft/apps/backends.h"
#include "weft/plan/recompute_budget.h"
#include "weft/plan/teacher.h"
#include "weft/schedule/shares.h"
#include "weft/train/store_teacher.h"

namespace weft::testing {

inline constexpr double kTolerance = 1e-11;  // of any weight, relative to the largest of its tensor
inline constexpr int kMostRanks = 16;
inline constexpr int64_t kSteps = 3;

// What may vary, with the values it may have. The first ones make another model or another run; the rest only cut it.
struct Feature {
  std::string key;
  std::vector<std::string> values;
};
inline const std::vector<Feature> kRuns = {
    {"model",
     {"gpt2",
      "llama-tied",
      "llama-gqa",
      "qwen2",
      "qwen3",
      "mistral",
      "phi3",
      "olmo2",
      "gemma2",
      "gemma3",
      "deepseek",
      "deepseek-lite",
      "deepseek-mtp",
      "mixtral",
      "qwen2-moe",
      "qwen3-moe",
      "deepseek-v2-moe",
      "deepseek-v3-moe",
      "deepseek-v3-mtp-moe",
      "gpt-oss",
      "gpt2-lora",
      "llama-gqa-lora",
      "qwen2-lora",
      "phi3-lora",
      "mixtral-lora",
      "qwen2-moe-lora",
      "deepseek-v3-moe-lora",
      "gpt-oss-lora",
      "deepseek-lora",
      "llama-ends-lora",
      "gpt2-dora",
      "llama-gqa-dora",
      "qwen2-dora",
      "phi3-dora",
      "deepseek-lite-dora",
      "gpt2-qlora",
      "llama-gqa-qlora",
      "phi3-qlora",
      "qwen2-qlora",
      "gpt2-qdora",
      "llama-gqa-qdora",
      "deepseek-qdora",
      "llama-ends-qlora",
      "mixtral-qlora",
      "qwen3-moe-qlora"}},
    {"train.objective", {"cross_entropy", "dpo", "grpo", "kto", "reward", "ppo", "distill"}},
    {"teacher", {"in memory", "stored"}},  // of distill
    {"model.hidden_dropout", {"0", "0.1"}},
    {"optimizer.name", {"adamw", "adamw8bit", "sgd", "muon"}},
    {"data.mask", {"none", "some"}},
    {"documents", {"cut", "apart", "whole"}},  // of token files: wherever a sample ends; and apart; packed and apart
    {"run.backend", {"ref"}},
    {"train.precision", {"f64"}},
};
inline const std::vector<Feature> kCuts = {
    {"parallel.dp", {"1", "2", "3", "4", "6"}},
    {"parallel.cp", {"1", "2", "3", "6"}},
    {"parallel.ep", {"1", "2", "3", "4"}},
    {"capacity", {"all", "ample", "ample, may drop"}},  // of experts: as much as can come, and as much by a factor
    {"parallel.cp_comm_type", {"p2p", "all_gather", "a2a", "a2a+p2p"}},
    {"parallel.tp", {"1", "2", "3", "4"}},
    {"parallel.sequence_parallel", {"true", "false"}},
    {"parallel.zero_stage", {"0", "1", "2", "3"}},
    {"parallel.zero_shard_size", {"0", "2"}},
    {"parallel.recompute", {"none", "selective", "full", "budget"}},
    {"parallel.order", {"tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp", "dp-pp-tp-ep-cp"}},
    {"parallel.pp", {"1", "2", "3", "4"}},
    {"parallel.pipeline_schedule", {"1f1b", "gpipe", "zb_h1", "interleaved_1f1b", "zbv"}},
    {"parallel.virtual_pipeline_parallel_size", {"0", "2", "3"}},
    {"parallel.pipeline_layout", {"balanced", "embedding alone", "head alone"}},
    {"train.numerics", {"fast", "invariant"}},
    {"train.micro_batch_size", {"1", "2"}},
};

using Choice = std::map<std::string, std::string>;
inline bool reads_documents(const Choice& c) {
  return c.at("train.objective") == "cross_entropy" || c.at("train.objective") == "distill";
}
// The choice with the first value of what has no effect in it.
inline Choice heeded(Choice c) {
  if (!reads_documents(c)) c["documents"] = "cut";
  if (!has_experts(c.at("model"))) c["capacity"] = "all";
  return c;
}

inline std::string text_of(const Choice& c) {
  std::string text;
  for (const auto& [key, value] : c) text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

// A layout of `stages` virtual stages, with only the embedding on the first or only the head on the last.
inline std::string pipeline_layout_of(const std::string& kind, int stages) {
  std::vector<int> blocks(size_t(stages), 1);
  const int left = std::max(0, kBlocks - std::max(0, stages - 2));
  blocks.front() = kind == "embedding alone" ? 0 : left;
  blocks.back() = stages == 1 || kind == "embedding alone" ? left : 0;
  return fmt::format("[{}]", fmt::join(blocks, ","));
}

// Whether data-parallel ranks may have unequally many micro-batches: nothing passes between them within one.
inline bool takes_unequal_shares(const Choice& c) {
  const auto is = [&](const char* key, std::initializer_list<const char*> values) {
    const auto found = c.find(key);
    return found == c.end() || std::find(values.begin(), values.end(), found->second) != values.end();
  };
  return is("parallel.zero_stage", {"0", "1"}) && is("parallel.ep", {"1"}) &&
         is("parallel.frozen_shard_size", {"0", "1"}) && is("parallel.frozen_ep", {"0", "1"}) &&
         is("teacher", {"in memory", "stored"});
}
// The last data-parallel ranks have the most of a batch of 12.
inline std::string unequal_shares(const Choice& c) {
  std::vector<double> weights(size_t(std::stoi(c.at("parallel.dp"))));
  std::iota(weights.begin(), weights.end(), 1.0);
  return text_of_shares(shares_by_weight(weights, 12 / std::stoi(c.at("train.micro_batch_size"))));
}

// Whether losses may be near 0.
inline bool is_near_zero(const Choice& c) {
  return c.at("train.objective") == "grpo" || c.at("train.objective") == "ppo";
}

// The least number beside which differences of a weight or a moment count. The chosen and the rejected completion of a
// pair pull equally on the final bias of a reward model: the sum is 0 on one layout and on another what rounding left
// of its summands, which are about 1e-2.
inline double least_size(const Choice& c, const std::string& name) {
  const bool is_shift = name.find("ln_f.bias") != name.npos || name.find("final_norm.bias") != name.npos;
  return c.at("train.objective") == "reward" && is_shift ? 1e-4 : 0;
}

class LayoutMatrix : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir_ / "of-teacher");
    for (const std::string& model : kRuns[0].values) {
      std::filesystem::create_directories(dir_ / model);
      std::ofstream(dir_ / model / "config.json") << json_of(base_of(model));
    }
    std::mt19937 gen(7);
    std::ofstream tokens(dir_ / "tokens.bin", std::ios::binary), mask(dir_ / "mask.bin", std::ios::binary);
    for (int i = 0; i < 12 * 12 * (kSteps + 1); ++i) {
      const auto id = uint16_t(gen() % 37);
      tokens.write(reinterpret_cast<const char*>(&id), sizeof id);
      mask.put(char(gen() % 3 != 0));
    }
    const auto ids = [&](size_t most) {
      std::vector<int> some(1 + gen() % most);
      for (int& id : some) id = int(gen() % 37);
      return some;
    };
    std::ofstream pairs(dir_ / "pairs.jsonl");
    for (int i = 0; i < 12 * (kSteps + 1); ++i)
      pairs << nlohmann::json{{"prompt", ids(5)}, {"chosen", ids(7)}, {"rejected", ids(7)}}.dump() << "\n";
    std::ofstream examples(dir_ / "examples.jsonl");
    for (int i = 0; i < 12 * (kSteps + 1); ++i)
      examples << nlohmann::json{{"prompt", ids(5)}, {"completion", ids(7)}, {"label", i % 3 == 0}}.dump() << "\n";
    std::ofstream rollouts(dir_ / "rollouts.jsonl");
    std::vector<int> prompt;
    for (int i = 0; i < 12 * (kSteps + 1); ++i) {
      if (i % 4 == 0) prompt = ids(5);
      const std::vector<int> completion = ids(7);
      std::vector<double> old_values;
      std::vector<double> old_logps;  // of about a random model of 37 tokens: some ratios are beyond the bounds
      for (size_t t = 0; t < completion.size(); ++t) old_logps.push_back(-3.6 - 0.05 * (double(gen() % 10) - 5));
      for (size_t t = 0; t < completion.size(); ++t) old_values.push_back(0.1 * double(t) - 0.05);
      rollouts << nlohmann::json{{"prompt", prompt},
                                 {"completion", completion},
                                 {"reward", gen() % 7},
                                 {"old_logps", old_logps},
                                 {"ref_logps", std::vector<double>(old_logps.rbegin(), old_logps.rend())},
                                 {"old_values", old_values}}
                      .dump()
               << "\n";
    }
    std::vector<std::vector<int32_t>> documents;  // as many ids as tokens.bin has
    for (size_t left = 12 * 12 * (kSteps + 1); left > 0; left -= documents.back().size()) {
      const std::vector<int> some = ids(std::min<size_t>(left, 18));
      documents.emplace_back(some.begin(), some.end());
    }
    write_megatron_tokens(dir_ / "documents", documents, "uint16");
  }

  std::string data_of(const Choice& c) const {
    const std::string& objective = c.at("train.objective");
    if (objective == "dpo" || objective == "reward") return "data.pairs=" + (dir_ / "pairs.jsonl").string();
    if (objective == "kto") return "data.examples=" + (dir_ / "examples.jsonl").string();
    if (objective == "grpo" || objective == "ppo") return "data.rollouts=" + (dir_ / "rollouts.jsonl").string();
    return "data.train=" + (dir_ / (c.at("documents") == "cut" ? "tokens.bin" : "documents")).string();
  }

  static bool is_forward(const Choice& c) { return c.at("model").size() % 2 == 0; }

  // A teacher of another family than the student, wider, with another number of blocks: a run of one step writes it.
  std::filesystem::path teacher_of(const Choice& c) {
    const std::string model = is_forward(c) ? "gemma2" : "mixtral";
    const std::filesystem::path folder = dir_ / ("teacher-" + model);
    if (std::filesystem::exists(folder)) return folder;
    nlohmann::json config = nlohmann::json::parse(json_of(model));
    config.update({{"hidden_size", 36}, {"num_hidden_layers", kBlocks + 1}, {"initializer_range", 0.3}});
    spill(dir_ / "of-teacher/config.json", config.dump());
    Choice plain = first_choice();
    const Recipe recipe = recipe_of(plain, dir_ / "teacher-run");
    Recipe one = recipe;
    one.model.path = (dir_ / "of-teacher").string();
    one.train.train_iters = 1;
    train(one, machine_for(one));
    std::filesystem::rename(dir_ / "teacher-run/checkpoints/step-1", folder);
    std::filesystem::remove_all(dir_ / "teacher-run");
    return folder;
  }

  // Nine of the teacher's 37 logits at each token, stored by one rank.
  std::filesystem::path stored_of(const Choice& c) {
    const std::filesystem::path file = teacher_of(c).string() + "." + c.at("documents") + ".logits";
    if (std::filesystem::exists(file)) return file;
    Choice plain = first_choice();
    plain["train.objective"] = "distill";
    plain["documents"] = c.at("documents");
    Recipe given = recipe_of(plain, dir_ / "none");
    given.objective.teacher = teacher_of(c).string();
    const HfConfig teacher = *read_teacher(given);
    const Recipe recipe = storing_recipe(given, teacher.spec);
    const Machine machine = machine_for(recipe);
    run_on_threads(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
      store_teacher_logits(
          {.recipe = recipe, .teacher = teacher, .machine = machine, .mesh = mesh, .file = file, .top = 9});
    });
    return file;
  }

  Recipe recipe_of(const Choice& c, const std::filesystem::path& run) {
    std::vector<std::string> all{"model.path=" + (dir_ / c.at("model")).string(),
                                 "model.init=random",
                                 data_of(c),
                                 "train.seq_length=12",
                                 "train.global_batch_size=12",
                                 fmt::format("train.train_iters={}", steps_),
                                 "optimizer.lr=1e-2",
                                 "optimizer.min_lr=1e-2",
                                 "optimizer.lr_warmup_iters=1",
                                 "optimizer.clip_grad=0.5",
                                 "run.threads=1",
                                 "run.dir=" + run.string()};
    if (c.at("optimizer.name") != "sgd")
      all.push_back("optimizer.adam_eps=1e-3");  // sees the gradients' absolute size, not their sign alone
    if (c.at("optimizer.name") == "adamw8bit") all.push_back("optimizer.min_8bit_size=200");
    if (base_of(c.at("model")) == "qwen3-moe")
      all.insert(all.end(), {"moe.global_aux_loss_coef=0.3", "moe.z_loss_coef=0.01"});
    if (c.at("model").starts_with("deepseek-v3-m") && !has_adapter(c.at("model")))
      all.push_back("moe.bias_update_rate=0.02");
    if (has_adapter(c.at("model")))
      all.insert(all.end(), {"adapter.kind=" + c.at("model").substr(c.at("model").rfind('-') + 1), "adapter.rank=3"});
    if (c.at("model") == "gpt2-qlora" || c.at("model") == "gpt2-qdora") all.push_back("adapter.quant_type=int8");
    if (c.at("model").find("-ends-") != std::string::npos)
      all.push_back(R"(adapter.targets=["embed_tokens", "lm_head", "q_proj", "down_proj"])");
    if (c.at("model") == "gpt-oss-lora") all.push_back(R"(adapter.targets=["q_proj", "v_proj", "o_proj"])");
    if (has_mtp(c.at("model"))) all.push_back("train.mtp_loss_coef=0.4");
    if (c.at("train.objective") == "grpo")
      all.insert(all.end(), {"objective.group_size=4", "objective.inner_updates=2", "objective.kl_beta=0.3",
                             "objective.normalisation=sequence"});
    if (c.at("train.objective") == "ppo") all.push_back("objective.inner_updates=2");
    if (c.at("train.objective") == "distill" && c.at("teacher") == "stored")
      all.insert(all.end(), {"objective.teacher_logits=" + stored_of(c).string(), "objective.temperature=1.5"});
    else if (c.at("train.objective") == "distill" && c.at("teacher") == "apart")
      all.insert(all.end(), {"objective.teacher=" + teacher_of(c).string(), "objective.temperature=1.5",
                             std::string("objective.top_k=9")});
    else if (c.at("train.objective") == "distill")
      all.insert(all.end(), {"objective.teacher=" + teacher_of(c).string(), "objective.temperature=1.5",
                             std::string("objective.divergence=") + (is_forward(c) ? "forward" : "reverse")});
    if (c.at("train.objective") == "kto") all.push_back("objective.undesirable_weight=1.5");
    if (c.at("train.objective") == "dpo")
      all.insert(all.end(), {"objective.loss_type=ipo", "objective.average_logps=true", "objective.beta=0.5"});
    if (c.at("data.mask") == "some") all.push_back("data.loss_mask=" + (dir_ / "mask.bin").string());
    if (reads_documents(c) && c.at("documents") != "cut") all.push_back("data.attn_mask_type=block_causal");
    if (reads_documents(c) && c.at("documents") == "whole") all.push_back("data.packing=first-fit");
    if (c.count("capacity") && c.at("capacity") != "all" && has_experts(c.at("model"))) {
      all.push_back("moe.capacity_factor=4");  // the most ranks of ep: enough for all rows of all of them
      if (c.at("capacity") == "ample, may drop") all.push_back("moe.overflow=drop");
    }
    if (c.at("model.hidden_dropout") != "0") all.push_back("model.attention_dropout=0.2");
    if (c.at("model.hidden_dropout") != "0" && has_adapter(c.at("model"))) all.push_back("adapter.dropout=0.2");
    if (c.count("parallel.cp") && c.at("parallel.cp") == "6" && c.at("parallel.cp_comm_type") == "a2a+p2p")
      all.push_back(
          fmt::format("parallel.cp_a2a_size={}", c.at("model") == "gpt2" || c.at("model") == "qwen2" ? 2 : 3));
    for (const auto& [key, value] : c)
      if (key.find('.') != std::string::npos && key != "data.mask" && key != "parallel.pipeline_layout")
        all.push_back(key + "=" + value);
    if (c.count("shares") && c.at("shares") == "unequal" && takes_unequal_shares(c))
      all.push_back("parallel.micro_batches=" + unequal_shares(c));
    if (c.count("parallel.pipeline_layout") && c.at("parallel.pipeline_layout") != "balanced") {
      const Pipeline p = pipeline_of(parse_recipe("", "matrix", all));
      all.push_back("parallel.pipeline_layout=" +
                    pipeline_layout_of(c.at("parallel.pipeline_layout"), p.num_virtual_stages()));
    }
    if (c.count("parallel.recompute") && c.at("parallel.recompute") == "budget")
      all.push_back(fmt::format("parallel.memory_budget={}", some_budget(all)));
    return parse_recipe("", "matrix", all);
  }

  // Less than all blocks need that keep everything, and more than they need at least.
  static int64_t some_budget(std::vector<std::string> settings) {
    settings.push_back("parallel.recompute=none");
    const Recipe recipe = parse_recipe("", "matrix", settings);
    check_supported(recipe);
    const RecomputeRange range = recompute_range(recipe, prepare_run(recipe, 0), *machine_for(recipe).workspace_model);
    return (range.least + range.most) / 2;
  }

  using Weights = std::map<std::string, std::vector<double>>;
  struct Outcome {
    Weights weights;
    std::vector<StepRecord> steps;
  };
  Outcome outcome_of(const Choice& c) {
    const Recipe recipe = recipe_of(c, dir_ / fmt::format("run{}", runs_++));
    train(recipe, device_(machine_for(recipe)));
    Outcome out;
    out.steps = read_metrics(recipe.run.dir + "/metrics.jsonl").steps;
    const auto last = std::filesystem::path(recipe.run.dir) / fmt::format("checkpoints/step-{}", steps_);
    const char* weights = has_adapter(c.at("model")) ? "adapter_model.safetensors" : "model.safetensors";
    for (const char* name : {weights, "weft/optimizer.safetensors"}) {
      const SafetensorsFile file = SafetensorsFile::open(last / name);
      for (const SafetensorsEntry& entry : file.tensors()) {
        std::vector<double> values(size_t(entry.num_elements()));
        const auto bytes = file.bytes(entry);
        if (entry.dtype == FileDType::u8)
          std::transform(bytes.begin(), bytes.end(), values.begin(), [](std::byte code) { return double(code); });
        else if (entry.dtype == FileDType::f64)
          std::memcpy(values.data(), bytes.data(), bytes.size());
        else
          continue;
        out.weights[entry.name] = std::move(values);
      }
    }
    std::filesystem::remove_all(recipe.run.dir);
    return out;
  }

  // The outcome on one rank; computed once for each run.
  const Outcome& reference_of(const Choice& c) {
    Choice one;
    for (const Feature& f : kRuns) one[f.key] = c.at(f.key);
    auto found = references_.find(text_of(one));
    if (found == references_.end()) found = references_.emplace(text_of(one), outcome_of(one)).first;
    return found->second;
  }

  bool can_run(const Choice& c) {
    try {
      const Recipe recipe = recipe_of(c, dir_ / "none");
      check_supported(recipe);
      if (mesh_sizes_of(recipe).world() > kMostRanks) return false;
      const Machine machine = machine_for(recipe);
      plan_run(recipe, *machine.workspace_model);
    } catch (const ConfigError&) { return false; }
    return true;
  }

  // Whether the layout can run; if so, that it equals one rank.
  bool judge(const Choice& c) {
    if (!can_run(c)) return false;
    SCOPED_TRACE(text_of(c));
    const Outcome &one = reference_of(c), many = outcome_of(c);
    for (size_t i = 0; i < one.steps.size(); ++i) {
      const double size = is_near_zero(c) ? 1 : one.steps[i].loss;  // which may be near 0
      EXPECT_NEAR(one.steps[i].loss, many.steps[i].loss, kTolerance * size) << text_of(c);
      EXPECT_NEAR(one.steps[i].aux_loss, many.steps[i].aux_loss, kTolerance * one.steps[i].aux_loss) << text_of(c);
      EXPECT_NEAR(one.steps[i].z_loss, many.steps[i].z_loss, kTolerance * one.steps[i].z_loss) << text_of(c);
      EXPECT_NEAR(one.steps[i].mtp_loss, many.steps[i].mtp_loss, kTolerance * one.steps[i].mtp_loss) << text_of(c);
      EXPECT_EQ(one.steps[i].terms.size(), many.steps[i].terms.size());
      for (size_t t = 0; t < one.steps[i].terms.size(); ++t) {
        const auto& [term, value] = one.steps[i].terms[t];
        EXPECT_EQ(many.steps[i].terms[t].first, term);
        EXPECT_NEAR(many.steps[i].terms[t].second, value, kTolerance * std::max(1.0, std::abs(value)))
            << term << " " << text_of(c);
      }
      EXPECT_EQ(one.steps[i].expert_load, many.steps[i].expert_load) << text_of(c);
      for (const int64_t dropped : many.steps[i].dropped) EXPECT_EQ(dropped, 0) << text_of(c);
      EXPECT_EQ(one.steps[i].mtp_expert_load, many.steps[i].mtp_expert_load) << text_of(c);
      const std::vector<double>&here = one.steps[i].router_entropy, &there = many.steps[i].router_entropy;
      EXPECT_EQ(here.size(), there.size()) << text_of(c);
      for (size_t l = 0; l < std::min(here.size(), there.size()); ++l)
        EXPECT_NEAR(here[l], there[l], kTolerance) << text_of(c);
      EXPECT_NEAR(one.steps[i].grad_norm, many.steps[i].grad_norm, kTolerance * one.steps[i].grad_norm) << text_of(c);
    }
    for (const auto& [name, values] : one.weights) {
      const auto found = many.weights.find(name);
      if (found == many.weights.end() || found->second.size() != values.size()) {
        ADD_FAILURE() << text_of(c) << ": " << name << " is missing";
        continue;
      }
      double largest = 0, apart = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(values[i]));
        apart = std::max(apart, std::abs(values[i] - found->second[i]));
      }
      EXPECT_LE(apart, kTolerance * std::max(largest, least_size(c, name))) << text_of(c) << ": " << name;
    }
    return true;
  }

  using Device = std::function<Machine(Machine)>;
  // The layout on another device than the one rank that it is beside.
  bool judge_on(const Device& device, const Choice& c) {
    if (!can_run(c)) return false;
    reference_of(c);
    device_ = device;
    const bool judged = judge(c);
    device_ = same;
    return judged;
  }

  // How far the losses of one rank in c's precision are from those in f32. A reward's gradient is a difference of pulls
  // that cancel: updates magnify what rounding does to it, and no layout is nearer to one rank than that is to f32.
  double magnified_rounding(Choice c) {
    if (c.at("train.objective") != "reward") return 0;
    const Outcome& rounded = reference_of(c);
    c["train.precision"] = c["train.grad_reduce_dtype"] = "f32";
    const Outcome& exact = reference_of(c);
    double farthest = 0;
    for (size_t i = 0; i < exact.steps.size(); ++i)
      farthest = std::max(farthest, std::abs(rounded.steps[i].loss - exact.steps[i].loss));
    return farthest;
  }

  // In another precision of the cpu backend: that every loss is near that of one rank. Returns the farthest.
  double judge_losses(const Choice& c, double tolerance) {
    SCOPED_TRACE(text_of(c));
    const Outcome &one = reference_of(c), many = outcome_of(c);
    const double magnified = magnified_rounding(c);
    double farthest = 0;
    EXPECT_EQ(one.steps.size(), many.steps.size());
    for (size_t i = 0; i < one.steps.size(); ++i) {
      // A preference is made of log-probabilities, which are as much larger than it as they are.
      double size = std::abs(one.steps[i].loss) + (is_near_zero(c) ? 1 : 0);
      for (const auto& [term, value] : one.steps[i].terms)
        if (term.starts_with("logp")) size += std::abs(value);
      const double apart = std::abs(many.steps[i].loss - one.steps[i].loss) / size;
      const double updated = i == 0 ? 0 : 2 * magnified / size;  // both layouts round
      EXPECT_LE(apart, tolerance + updated) << "step " << i + 1 << " " << text_of(c);
      farthest = std::max(farthest, apart);
    }
    return farthest;
  }

  // So many random layouts in each precision of a backend give the losses of one rank: in f32 to 1e-6; in 16 bits as
  // near as one rounding of the loss itself would be: a layout rounds other partial sums over tp, and adds gradients,
  // which are f32, in another order. Gradients that are reduced in bf16 are 16 bits too.
  void judge_precisions(const std::string& backend, int layouts, unsigned seed) {
    std::mt19937 gen(seed);
    const double bf16 = unit_roundoff(DType::bf16), f16 = unit_roundoff(DType::f16);
    const std::tuple<const char*, const char*, double> tolerances[] = {{"f32", "f32", 1e-6},
                                                                       {"bf16", "f32", bf16},
                                                                       {"fp16", "f32", f16},
                                                                       {"f32", "bf16", bf16},
                                                                       {"fp16", "bf16", bf16}};
    for (const auto& [precision, reduced, tolerance] : tolerances) {
      double farthest = 0;
      int unchanged = 0;
      for (int judged = 0; judged < layouts;) {
        Choice c = random_choice(gen);
        c["run.backend"] = backend;
        c["train.precision"] = precision;
        c["train.grad_reduce_dtype"] = reduced;
        if (c["optimizer.name"] == "adamw8bit") continue;  // another rounding of a moment may be another code
        // Pulls of a group or a pair cancel, and AdamW and Muon make of what is left, rounding or not, an update of the
        // same size.
        const bool cancel = is_near_zero(c) || c["train.objective"] == "reward";
        if (tolerance >= f16 && cancel && c["optimizer.name"] != "sgd") continue;
        if (!can_run(c)) continue;
        try {
          farthest = std::max(farthest, judge_losses(c, tolerance));
        } catch (const FileError& e) {
          // In 16 bits all steps of so short a run may be skipped, or its gradients vanish: no adapter is saved then.
          if (std::string(e.what()).find("the adapter is as it began") == std::string::npos) throw;
          ASSERT_LT(++unchanged, layouts) << text_of(c);
          std::cout << "judged as it began: " << text_of(c) << "\n";
          continue;
        }
        ++judged;
      }
      std::cout << precision << ", gradients reduced in " << reduced << ": losses of " << layouts << " layouts within "
                << farthest << "\n";
    }
  }

  // A model, and what cuts it and its step.
  struct Cut {
    const char *model, *dp, *cp, *tp, *sequence_parallel, *pp, *pipeline_schedule, *zero_stage, *recompute;
  };
  static void set(Choice& c, const Cut& cut) {
    c["model"] = cut.model;
    c["parallel.dp"] = cut.dp;
    c["parallel.cp"] = cut.cp;
    c["parallel.tp"] = cut.tp;
    c["parallel.sequence_parallel"] = cut.sequence_parallel;
    c["parallel.pp"] = cut.pp;
    c["parallel.pipeline_schedule"] = cut.pipeline_schedule;
    c["parallel.zero_stage"] = cut.zero_stage;
    c["parallel.recompute"] = cut.recompute;
  }
  // The first value of each feature: one rank's run of the first model.
  static Choice first_choice() {
    Choice c;
    for (const auto* features : {&kRuns, &kCuts})
      for (const Feature& f : *features) c[f.key] = f.values[0];
    return c;
  }
  Choice random_choice(std::mt19937& gen) {
    Choice c;
    for (const auto* features : {&kRuns, &kCuts})
      for (const Feature& f : *features) c[f.key] = f.values[gen() % f.values.size()];
    c["shares"] = std::mt19937(gen)() % 2 == 0 ? "equal" : "unequal";  // the numbers that follow stay as they were
    return heeded(c);
  }

  TempDir dir_;
  std::map<std::string, Outcome> references_;
  int runs_ = 0;
  int64_t steps_ = kSteps;  // of a run
  static Machine same(Machine machine) { return machine; }
  Device device_ = same;
};

inline unsigned seed_of_today() {
  const char* given = std::getenv("WEFT_TEST_SEED");
  const unsigned seed = given ? unsigned(std::atoi(given)) : std::random_device()();
  std::cout << "WEFT_TEST_SEED=" << seed << " repeats this" << std::endl;
  return seed;
}

}  // namespace weft::testing
