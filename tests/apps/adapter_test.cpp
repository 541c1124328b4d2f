// Adapters, by the commands alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "apps/program.h"
#include "weft/base/error.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/models/merge_adapter.h"
#include "weft/train/trained_context.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::TempDir;
using testing::weft;

const fs::path kGolden = fs::path(testing::kSourceDir) / "tests/golden";

class AdapterRun : public ::testing::Test {
 protected:
  explicit AdapterRun(std::string model = "llama-gqa") : model_(std::move(model)) {}
  void SetUp() override {
    fs::copy(kGolden / model_, base_);
    testing::spill(dir_ / "r.toml", "[model]\npath = \"" + base_.string() + "\"\n[data]\ntrain = [\"" +
                                        (base_ / "tokens.bin").string() +
                                        "\"]\nshuffle = false\n[adapter]\nkind = \"lora\"\nrank = 2\n[train]\n"
                                        "seq_length = 16\nglobal_batch_size = 4\nmicro_batch_size = 2\n"
                                        "train_iters = 4\n[optimizer]\nlr = 1e-2\nmin_lr = 1e-2\n"
                                        "[run]\nthreads = 1\n");
  }
  Finished train(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"train", (dir_ / "r.toml").string(), "run.dir=" + (dir_ / name).string()};
    all.insert(all.end(), more.begin(), more.end());
    return weft(all);
  }
  fs::path checkpoint(const std::string& name, int step) const {
    return dir_ / name / "checkpoints" / fmt::format("step-{}", step);
  }
  static std::string ids_of(const fs::path& model) {
    const Finished f =
        weft({"generate", model.string(), "--prompt-ids", "1,2,3", "--max-tokens", "8", "--temperature", "0", "--ids"});
    EXPECT_EQ(f.status, 0) << f.err;
    return f.out;
  }
  const std::string model_;
  TempDir dir_;
  const fs::path base_ = dir_ / "base";
};

using AdapterRunSlow = AdapterRun;

TEST_F(AdapterRunSlow, GoesOnToTheBitAndIsAModelWithItsBase) {
  ASSERT_EQ(train("whole").status, 0);
  ASSERT_EQ(train("parts", {"train.train_iters=2"}).status, 0);
  const Finished more = train("parts", {"parallel.dp=2", "parallel.zero_stage=1"});
  ASSERT_EQ(more.status, 0) << more.err;
  EXPECT_FALSE(fs::exists(checkpoint("whole", 4) / "model.safetensors"));
  const auto adapter = [&](const std::string& run) {
    return testing::slurp(checkpoint(run, 4) / "adapter_model.safetensors");
  };
  ASSERT_EQ(train("again").status, 0);
  EXPECT_TRUE(adapter("whole") == adapter("again"));
  ASSERT_EQ(train("halves", {"train.train_iters=2"}).status, 0);
  ASSERT_EQ(train("halves").status, 0);
  EXPECT_TRUE(adapter("whole") == adapter("halves")) << "a run that went on";
  const auto config = nlohmann::json::parse(testing::slurp(checkpoint("whole", 4) / "adapter_config.json"));
  EXPECT_EQ(config["base_model_name_or_path"], base_.string());
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["target_modules"].size(), 7u);
  const Finished merged = weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "merged"));
  EXPECT_NE(ids_of(dir_ / "whole"), ids_of(base_)) << "it learned nothing";
  EXPECT_EQ(weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()}).status, 2);
  fs::create_directories(dir_ / "bad");
  fs::copy(checkpoint("whole", 4) / "adapter_config.json", dir_ / "bad");
  std::string endless = adapter("whole");
  endless.replace(endless.size() - 4, 4, std::string("\0\0\x80\x7f", 4));  // an infinite f32
  testing::spill(dir_ / "bad/adapter_model.safetensors", endless);
  const Finished bad = weft({"merge", (dir_ / "bad").string(), "--out", (dir_ / "none").string()});
  EXPECT_EQ(bad.status, 1);
  EXPECT_SAYS(bad.err, ".weight has numbers that are not finite");
  EXPECT_FALSE(fs::exists(dir_ / "none"));
  const Finished inspected = weft({"inspect", checkpoint("whole", 4).string()});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_SAYS(inspected.out, "every byte is what was saved");
  const Finished eval = weft(
      {"eval", (dir_ / "whole").string(), (base_ / "tokens.bin").string(), "--seq-length", "16", "--max-batches", "2"});
  EXPECT_EQ(eval.status, 0) << eval.err;
}

