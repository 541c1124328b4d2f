// Folders in few bits, block by block, beside the whole model at once.
#include "weft/train/gptq_pass.h"

#include <map>

#include "random_models.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/models/gptq.h"
#include "weft/models/hf_weights.h"
#include "weft/train/forward_rank.h"
#include "weft/train/product_watch.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;
using Json = nlohmann::json;

constexpr int64_t kTokens = 48;

Machine two_cores() {
  Recipe recipe;
  recipe.run.backend = BackendKind::cpu;
  recipe.run.threads = 2;
  return machine_for(recipe);
}

std::vector<WholeSample> random_windows(int64_t count, int64_t vocab) {
  std::mt19937_64 random(7);
  std::vector<WholeSample> all;
  for (int64_t w = 0; w < count; ++w) {
    WholeSample& sample = all.emplace_back(kTokens);
    for (size_t i = 0; i < size_t(kTokens); ++i) {
      sample.ids[i] = int32_t(random() % uint64_t(vocab));
      sample.positions[i] = int32_t(i);
      sample.counted[i] = 1;
    }
  }
  return all;
}

Json config_of(const std::string& type, const Json& more) {
  Json json{{"model_type", type},       {"vocab_size", 50},       {"hidden_size", 32},
            {"intermediate_size", 64},  {"num_hidden_layers", 2}, {"num_attention_heads", 2},
            {"num_key_value_heads", 2}, {"head_dim", 16},         {"max_position_embeddings", 64}};
  json.update(more);
  return json;
}

const std::vector<std::pair<std::string, Json>> kModels = {
    {"llama", config_of("llama", Json::object())},
    {"phi3, whose matrices are fused on disk too",
     {{"model_type", "phi3"},
      {"vocab_size", 50},
      {"hidden_size", 32},
      {"intermediate_size", 32},
      {"num_hidden_layers", 2},
      {"num_attention_heads", 2},
      {"num_key_value_heads", 2},
      {"pad_token_id", 0}}},
    {"gpt2, whose matrices are turned on disk",
     {{"model_type", "gpt2"}, {"vocab_size", 50}, {"n_embd", 32}, {"n_layer", 2}, {"n_head", 2}, {"n_positions", 64}}},
    {"qwen2_moe", config_of("qwen2_moe", {{"num_experts", 3},
                                          {"num_experts_per_tok", 2},
                                          {"moe_intermediate_size", 32},
                                          {"shared_expert_intermediate_size", 64}})},
    {"deepseek_v3", config_of("deepseek_v3", {{"num_key_value_heads", 2},
                                              {"head_dim", 32},
                                              {"q_lora_rank", 32},
                                              {"kv_lora_rank", 32},
                                              {"qk_nope_head_dim", 16},
                                              {"qk_rope_head_dim", 16},
                                              {"v_head_dim", 16},
                                              {"n_routed_experts", 4},
                                              {"num_experts_per_tok", 2},
                                              {"n_group", 1},
                                              {"topk_group", 1},
                                              {"moe_intermediate_size", 32},
                                              {"first_k_dense_replace", 1}})}};

std::vector<float> numbers_in(const WeightSource& source, size_t i) {
  const HfTensor& t = source.tensors()[i];
  std::vector<float> numbers(size_t(t.rows * t.cols()));
  source.read(i, {},
              {.data = numbers.data(), .dtype = DType::f32, .rows = t.rows, .cols = t.cols(), .row_stride = t.cols()});
  return numbers;
}

bool is_of_block(const HfTensor& t, int64_t l) { return t.param.starts_with(fmt::format("blocks.{}.", l)); }

