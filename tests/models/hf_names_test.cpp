#include "weft/models/hf_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "safetensors_files.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/models/hf_config.h"
#include "weft/models/peft.h"
#include "weft/models/transformer.h"

namespace weft {
namespace {

using testing::TempDir;
using testing::TensorToWrite;
using Json = nlohmann::json;

ModelSpec small(Family family) {
  Json json = {{"model_type", model_type_of(family)}, {"vocab_size", 10}, {"hidden_size", 8}, {"num_hidden_layers", 2}};
  if (family == Family::gpt2)
    json.update({{"num_attention_heads", 2}, {"n_positions", 5}});
  else if (family == Family::deepseek_v2 || family == Family::deepseek_v3)
    json.update({{"num_attention_heads", 4},
                 {"intermediate_size", 6},
                 {"q_lora_rank", family == Family::deepseek_v3 ? Json(5) : Json(nullptr)},
                 {"kv_lora_rank", 3},
                 {"qk_nope_head_dim", 2},
                 {"qk_rope_head_dim", 4},
                 {"v_head_dim", 7},
                 {"first_k_dense_replace", 2}});
  else
    json.update({{"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"head_dim", 2}, {"intermediate_size", 6}});
  if (family == Family::gpt_oss)
    json.update({{"rope_scaling", nullptr}, {"num_local_experts", 3}, {"num_experts_per_tok", 2}});
  return parse_hf_config(json, "config.json").spec;
}

// Writes tensors of F32 whose every number is its tensor's position in the list, or of the tensor that it is like.
void write_model(const TempDir& dir, const std::vector<HfTensor>& tensors, const std::map<size_t, size_t>& like = {}) {
  std::vector<TensorToWrite> files;
  for (const HfTensor& t : tensors) {
    const auto same = like.find(files.size());
    const std::vector<float> numbers(size_t(t.rows * t.cols()),
                                     float(same != like.end() ? same->second : files.size()));
    files.push_back({t.name, FileDType::f32, t.shape,
                     std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float))});
  }
  testing::write_safetensors_folder(dir.path(), files);
}

std::string match_error(const ModelSpec& model, const TempDir& dir) {
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  return testing::error_of<FileError>([&] { match_hf_tensors(model, folder); });
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

HfTensor named(const std::vector<HfTensor>& tensors, const std::string& name) {
  for (const HfTensor& t : tensors)
    if (t.name == name) return t;
  throw std::runtime_error("no " + name);
}

TEST(HfTensors, EveryRowOfEveryWeightIsThereOnce) {
  for (const Family family :
       {Family::gpt2, Family::llama, Family::mistral, Family::qwen2, Family::qwen3, Family::mixtral, Family::qwen2_moe,
        Family::qwen3_moe, Family::gpt_oss, Family::phi3, Family::olmo2, Family::gemma2, Family::gemma3}) {
    const bool gemma = family == Family::gemma2 || family == Family::gemma3;
    std::map<std::string, int64_t> next_row;
    for (const HfTensor& t : hf_tensors(small(family))) {
      EXPECT_EQ(t.first_row, next_row[t.param]) << t.name;
      next_row[t.param] = t.first_row + t.rows;
    }
    EXPECT_EQ(next_row.count("head.weight"), family == Family::gpt2 || gemma ? 0u : 1u);
    const bool normed =
        family == Family::qwen3 || family == Family::qwen3_moe || family == Family::gemma3 || family == Family::olmo2;
    EXPECT_EQ(next_row.count("blocks.1.attn.q_norm.weight"), normed ? 1u : 0u);
    for (const ParamSpec& p : all_params(small(family))) EXPECT_EQ(next_row[p.name], p.shape[0]) << p.name;
    EXPECT_EQ(next_row.size(), all_params(small(family)).size()) << model_type_of(family);
    EXPECT_EQ(next_row.count("blocks.1.attn.qkv.bias"), family == Family::gpt2 || family == Family::qwen2 ||
                                                                family == Family::qwen2_moe || family == Family::gpt_oss
                                                            ? 1u
                                                            : 0u);
    EXPECT_EQ(next_row["blocks.0.attn.qkv.weight"], family == Family::gpt2 ? 24 : 16);
    const std::map<Family, int64_t> counts = {{Family::mixtral, 8}, {Family::qwen2_moe, 60}, {Family::qwen3_moe, 128}};
    const int64_t experts = family == Family::gpt_oss ? 3 : counts.contains(family) ? counts.at(family) : 0;
    if (next_row.contains("blocks.1.mlp.router.weight"))
      EXPECT_EQ(next_row["blocks.1.mlp.experts.down.weight"], 8 * experts);
    else
      EXPECT_EQ(next_row["blocks.0.mlp.up.weight"], family == Family::gpt2 ? 32 : 12);
  }
}

TEST(HfTensors, OfLatents) {
  const auto tensors = hf_tensors(small(Family::deepseek_v3));
  const std::string layer = "model.layers.1.self_attn.";
  const std::map<std::string, std::pair<std::string, std::vector<int64_t>>> expected = {
      {"q_a_proj", {"q_down", {5, 8}}},     {"q_a_layernorm", {"q_norm", {5}}},
      {"q_b_proj", {"q", {24, 5}}},         {"kv_a_proj_with_mqa", {"kv_down", {7, 8}}},
      {"kv_a_layernorm", {"kv_norm", {3}}}, {"kv_b_proj", {"kv", {36, 3}}},
      {"o_proj", {"out", {8, 28}}}};
  for (const auto& [name, what] : expected) {
    const HfTensor t = named(tensors, layer + name + ".weight");
    EXPECT_EQ(t.param, "blocks.1.attn." + what.first + ".weight") << name;
    EXPECT_EQ(t.shape, what.second) << name;
  }
  EXPECT_EQ(named(hf_tensors(small(Family::deepseek_v2)), layer + "q_proj.weight").shape,
            (std::vector<int64_t>{24, 8}));
}

TEST(MatchHfTensors, PassesOverModulesThatPredictFurtherTokens) {
  ModelSpec model = small(Family::deepseek_v3);
  TempDir dir;
  auto tensors = hf_tensors(model);
  tensors.push_back({"model.layers.2.eh_proj.weight", {8, 16}, false, "", 0, 8});
  write_model(dir, tensors);
  EXPECT_TRUE(holds(match_error(model, dir), "unexpected (1):\n  \"model.layers.2.eh_proj.weight\""));
  model.unread_layers = 1;
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  const HfMatch match = match_hf_tensors(model, folder);
  ASSERT_EQ(match.notes.size(), 1u);
  EXPECT_TRUE(holds(match.notes[0], "1 tensors of modules that predict further tokens"));
}

TEST(MatchHfTensors, AModuleMayRepeatTheTablesThatItShares) {
  ModelSpec model = small(Family::deepseek_v3);
  const auto plain = hf_tensors(model);
  model.mtp_block = model.layer(1);
  model.mtp_loss_coef = 0.3;
  auto tensors = hf_tensors(model);
  EXPECT_EQ(named(tensors, "model.layers.2.eh_proj.weight").shape, (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(named(tensors, "model.layers.2.self_attn.kv_b_proj.weight").param, "blocks.2.attn.kv.weight");
  for (const char* name : {"enorm", "hnorm", "shared_head.norm"})
    EXPECT_EQ(named(tensors, fmt::format("model.layers.2.{}.weight", name)).shape, std::vector<int64_t>{8}) << name;
  std::set<std::string> params;
  for (const HfTensor& t : tensors) params.insert(t.param);
  for (const ParamSpec& p : all_params(model)) EXPECT_EQ(params.count(p.name), 1u) << p.name;
  EXPECT_EQ(params.size(), all_params(model).size());
  {
    TempDir dir;
    write_model(dir, plain);
    EXPECT_TRUE(holds(match_error(model, dir), "\n  model.layers.2.eh_proj.weight [8, 16]"));
  }
  const auto position = [&](const char* name) {
    return size_t(std::find_if(tensors.begin(), tensors.end(), [&](const HfTensor& t) { return t.name == name; }) -
                  tensors.begin());
  };
  for (const bool equal : {true, false}) {
    auto with_copies = tensors;
    for (const auto& [copy, own] : {std::pair{"model.layers.2.embed_tokens.weight", "model.embed_tokens.weight"},
                                    std::pair{"model.layers.2.shared_head.head.weight", "lm_head.weight"}})
      with_copies.push_back({copy, named(tensors, own).shape, false, "", 0, named(tensors, own).rows});
    TempDir dir;
    std::map<size_t, size_t> like;
    if (equal)
      like = {{tensors.size(), position("model.embed_tokens.weight")},
              {tensors.size() + 1, position("lm_head.weight")}};
    write_model(dir, with_copies, like);
    if (!equal) {
      EXPECT_TRUE(holds(match_error(model, dir), "model.layers.2.embed_tokens.weight, which differs from"));
      continue;
    }
    const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
    EXPECT_EQ(match_hf_tensors(model, folder).notes.size(), 2u);
  }
}

TEST(HfTensors, StackQueriesKeysValuesAndGateUp) {
  const auto tensors = hf_tensors(small(Family::llama));
  EXPECT_EQ(named(tensors, "model.layers.1.self_attn.v_proj.weight").first_row, 12);
  EXPECT_EQ(named(tensors, "model.layers.1.self_attn.v_proj.weight").shape, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(named(tensors, "model.layers.0.mlp.up_proj.weight").first_row, 6);
  EXPECT_EQ(named(tensors, "model.layers.0.mlp.up_proj.weight").param, "blocks.0.mlp.up.weight");
}

TEST(HfTensors, Gpt2MatricesAreTransposedOnDisk) {
  const auto tensors = hf_tensors(small(Family::gpt2));
  const HfTensor t = named(tensors, "transformer.h.1.mlp.c_fc.weight");
  EXPECT_TRUE(t.transposed);
  EXPECT_EQ(t.shape, (std::vector<int64_t>{8, 32}));
  EXPECT_EQ(t.rows, 32);
  EXPECT_EQ(t.cols(), 8);
  EXPECT_TRUE(named(tensors, "transformer.h.1.attn.c_proj.weight").transposed) << "square: its shape does not tell";
  EXPECT_FALSE(named(tensors, "transformer.wte.weight").transposed);
}

TEST(MatchHfTensors, FindsWhatIsWritten) {
  for (const Family family :
       {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3, Family::deepseek_v2, Family::deepseek_v3}) {
    TempDir dir;
    const auto tensors = hf_tensors(small(family));
    write_model(dir, tensors);
    const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
    const HfMatch match = match_hf_tensors(small(family), folder);
    ASSERT_EQ(match.tensors.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const HfTensor& t = match.tensors[i].tensor;
      std::vector<float> numbers(size_t(t.rows * t.cols()));
      read_hf_rows(match.tensors[i], folder, {}, {numbers.data(), DType::f32, t.rows, t.cols(), t.cols()});
      EXPECT_EQ(numbers, std::vector<float>(numbers.size(), float(i))) << t.name;
    }
  }
}

// A tensor of gpt-oss's has all experts, each turned: number i of the tensor is i.
TEST(MatchHfTensors, ExpertsAreSlicesOfOneTensor) {
  TempDir dir;
  const ModelSpec model = small(Family::gpt_oss);
  std::vector<TensorToWrite> files;
  for (const HfTensor& t : hf_tensors(model)) {
    if (t.slice > 0) continue;
    std::vector<float> numbers(size_t(t.rows * t.cols() * t.slices));
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    files.push_back({t.name, FileDType::f32, t.shape,
                     std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float))});
  }
  testing::write_safetensors_folder(dir.path(), files);
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  const HfMatch match = match_hf_tensors(model, folder);
  int found = 0;
  for (const FoundHfTensor& f : match.tensors) {
    if (f.tensor.name != "model.layers.1.mlp.experts.down_proj") continue;
    EXPECT_EQ(f.tensor.first_row, 8 * found) << "[3, 6, 8] on disk";
    float number = 0;
    read_hf_rows(f, folder, {5, 4}, {&number, DType::f32, 1, 1, 1});
    EXPECT_EQ(number, float(48 * found + 8 * 4 + 5)) << "row 5 of the weight is column 5 on disk";
    ++found;
  }
  EXPECT_EQ(found, 3);
}

TEST(MatchHfTensors, WeightsInMxfp4AreRefusedWithWhatToDo) {
  TempDir dir;
  const ModelSpec model = small(Family::gpt_oss);
  auto tensors = hf_tensors(model);
  std::erase_if(tensors, [](const HfTensor& t) { return t.slices > 1; });
  tensors.push_back({"model.layers.0.mlp.experts.gate_up_proj_blocks", {1}, false, "", 0, 1});
  write_model(dir, tensors);
  EXPECT_TRUE(holds(match_error(model, dir), "Mxfp4Config(dequantize=True)")) << match_error(model, dir);
}

TEST(MatchHfTensors, AcceptsNamesWithoutTheirFirstPartAndOldBuffers) {
  TempDir dir;
  auto tensors = hf_tensors(small(Family::gpt2));
  for (HfTensor& t : tensors) t.name = t.name.substr(12);
  tensors.push_back({"h.0.attn.bias", {1, 1, 5, 5}, false, "", 0, 1});
  tensors.push_back({"h.1.attn.masked_bias", {}, false, "", 0, 1});
  write_model(dir, tensors);
  EXPECT_EQ(match_error(small(Family::gpt2), dir), "");
}

TEST(MatchHfTensors, PassesOverInverseFrequencies) {
  TempDir dir;
  auto tensors = hf_tensors(small(Family::llama));
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {1}, false, "", 0, 1});
  write_model(dir, tensors);
  EXPECT_EQ(match_error(small(Family::llama), dir), "");
}

TEST(MatchHfTensors, NamesAllThatIsWrong) {
  TempDir dir;
  auto tensors = hf_tensors(small(Family::llama));
  tensors[0].shape = {8, 10};
  tensors.erase(tensors.begin() + 1);
  tensors.push_back({"model.layers.2.mlp.up_proj.weight", {6, 8}, false, "", 0, 6});
  write_model(dir, tensors);
  const std::string message = match_error(small(Family::llama), dir);
  EXPECT_TRUE(holds(message, "missing (1):\n  model.layers.0.input_layernorm.weight [8]")) << message;
  EXPECT_TRUE(holds(message, "model.embed_tokens.weight [8, 10] instead of [10, 8]")) << message;
  EXPECT_TRUE(holds(message, "unexpected (1):\n  \"model.layers.2.mlp.up_proj.weight\" [6, 8]")) << message;
}

TEST(MatchHfTensors, PassesOverATiedHeadOnlyIfItEqualsTheEmbedding) {
  ModelSpec model = small(Family::llama);
  model.tied_head = true;
  auto tensors = hf_tensors(model);
  {
    TempDir dir;
    tensors.insert(tensors.begin() + 1, {"lm_head.weight", {10, 8}, false, "", 0, 10});
    write_model(dir, tensors);  // ones, but the embedding is zeros
    EXPECT_TRUE(holds(match_error(model, dir), "lm_head.weight, which differs from the embedding"));
  }
  TempDir dir;
  std::vector<TensorToWrite> files;
  for (const HfTensor& t : tensors)
    files.push_back({t.name, FileDType::bf16, t.shape, std::string(size_t(2 * t.rows * t.cols()), '\0')});
  testing::write_safetensors_folder(dir.path(), files);
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  const HfMatch match = match_hf_tensors(model, folder);
  ASSERT_EQ(match.notes.size(), 1u);
  EXPECT_TRUE(holds(match.notes[0], "lm_head.weight is passed over"));
}

// A pair for each matrix of each expert, wherever in a weight it lies: of an expert's matrices all A are one weight.
TEST(AdapterTensors, OfExpertsHavePeftsNames) {
  ModelSpec model = small(Family::llama);
  model.family = Family::mixtral;
  model.experts = {.count = 3, .chosen = 2, .width = 5};
  model.layers = {{}, {.experts = true}};
  model.adapter = adapter_of(model, {.rank = 2, .targets = {"w2", "w3", "w1"}}, "test");
  std::map<std::string, HfTensor> tensors;
  for (const HfTensor& t : adapter_tensors(model)) tensors[t.name] = t;
  EXPECT_EQ(tensors.size(), 2u * 3 * 3);
  const auto expect = [&](const std::string& name, std::vector<int64_t> shape, const std::string& param, int64_t row) {
    const HfTensor& t = tensors["base_model.model.model.layers.1.block_sparse_moe.experts." + name + ".weight"];
    EXPECT_EQ(t.shape, shape) << name;
    EXPECT_EQ(t.param, "blocks.1.mlp.experts." + param + ".weight") << name;
    EXPECT_EQ(t.first_row, row) << name;
  };
  expect("0.w1.lora_A", {2, 8}, "up.lora_A", 0);
  expect("2.w3.lora_A", {2, 8}, "up.lora_A", (2 * 2 + 1) * 2);
  expect("2.w1.lora_B", {5, 2}, "up.0.lora_B", 2 * 5);
  expect("1.w3.lora_B", {5, 2}, "up.1.lora_B", 5);
  expect("1.w2.lora_A", {2, 5}, "down.lora_A", 2);
  expect("2.w2.lora_B", {8, 2}, "down.0.lora_B", 2 * 8);
}

// PEFT writes a table that has an adapter beside that, as the base has it.
TEST(MatchHfTensors, PassesOverTheBasesTableInAnAdapter) {
  ModelSpec model = small(Family::llama);
  model.adapter = adapter_of(model, {.rank = 2, .targets = {"embed_tokens", "lm_head"}}, "test");
  const auto error_beside = [&](const std::string& name, int64_t rows) {
    TempDir dir;
    std::vector<TensorToWrite> files;
    for (const HfTensor& t : adapter_tensors(model))
      files.push_back({t.name, FileDType::f32, t.shape, std::string(size_t(4 * t.rows * t.cols()), '\0')});
    files.push_back({"base_model.model." + name,
                     FileDType::f32,
                     {rows, model.width},
                     std::string(size_t(4 * rows * model.width), 1)});
    testing::write_safetensors(dir / "adapter_model.safetensors", files);
    const SafetensorsFolder file = SafetensorsFolder::of_file(dir / "adapter_model.safetensors");
    return testing::error_of<FileError>([&] { match_adapter_tensors(model, file); });
  };
  const int64_t v = model.vocab_size;
  EXPECT_EQ(error_beside("model.embed_tokens.base_layer.weight", v), "");
  EXPECT_EQ(error_beside("lm_head.base_layer.weight", v), "");
  EXPECT_TRUE(holds(error_beside("lm_head.base_layer.weight", v + 1), "lm_head.base_layer.weight"));
  EXPECT_TRUE(holds(error_beside("model.norm.base_layer.weight", v), "model.norm.base_layer.weight"));
}

// As an adapter that was trained by ppo, and goes on with another objective: not silently, as beside a whole model.
TEST(MatchHfTensors, SaysThatItPassesOverValuesBesideAnAdapter) {
  TempDir dir;
  ModelSpec model = small(Family::llama);
  model.adapter = adapter_of(model, {.rank = 2, .targets = {"q_proj"}}, "test");
  model.adapter->trains_score = model.predicts_values = true;
  std::vector<TensorToWrite> files;
  for (const HfTensor& t : adapter_tensors(model))
    files.push_back({t.name, FileDType::f32, t.shape, std::string(size_t(4 * t.rows * t.cols()), '\0')});
  testing::write_safetensors(dir / "adapter_model.safetensors", files);
  const SafetensorsFolder file = SafetensorsFolder::of_file(dir / "adapter_model.safetensors");
  EXPECT_TRUE(match_adapter_tensors(model, file).notes.empty());
  model.adapter->trains_score = model.predicts_values = false;
  std::vector<std::string> notes = match_adapter_tensors(model, file).notes;
  std::sort(notes.begin(), notes.end());
  EXPECT_EQ(notes, (std::vector<std::string>{
                       "v_head.summary.bias is passed over: only train.objective = \"ppo\" has values",
                       "v_head.summary.weight is passed over: only train.objective = \"ppo\" has values"}));
}

TEST(MatchHfTensors, SaysWhatToDoWhereTheHeadIsMissing) {
  TempDir dir;
  auto tensors = hf_tensors(small(Family::llama));
  tensors.pop_back();
  write_model(dir, tensors);
  EXPECT_TRUE(holds(match_error(small(Family::llama), dir), "set tie_word_embeddings to true"));
}

TEST(MatchHfTensors, AScoreIsNewWhereARunBeginsIt) {
  TempDir text, scored;
  ModelSpec model = small(Family::llama);
  write_model(text, hf_tensors(model));
  model.head = HeadKind::score;
  EXPECT_EQ(named(hf_tensors(model), "score.weight").shape, (std::vector<int64_t>{1, 8}));
  EXPECT_SAYS(match_error(model, text), "score.weight [1, 8]");
  write_model(scored, hf_tensors(model));
  EXPECT_TRUE(match_hf_tensors(model, SafetensorsFolder::open(scored.path())).notes.empty());
  model.begins_score = true;
  const HfMatch match = match_hf_tensors(model, SafetensorsFolder::open(text.path()));
  EXPECT_EQ(match.tensors.size(), hf_tensors(model).size() - 1);
  ASSERT_EQ(match.notes.size(), 2u);
  EXPECT_SAYS(match.notes[0], "score.weight is not there: it begins as random numbers");
  EXPECT_SAYS(match.notes[1], "lm_head.weight is passed over");
}

TEST(MatchHfTensors, RefusesQuantizedWeights) {
  TempDir dir;
  std::vector<TensorToWrite> files;
  for (const HfTensor& t : hf_tensors(small(Family::llama)))
    files.push_back({t.name, FileDType::f8_e4m3, t.shape, std::string(size_t(t.rows * t.cols()), '\0')});
  testing::write_safetensors_folder(dir.path(), files);
  EXPECT_TRUE(holds(match_error(small(Family::llama), dir), "model.norm.weight holds F8_E4M3; weft reads F64"));
}

TEST(MatchHfTensors, RealAndGoldenModelsMatchTheirConfigs) {
  WEFT_NEEDS_SHARED();
  for (const char* model :
       {"golden/gpt2", "golden/llama-gqa", "golden/llama-sft-mask", "golden/llama3-rope-tied", "golden/mistral-window",
        "golden/qwen2-bias", "golden/qwen3-qknorm", "data/models/nanogpt_tiny", "data/models/stories260K"}) {
    const auto path = testing::shared_dir() / model;
    const SafetensorsFolder folder = SafetensorsFolder::open(path);
    const HfMatch match = match_hf_tensors(read_hf_config(path).spec, folder);
    EXPECT_EQ(match.tensors.size(), folder.tensors().size()) << model;
  }
}

}  // namespace
}  // namespace weft