// Folders of one kind say so where the other is asked for.
TEST_F(AdapterRunSlow, MagnitudesGoOnToTheBitAndAreMerged) {
  const std::string dora = "adapter.kind=dora";
  ASSERT_EQ(train("whole", {dora}).status, 0);
  ASSERT_EQ(train("halves", {dora, "train.train_iters=2"}).status, 0);
  ASSERT_EQ(train("halves", {dora}).status, 0);
  const fs::path one = checkpoint("whole", 4);
  EXPECT_TRUE(testing::slurp(one / "adapter_model.safetensors") ==
              testing::slurp(checkpoint("halves", 4) / "adapter_model.safetensors"));
  const Finished merged = weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "merged"));
  auto config = nlohmann::json::parse(testing::slurp(one / "adapter_config.json"));
  EXPECT_EQ(config["use_dora"], true);
  EXPECT_SAYS(train("lora", {"adapter.path=" + one.string()}).err, "adapter.kind=dora");
  config["use_dora"] = false;
  const fs::path changed = dir_ / "changed";  // without weft/, which knows how it was
  fs::create_directory(changed);
  fs::copy(one / "adapter_model.safetensors", changed);
  testing::spill(changed / "adapter_config.json", config.dump());
  EXPECT_SAYS(weft({"inspect", changed.string()}).err, "lora_magnitude_vector");
  EXPECT_SAYS(train("dora", {dora, "adapter.path=" + changed.string()}).err, "adapter.kind=lora");
}

int64_t positions_in(const nlohmann::json& config) { return config.at("max_position_embeddings"); }