// What the matrices of all blocks see in the whole model: by weight and expert.
using Inputs = std::map<std::pair<std::string, int64_t>, ProductWatch::Matrix>;
Inputs inputs_in(const fs::path& model, const std::vector<WholeSample>& windows, const Machine& machine) {
  const ModelSpec spec = read_hf_config(model).spec;
  const StepSpec step = forward_step({}, spec, {kF32, kTokens, 1}, 0);
  const MemoryPlan plan = measure_forward(spec, step, *machine.workspace_model);
  ProductWatch* watch = nullptr;
  RankBackend rank(machine, single_mesh(), plan.workspace + (int64_t{1} << 24),
                   [&](Backend& inner, const ProcessMesh&) {
                     auto made = std::make_unique<ProductWatch>(inner);
                     watch = made.get();
                     return made;
                   });
  PersistentArenas arenas(plan.persistent, machine.memory);
  ParamStore params(step.precision, step.order, rank.mesh, WeightUse::frozen);
  Transformer whole(params, spec, step.model);
  params.allocate_frozen(arenas.params, arenas.transit);
  whole.allocate_constants(arenas.constants, step.precision);
  read_hf_weights(model, spec, params, 1);
  params.masters_changed(rank.backend);
  std::vector<ProductWatch::Matrix> matrices;
  std::vector<std::pair<std::string, int64_t>> names;
  for (const Param* p : params.params()) {
    if (!p->spec().linear) continue;
    const bool experts = p->spec().name.find(".experts.") != std::string::npos;
    for (int64_t e = 0; e < (experts ? spec.experts.count : 1); ++e) {
      matrices.push_back({.weight = p->value, .group = experts ? e : -1});
      matrices.back().sums.resize(size_t(p->shape()[1] * p->shape()[1]));
      names.emplace_back(p->spec().name, e);
    }
  }
  watch->watch(matrices);
  Arena scratch("test", plan.evaluation, machine.memory);
  BatchStaging staging(machine.memory, step.micro_batch_tokens());
  for (const WholeSample& window : windows) {
    std::vector<AttentionSpan> spans;
    ForwardOnly{whole, params, step, rank.backend, rank.mesh, staging}.score(
        [&](MicroBatch& b) {
          set_sequence(b, 0, window, 0);
          add_spans(0, window.positions, 0, spans);
          b.spans = spans;
        },
        scratch);
  }
  rank.end();
  Inputs all;
  for (size_t i = 0; i < names.size(); ++i) all[names[i]] = std::move(matrices[i]);
  return all;
}

struct Written {
  GptqWritten result;
  GptqFolder folder;
};
Written write_folder(const fs::path& model, const HfConfig& config, const GptqFormat& format, const fs::path& to,
                     const std::vector<WholeSample>& windows, int64_t most_bytes = int64_t{1} << 30) {
  fs::create_directories(to);
  const GptqFolder folder(config, format);
  const SafetensorsLayout layout = folder.layout();
  create_files(to, layout);
  SharedWriter writer(to, layout);
  const Machine machine = two_cores();
  const GptqWritten result = write_gptq({.model = model,
                                         .spec = config.spec,
                                         .folder = folder,
                                         .machine = machine,
                                         .windows = windows,
                                         .most_bytes = most_bytes},
                                        writer, [](int64_t, int64_t) {});
  writer.sync();
  testing::spill(to / "config.json", folder.config().dump());
  return {result, folder};
}

// The codes that a matrix must have gotten: calibrated on what the whole model with the blocks before it in codes sees.
std::vector<float> expected(const HfTensor& t, const std::vector<float>& numbers, const Inputs& inputs,
                            const ModelSpec& spec, const GptqFormat& format) {
  const bool experts = t.param.find(".experts.") != std::string::npos;
  const int64_t rows = t.param.ends_with("up.weight") ? 2 * spec.experts.width : spec.width;
  const ProductWatch::Matrix& seen = inputs.at({t.param, experts ? t.first_row / rows : 0});
  const GptqCosts costs =
      seen.num_inputs < kLeastInputs ? equal_gptq_costs(t.cols()) : gptq_costs(seen.sums, t.cols(), format.by_size, 2);
  return numbers_of(gptq_rounded(numbers, costs, format, t.name, 2));
}