TEST_F(AdapterRun, AMergedModelHasTheContextThatTheAdapterWasTrainedAt) {
  auto base = nlohmann::json::parse(testing::slurp(base_ / "config.json"));
  fs::create_directories(dir_ / "adapter/weft");
  testing::spill(dir_ / "adapter/weft/state.json", R"({"context": 16})");
  const auto merged = [&](int64_t positions) {
    base["max_position_embeddings"] = positions;
    return positions_in(config_of_merged(dir_ / "adapter", parse_hf_config(base, "base"), DType::f32));
  };
  EXPECT_EQ(merged(8), 16);
  EXPECT_EQ(merged(64), 64) << "its makers promise more";
  base["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(merged(8), 8) << "it scales the rotations";
}

TEST_F(AdapterRunSlow, AMergedModelHasTheContextOfTheRun) {
  auto base = nlohmann::json::parse(testing::slurp(base_ / "config.json"));
  base["max_position_embeddings"] = 8;
  testing::spill(base_ / "config.json", base.dump());
  ASSERT_EQ(train("run", {"train.train_iters=1"}).status, 0);
  ASSERT_EQ(weft({"merge", (dir_ / "run").string(), "--out", (dir_ / "merged").string()}).status, 0);
  EXPECT_EQ(positions_in(nlohmann::json::parse(testing::slurp(dir_ / "merged/config.json"))), 16);
}

// The base is kept in codes again wherever it is read, but for the table and the head, which adapters may be on too.
TEST_F(AdapterRun, BesideCodesOtherCommandsUseTheirNumbers) {
  const std::string targets = R"(adapter.targets=["embed_tokens", "lm_head", "down_proj"])";
  ASSERT_EQ(train("run", {"adapter.kind=qlora", "train.train_iters=1", targets}).status, 0);
  const Finished merged = weft({"merge", (dir_ / "run").string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  const auto loss_of = [&](const fs::path& model) {
    const Finished f =
        weft({"eval", model.string(), (base_ / "tokens.bin").string(), "--seq-length", "16", "--max-batches", "1"});
    EXPECT_EQ(f.status, 0) << f.err;
    return f.out.substr(0, f.out.find("perplexity"));
  };
  const std::string loss = loss_of(dir_ / "run");
  EXPECT_EQ(loss, loss_of(dir_ / "merged"));
  fs::create_directories(dir_ / "plain");  // without weft/config.json, which says it
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    fs::copy(checkpoint("run", 1) / file, dir_ / "plain");
  EXPECT_NE(loss, loss_of(dir_ / "plain"));
  EXPECT_FALSE(nlohmann::json::parse(testing::slurp(dir_ / "merged/config.json")).contains("quantization_config"));
}

TEST_F(AdapterRunSlow, BesideCodesItGoesOnToTheBitAndKeepsTheirKind) {
  const std::string qlora = "adapter.kind=qlora";
  ASSERT_EQ(train("whole", {qlora}).status, 0);
  ASSERT_EQ(train("halves", {qlora, "train.train_iters=2"}).status, 0);
  ASSERT_EQ(train("halves", {qlora, "parallel.zero_stage=3"}).status, 0);
  const auto adapter = [&](const std::string& run) {
    return testing::slurp(checkpoint(run, 4) / "adapter_model.safetensors");
  };
  EXPECT_TRUE(adapter("whole") == adapter("halves"));
  const Finished merged = weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "merged"));
  EXPECT_SAYS(weft({"inspect", checkpoint("whole", 4).string()}).out, "nf4");
  const Finished more = train("more", {"adapter.path=" + checkpoint("whole", 4).string(), "train.train_iters=1"});
  EXPECT_SAYS(more.out + more.err, "was trained beside a base in nf4, and goes on beside one in full");
  ASSERT_EQ(train("int8", {qlora, "adapter.quant_type=int8"}).status, 0);
  EXPECT_FALSE(adapter("whole") == adapter("int8"));
  EXPECT_SAYS(train("whole", {qlora, "adapter.quant_type=int8", "train.train_iters=5"}).err, "adapter.quant_type");
}

TEST_F(AdapterRunSlow, MagnitudesBesideCodesGoOnOnAnotherLayoutAndAreMerged) {
  const std::string qdora = "adapter.kind=qdora";
  ASSERT_EQ(train("whole", {qdora}).status, 0);
  ASSERT_EQ(train("halves", {qdora, "train.train_iters=2"}).status, 0);
  ASSERT_EQ(train("halves", {qdora, "parallel.tp=2", "parallel.dp=2", "parallel.zero_stage=3"}).status, 0);
  const Finished merged = weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "merged"));
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "halves"));
  const auto config = nlohmann::json::parse(testing::slurp(checkpoint("whole", 4) / "adapter_config.json"));
  EXPECT_EQ(config["use_dora"], true);
  const std::string begun = "adapter.path=" + checkpoint("whole", 4).string();
  const Finished more = train("more", {"adapter.kind=dora", begun, "train.train_iters=1"});
  EXPECT_SAYS(more.out + more.err, "adapter.kind=qdora adapter.quant_type=nf4 keeps it so");
  EXPECT_SAYS(train("none", {"adapter.kind=qlora", begun}).err, "adapter.kind=qdora");
}

// Under PEFT's names; on another layout to the rounding of sums.
TEST_F(AdapterRunSlow, OfTheTableAndTheHeadItGoesOnAndIsMerged) {
  const std::string targets = R"(adapter.targets=["embed_tokens", "lm_head", "o_proj"])";
  ASSERT_EQ(train("whole", {targets}).status, 0);
  ASSERT_EQ(train("halves", {targets, "train.train_iters=2"}).status, 0);
  ASSERT_EQ(train("halves", {targets, "parallel.tp=2", "parallel.dp=2", "parallel.zero_stage=3"}).status, 0);
  const Finished merged = weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "merged"));
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "halves"));
  const SafetensorsFile file = SafetensorsFile::open(checkpoint("whole", 4) / "adapter_model.safetensors");
  const auto base = nlohmann::json::parse(testing::slurp(base_ / "config.json"));
  const int64_t v = base["vocab_size"], d = base["hidden_size"];
  const std::string of = "base_model.model.";
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"model.embed_tokens.lora_embedding_A", {2, v}},
                                                                 {"model.embed_tokens.lora_embedding_B", {d, 2}},
                                                                 {"lm_head.lora_A.weight", {2, d}},
                                                                 {"lm_head.lora_B.weight", {v, 2}}}) {
    const SafetensorsEntry* entry = file.find(of + name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->shape, shape) << name;
  }
  EXPECT_EQ(train("more", {targets, "adapter.path=" + checkpoint("whole", 4).string(), "train.train_iters=1"}).status,
            0);
  EXPECT_SAYS(train("dora", {targets, "adapter.kind=dora"}).err, "lengths are not trained yet");
}

class ExpertsRun : public AdapterRun {
 protected:
  ExpertsRun() : AdapterRun("mixtral") {}
};
using ExpertsRunSlow = ExpertsRun;

// Under PEFT's names, on ranks with experts of their own, beside codes too; and what is taken out of the merged model
// is the adapter again.
TEST_F(ExpertsRunSlow, GoesOnOnAnotherLayoutAndIsMergedAndTakenApart) {
  const std::string kind = "adapter.kind=lora";
  ASSERT_EQ(train("whole", {kind}).status, 0);
  ASSERT_EQ(train("halves", {kind, "train.train_iters=2"}).status, 0);
  ASSERT_EQ(train("halves", {kind, "parallel.tp=2", "parallel.dp=2", "parallel.ep=2", "parallel.zero_stage=3"}).status,
            0);
  ASSERT_EQ(train("again", {kind, "train.train_iters=2"}).status, 0);
  ASSERT_EQ(train("again", {kind}).status, 0);
  EXPECT_TRUE(testing::slurp(checkpoint("whole", 4) / "adapter_model.safetensors") ==
              testing::slurp(checkpoint("again", 4) / "adapter_model.safetensors"));
  const Finished merged = weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "merged"));
  EXPECT_EQ(ids_of(dir_ / "whole"), ids_of(dir_ / "halves"));
  EXPECT_NE(ids_of(dir_ / "whole"), ids_of(base_)) << "it learned nothing";
  const Finished apart = weft({"export", (dir_ / "merged").string(), "--lora-of", base_.string(), "--rank", "2",
                               "--out", (dir_ / "found").string()});
  ASSERT_EQ(apart.status, 0) << apart.err;
  const std::string lacks = apart.out.substr(apart.out.find("lacks ") + 6);
  EXPECT_LT(std::stod(lacks), 1) << "per cent, as f32 rounds the merged weights: " << lacks;
  EXPECT_EQ(ids_of(dir_ / "found"), ids_of(dir_ / "merged"));
}