void expect_blocks_calibrated_in_turn(const Json& json, const GptqFormat& format) {
  TempDir dir;
  testing::write_random_model(dir / "model", json, 3);
  const HfConfig config = read_hf_config(dir / "model");
  const std::vector<WholeSample> windows = random_windows(8, 50);
  const Written written = write_folder(dir / "model", config, format, dir / "codes", windows);
  const auto before = open_weights(dir / "model", config.spec);
  const auto after = open_weights(dir / "codes", read_hf_config(dir / "codes").spec);
  for (int64_t l = 0; l < 2; ++l) {
    const fs::path here = dir / fmt::format("with-{}", l);
    testing::write_model_folder(here, json, [&](size_t i, const HfTensor& t) {
      return numbers_in(l == 1 && is_of_block(t, 0) && written.folder.in_codes(i) ? *after : *before, i);
    });
    const Inputs inputs = inputs_in(here, windows, two_cores());
    for (size_t i = 0; i < before->tensors().size(); ++i) {
      const HfTensor& t = before->tensors()[i];
      if (!is_of_block(t, l) || !written.folder.in_codes(i)) continue;
      EXPECT_EQ(numbers_in(*after, i), expected(t, numbers_in(*before, i), inputs, config.spec, format)) << t.name;
    }
  }
}

TEST(GptqPass, EachBlockIsCalibratedOnWhatTheBlocksBeforeItBecame) {
  expect_blocks_calibrated_in_turn(kModels[0].second, {.bits = 4, .group_size = 32, .by_size = true});
}

TEST(GptqPass, ExpertsAreCalibratedOnTheTokensThatCameToThem) {
  expect_blocks_calibrated_in_turn(kModels[3].second, {.bits = 4, .group_size = 32});
}

TEST(GptqPassSlow, EveryKindOfModelIsCalibratedBlockByBlock) {
  for (const auto& [name, json] : kModels) {
    SCOPED_TRACE(name);
    expect_blocks_calibrated_in_turn(json, {.bits = 8, .group_size = 0});
  }
}

TEST(GptqPass, CountsMatricesThatSawTooLittle) {
  TempDir dir;
  testing::write_random_model(dir / "model", kModels[3].second, 3);
  const HfConfig config = read_hf_config(dir / "model");
  const Written few =
      write_folder(dir / "model", config, {.bits = 8, .group_size = 32}, dir / "few", random_windows(4, 50));
  // 4 windows of 48 tokens come to 3 experts with 2 places: to some, at most 128.
  EXPECT_EQ(few.result.num_matrices, few.folder.num_in_codes());
  EXPECT_GT(few.result.num_unseen, 0);
  EXPECT_LT(few.result.num_unseen, few.result.num_matrices);
  EXPECT_SAYS(few.result.unseen, ".experts.");
}

// Each matrix in a pass of its own: the first of a block has the same codes, the later ones see what it became.
TEST(GptqPass, WhereSumsDoNotFitTogetherTheLaterMatricesSeeTheEarlierOnes) {
  TempDir dir;
  testing::write_random_model(dir / "model", kModels[0].second, 3);
  const HfConfig config = read_hf_config(dir / "model");
  const std::vector<WholeSample> windows = random_windows(6, 50);
  const GptqFormat format{.bits = 4, .group_size = 32};
  write_folder(dir / "model", config, format, dir / "at-once", windows);
  write_folder(dir / "model", config, format, dir / "one-by-one", windows, 1);
  const auto at_once = open_weights(dir / "at-once", config.spec), one = open_weights(dir / "one-by-one", config.spec);
  for (size_t i = 0; i < one->tensors().size(); ++i) {
    const std::string& name = one->tensors()[i].name;
    const bool same = numbers_in(*one, i) == numbers_in(*at_once, i);
    if (name == "model.layers.0.self_attn.q_proj.weight") {
      EXPECT_TRUE(same);
    } else if (name == "model.layers.0.mlp.down_proj.weight") {
      EXPECT_FALSE(same);
    }
  }
}