TEST_F(ExpertsRun, BesideCodesIsReadUnderPeftsNames) {
  ASSERT_EQ(train("run", {"adapter.kind=qlora", "train.train_iters=1", R"(adapter.targets=["w1", "w2"])"}).status, 0);
  const auto config = nlohmann::json::parse(testing::slurp(checkpoint("run", 1) / "adapter_config.json"));
  EXPECT_EQ(config["target_modules"], (nlohmann::json{"w1", "w2"}));
  const SafetensorsFile file = SafetensorsFile::open(checkpoint("run", 1) / "adapter_model.safetensors");
  EXPECT_EQ(file.tensors().size(), 4u * 4 * 2 * 2);
  const SafetensorsEntry* b = file.find("base_model.model.model.layers.3.block_sparse_moe.experts.2.w1.lora_B.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{176, 2}));
  ASSERT_EQ(weft({"merge", (dir_ / "run").string(), "--out", (dir_ / "merged").string()}).status, 0);
  EXPECT_EQ(ids_of(dir_ / "run"), ids_of(dir_ / "merged"));
  EXPECT_SAYS(train("none", {"adapter.kind=dora"}).err, "experts.0.w1 is of an expert, whose rows' lengths");
  const std::string corrected = "model.path=" + (kGolden / "deepseek-v3-bias").string();
  EXPECT_SAYS(train("none", {corrected, "moe.bias_update_rate=0.01"}).err, "beside adapters routers are frozen");
}

TEST_F(AdapterRun, IsNotSavedAsItBegan) {
  const Finished f = train("still", {"optimizer.lr=0", "optimizer.min_lr=0", "checkpoint.save_interval=2"});
  EXPECT_EQ(f.status, 89);
  EXPECT_SAYS(f.err, "after 4 steps the adapter is as it began");
  EXPECT_FALSE(fs::exists(checkpoint("still", 2)));
  EXPECT_FALSE(fs::exists(checkpoint("still", 4)));
  const Finished again = train("still", {"checkpoint.save_interval=2"});
  EXPECT_EQ(again.status, 2);
  EXPECT_SAYS(again.err, "choose another run.dir, or remove that one: it has no checkpoint");
  EXPECT_EQ(again.err.find("[[phase]]"), std::string::npos) << again.err;
}

TEST_F(AdapterRun, AnotherBaseIsRefusedByName) {
  ASSERT_EQ(train("run", {"train.train_iters=2", "parallel.dp=2"}).status, 0);
  ids_of(dir_ / "run");  // whatever the ranks that have named it
  const fs::path weights = base_ / "model.safetensors";
  std::string bytes = testing::slurp(weights);
  bytes[bytes.size() - 1] = char(bytes.back() ^ 1);
  testing::spill(weights, bytes);
  const std::string begun = "adapter.path=" + checkpoint("run", 2).string();
  for (const Finished& f :
       {train("run"), train("more", {begun}), weft({"generate", (dir_ / "run").string(), "--prompt-ids", "1"})}) {
    EXPECT_NE(f.status, 0);
    EXPECT_SAYS(f.err, "was trained beside other weights than those in " + base_.string());
  }
  fs::remove_all(base_);
  const Finished gone = weft({"generate", checkpoint("run", 2).string(), "--prompt-ids", "1"});
  EXPECT_NE(gone.status, 0);
  EXPECT_SAYS(gone.err, "\"base_model_name_or_path\"");
}

TEST_F(AdapterRun, WhatCannotRunIsRefusedBeforeItBegins) {
  const auto refusal = [&](const std::vector<std::string>& settings) {
    const Finished f = train("none", settings);
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_FALSE(fs::exists(dir_ / "none"));
    return f.err;
  };
  EXPECT_SAYS(refusal({"model.init=random"}), "checkpoints would be of a base that is nowhere");
  EXPECT_SAYS(refusal({"model.init=random"}),
              "model.init = \"pretrained\", with model.path = a folder that has weights");
  EXPECT_SAYS(refusal({"adapter.targets=q_prj"}), "the model has no module \"q_prj\"");
  EXPECT_SAYS(refusal({"adapter.kind=none"}), "[adapter] has no effect");
  EXPECT_SAYS(refusal({"adapter.quant_type=int8"}), "adapter.quant_type = \"int8\" has no effect");
  EXPECT_SAYS(refusal({"load_in_4bit=true"}), "adapter.kind");
  EXPECT_SAYS(refusal({"use_dora=true"}), "adapter.kind");
  ASSERT_EQ(train("run", {"train.train_iters=1"}).status, 0);
  const std::string folder = checkpoint("run", 1).string();
  EXPECT_SAYS(refusal({"model.path=" + folder}), "name the base model there");
  EXPECT_SAYS(train("run", {"train.train_iters=1", "optimizer.lr=0.125"}).err,
              "to go on from that run's weights there: adapter.path=" + folder + ")");
  EXPECT_SAYS(refusal({"adapter.path=" + (dir_ / "run").string()}),
              "is a run's folder: name one of its checkpoints, as " + folder);
  EXPECT_SAYS(refusal({"adapter.path=" + folder, "adapter.rank=4"}), "to begin with it, adapter.rank=2");
  EXPECT_EQ(train("more", {"adapter.path=" + folder, "train.train_iters=1"}).status, 0);
}

// Two adapters of one base.
class SeveralAdapters : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(base_);
    for (const char* file : {"config.json", "model.safetensors"}) fs::copy(kGolden / "lora-rslora" / file, base_);
    for (const char* name : {"one", "two"}) {
      fs::copy(kGolden / "lora-rslora/adapter_final", dir_ / name);
      set_base(name, base_);
    }
    reverse_numbers(dir_ / "two/adapter_model.safetensors");
  }
  // Another adapter of the same shape.
  static void reverse_numbers(const fs::path& file) {
    std::string bytes = testing::slurp(file);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    std::vector<float> numbers((bytes.size() - 8 - header) / sizeof(float));
    char* const first = bytes.data() + 8 + header;
    std::memcpy(numbers.data(), first, numbers.size() * sizeof(float));
    std::reverse(numbers.begin(), numbers.end());
    std::memcpy(first, numbers.data(), numbers.size() * sizeof(float));
    testing::spill(file, bytes);
  }
  void set_base(const std::string& adapter, const fs::path& base) {
    const fs::path file = dir_ / adapter / "adapter_config.json";
    auto config = nlohmann::json::parse(testing::slurp(file));
    config["base_model_name_or_path"] = base.string();
    testing::spill(file, config.dump());
  }
  Finished merge(std::vector<std::string> adapters, std::vector<std::string> more, const std::string& out) {
    std::vector<std::string> all{"merge"};
    for (const std::string& a : adapters) all.push_back((dir_ / a).string());
    all.insert(all.end(), {"--out", (dir_ / out).string()});
    all.insert(all.end(), more.begin(), more.end());
    return weft(all);
  }
  // All numbers of a model, in f32.
  static std::vector<float> numbers_of(const fs::path& model) {
    std::vector<float> all;
    const auto folder = SafetensorsFolder::open(model);
    for (const auto& t : folder.tensors()) {
      const auto bytes = folder.bytes(t);
      const size_t before = all.size();
      all.resize(before + bytes.size() / sizeof(float));
      std::memcpy(all.data() + before, bytes.data(), bytes.size());
    }
    return all;
  }
  TempDir dir_;
  const fs::path base_ = dir_ / "base";
};

TEST_F(SeveralAdapters, AddUpByTheirWeights) {
  for (const auto& [adapters, weights, out] :
       {std::tuple(std::vector<std::string>{"one"}, "1", "first"),
        std::tuple(std::vector<std::string>{"two"}, "1", "second"),
        std::tuple(std::vector<std::string>{"one", "two"}, "0.7,-0.4", "both")}) {
    const Finished f = merge(adapters, {"--weights", weights}, out);
    ASSERT_EQ(f.status, 0) << f.err;
  }
  const Finished plain = merge({"one"}, {}, "plain");
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_TRUE(testing::slurp(dir_ / "plain/model.safetensors") == testing::slurp(dir_ / "first/model.safetensors"));
  const auto w = numbers_of(base_), first = numbers_of(dir_ / "first"), second = numbers_of(dir_ / "second"),
             both = numbers_of(dir_ / "both");
  ASSERT_EQ(both.size(), w.size());
  double of_second = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double expected = w[i] + 0.7 * (double(first[i]) - w[i]) - 0.4 * (double(second[i]) - w[i]);
    ASSERT_NEAR(both[i], expected, 3e-7) << i;
    of_second = std::max(of_second, std::abs(double(second[i]) - w[i]));
  }
  EXPECT_GT(of_second, 1e-3) << "the second adapter changes nothing";
}