TEST(GptqFolder, KeepsWhatOtherProgramsDoNotReadInCodes) {
  const HfConfig llama = parse_hf_config(config_of("llama", {{"num_key_value_heads", 1}}), "config.json");
  const GptqFolder folder(llama, {.bits = 4, .group_size = 32});
  EXPECT_EQ(folder.num_in_codes(), 2 * 4) << "k_proj and v_proj have 16 rows, q_proj has the same input";
  ASSERT_EQ(folder.notes().size(), 1u);
  EXPECT_SAYS(folder.notes()[0], "6 matrices of blocks stay in F16");
  const Json config = folder.config();
  EXPECT_EQ(config["torch_dtype"], "float16");
  EXPECT_EQ(config["quantization_config"]["bits"], 4);
  EXPECT_EQ(config["quantization_config"]["modules_in_block_to_quantize"],
            (Json{{"mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "self_attn.o_proj"}}));
  const HfConfig moe = parse_hf_config(kModels[3].second, "config.json");
  const GptqFolder of_experts(moe, {.bits = 8, .group_size = 32});
  for (size_t i = 0; i < of_experts.tensors().size(); ++i) {
    const HfTensor& t = of_experts.tensors()[i];
    const bool stays = t.name.find("gate.weight") != t.name.npos || !t.param.starts_with("blocks.");
    const bool expert = t.name.find(".experts.") != t.name.npos;
    EXPECT_FALSE(stays && of_experts.in_codes(i)) << t.name;
    EXPECT_TRUE(!expert || of_experts.in_codes(i)) << t.name;
  }
}

TEST(GptqFolder, RefusesWithTheNearestThatWorks) {
  const auto error = [](Json json, const GptqFormat& format) {
    const HfConfig config = parse_hf_config(std::move(json), "config.json");
    return testing::error_of<ConfigError>([&] { GptqFolder(config, format); });
  };
  EXPECT_SAYS(error(kModels[0].second, {.bits = 4, .group_size = 128}), "the nearest that works: --group-size 32");
  EXPECT_SAYS(error(config_of("llama", {{"hidden_size", 64}, {"head_dim", 32}}), {.bits = 4, .group_size = 128}),
              "the nearest that works: --group-size 64");
  EXPECT_SAYS(error(config_of("llama", {{"hidden_size", 24}, {"intermediate_size", 40}, {"head_dim", 12}}), {}),
              "the nearest that works: --bf16");
  EXPECT_SAYS(
      error(config_of("gpt_oss", {{"rope_scaling", nullptr}, {"num_local_experts", 4}, {"num_experts_per_tok", 2}}),
            {}),
      "gpt_oss");
}

TEST(ProductWatch, AddsTheProductsOfInputsOfTheMatricesItWatches) {
  const Machine machine = two_cores();
  Arena workspace("workspace", int64_t{1} << 24, machine.memory);
  const auto backend = machine.make_backend(workspace);
  ProductWatch watch(*backend);
  Arena arena("test", int64_t{1} << 16, machine.memory);
  const auto filled = [&](Shape shape, float first) {
    const Tensor t = arena.alloc(DType::f32, shape);
    for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = first + float(i);
    return t;
  };
  const Tensor x = filled({3, 2}, 1), w = filled({4, 2}, 0), other = filled({4, 2}, 0), y = filled({3, 4}, 0);
  const Tensor offsets = arena.alloc(DType::i32, {3});
  for (int i = 0; i < 3; ++i) offsets.as<int32_t>()[i] = i;  // rows 0 and 1 for two experts of two rows; row 2 for none
  std::vector<ProductWatch::Matrix> matrices{{.weight = w, .group = -1, .sums = std::vector<float>(4)},
                                             {.weight = other, .group = 1, .sums = std::vector<float>(4)}};
  watch.watch(matrices);
  watch.run(Matmul{.a = x, .b = w, .out = y, .trans_b = true});
  watch.run(Matmul{.a = x, .b = w.slice_rows(2, 2), .out = y.slice_cols(0, 2), .trans_b = true});
  watch.run(Matmul{.a = x, .b = other, .out = y, .trans_b = true});
  watch.run(GroupedMatmul{.x = x, .w = other, .offsets = offsets, .out = y.slice_cols(0, 2)});
  watch.watch({});
  watch.run(Matmul{.a = x, .b = w, .out = y, .trans_b = true});
  watch.wait_all();
  EXPECT_EQ(matrices[0].sums, (std::vector<float>{2 * 35, 2 * 44, 2 * 44, 2 * 56})) << "twice, of (1 2; 3 4; 5 6)";
  EXPECT_EQ(matrices[0].num_inputs, 6);
  EXPECT_EQ(matrices[1].sums, (std::vector<float>{9, 12, 12, 16})) << "of (3 4)";
  EXPECT_EQ(matrices[1].num_inputs, 1);
  EXPECT_EQ(y.as<float>()[1], 1 * 2 + 2 * 3) << "and the products themselves are made";
}

}  // namespace
}  // namespace weft