TEST_F(SeveralAdapters, ABaseThatDiffersByOneNumberAnywhereIsAnother) {
  const fs::path other = dir_ / "other";
  fs::copy(base_, other);
  std::string bytes = testing::slurp(other / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto places = nlohmann::json::parse(bytes.substr(8, header))["model.embed_tokens.weight"]["data_offsets"];
  const auto first = places[0].get<size_t>(), end = places[1].get<size_t>();
  ASSERT_GT(end - first, 8192u) << "no middle";
  char& byte = bytes[8 + header + (first + end) / 2];
  byte = char(byte ^ 1);
  testing::spill(other / "model.safetensors", bytes);
  set_base("two", other);
  EXPECT_SAYS(merge({"one", "two"}, {"--weights", "0.5,0.5"}, "both").err, "is not that of");
}

TEST_F(SeveralAdapters, ThatDoNotAddUpAreRefused) {
  const auto refused = [&](const std::vector<std::string>& adapters, const std::vector<std::string>& more,
                           const std::string& part) {
    const Finished f = merge(adapters, more, "out");
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_SAYS(f.err, part);
    EXPECT_FALSE(fs::exists(dir_ / "out") || fs::exists(dir_ / "out.tmp"));
  };
  refused({"one", "two"}, {}, "--weights: 2 adapters need 2 weights, not 0: as 0.5,0.5");
  refused({"one", "two"}, {"--weights", "1"}, "2 adapters need 2 weights, not 1");
  refused({"one"}, {"--weights", "nan"}, "--weights");
  refused({"one", "base"}, {"--weights", "1,1"}, "base: has no adapter_config.json");
  fs::copy(base_, dir_ / "copy");
  set_base("two", dir_ / "copy");
  EXPECT_EQ(merge({"one", "two"}, {"--weights", "1,1"}, "merged").status, 0) << "the same weights elsewhere";
  std::string other = testing::slurp(base_ / "model.safetensors");
  other.back() = char(other.back() ^ 1);
  testing::spill(dir_ / "copy/model.safetensors", other);
  refused({"one", "two"}, {"--weights", "1,1"}, "adapters of one base can be merged");
}

TEST_F(SeveralAdapters, OfKindsThatDoNotAddUpAreRefusedByName) {
  AdapterToMerge one{dir_ / "one", read_hf_config(dir_ / "one")}, two{dir_ / "two", read_hf_config(dir_ / "two")};
  const auto refused = [&](const std::vector<AdapterToMerge>& adapters) {
    return testing::error_of<ConfigError>([&] { require_mergeable(adapters); });
  };
  require_mergeable({one, two});
  two.config.spec.adapter->base_codes = WeightCodes::nf4;
  EXPECT_SAYS(refused({one, two}), "two: it was trained beside a base that was kept otherwise");
  two.config.spec.adapter->base_codes = WeightCodes::none;
  two.config.spec.adapter->trains_score = true;
  EXPECT_SAYS(refused({one, two}), "two: it has a score of its own");
  one.config.spec.adapter->magnitudes = true;
  EXPECT_SAYS(refused({one, two}), "one: its rows have lengths of their own (DoRA)");
  require_mergeable({one});
  one.weight = 0.5;
  EXPECT_SAYS(refused({one}), "which cannot be weighed");
}

}  // namespace
}  // namespace weft
