// weft bench decode, as a process: what it says is read is what the model has, and its figures agree.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/models.h"
#include "apps/program.h"
#include "weft/apps/cpu_machine.h"
#include "weft/apps/decode_floor.h"

namespace weft {
namespace {

using nlohmann::json;
using testing::Finished;
using testing::TempDir;

Finished decode(const std::string& model, std::vector<std::string> more) {
  std::vector<std::string> args{"bench", "decode", model, "--tokens=8", "--iters=1"};
  args.insert(args.end(), more.begin(), more.end());
  return testing::weft(args);
}
json figures_of(const std::string& model, std::vector<std::string> more) {
  more.insert(more.end(), {"--json", "--threads=1", "--prompt=8"});
  const Finished f = decode(model, more);
  EXPECT_EQ(f.status, 0) << f.err;
  return f.status == 0 ? json::parse(f.out) : json();
}
std::string golden(const std::string& name) { return std::string(testing::kSourceDir) + "/tests/golden/" + name; }

void expect_equal(const json& a, double b) { EXPECT_NEAR(a.get<double>(), b, 1e-9 * b); }

// Positions 8 to 14 are fed behind the prompt, and see 9 to 15 rows of keys and values: 12 on average.
constexpr double kSeen = 12;

TEST(BenchDecode, FiguresAgreeWithEachOtherAndWithTheModel) {
  const TempDir dir;
  testing::spill(dir / "config.json", testing::kTwoLayers);
  const json f = figures_of(dir.path().string(), {"--batch=4"});
  const double block = 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 24, head = 257 * 16;
  EXPECT_EQ(f["random_weights"], true);
  for (const char* which : {"one", "batch"}) {
    const json& r = f[which];
    const double texts = which == std::string("one") ? 1 : 4, seconds = r["pass_s"];
    EXPECT_EQ(r["texts"], texts);
    expect_equal(r["weight_bytes"], 4 * (2 * block + head));  // of the table of embeddings only rows are read
    expect_equal(r["cache_bytes"], texts * kSeen * 2 * 2 * 8 * 4);
    expect_equal(r["tokens_per_s"], texts / seconds);
    expect_equal(r["bytes_per_s"], (r["weight_bytes"].get<double>() + r["cache_bytes"].get<double>()) / seconds);
    expect_equal(r["of_bandwidth"], r["bytes_per_s"].get<double>() / f["bandwidth_bytes_per_s"].get<double>());
    expect_equal(r["prompt_tokens_per_s"], texts * 8 / r["prompts_s"].get<double>());
    EXPECT_FALSE(r["kernels"].empty());
  }
  expect_equal(f["batch_over_one"], 4 * f["one"]["pass_s"].get<double>() / f["batch"]["pass_s"].get<double>());
  EXPECT_EQ(f["prefill"]["tokens_per_s"], f["one"]["prompt_tokens_per_s"]);
  expect_equal(f["prefill_over_training_forward"],
               f["prefill"]["flops_per_s"].get<double>() / f["training_forward"]["flops_per_s"].get<double>());
  // 36 pairs of a query and a key that it sees, of two heads; logits of one token, and of all.
  const double blocks = 2 * (8 * 2 * block + 36 * 2 * 4 * 8);
  expect_equal(f["prefill"]["flops"], blocks + 2 * head);
  expect_equal(f["training_forward"]["flops"], blocks + 8 * 2 * head);
}

// GPT-2's head is its table of embeddings; of its table of positions a row is read.
TEST(BenchDecode, ATiedTableIsReadOnceAndInThePrecisionAskedFor) {
  const double weights = 4 * (12 * 64 * 64) + 512 * 64;
  for (const std::string precision : {"f32", "bf16"}) {
    const json f = figures_of(golden("gpt2"), {"--batch=1", "--precision=" + precision});
    const double size = precision == "f32" ? 4 : 2;
    EXPECT_EQ(f["random_weights"], false);
    EXPECT_EQ(f["precision"], precision);
    expect_equal(f["one"]["weight_bytes"], size * weights);
    expect_equal(f["one"]["cache_bytes"], kSeen * 4 * 2 * 64 * size);
    EXPECT_EQ(f["batch"], f["one"]);
  }
}

TEST(BenchDecode, OfExpertsTheChosenOnesAreRead) {
  const json f = figures_of(golden("mixtral"), {"--batch=4"});
  const double others = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 4 * 64) + 512 * 64, expert = 3 * 64 * 176;
  expect_equal(f["one"]["weight_bytes"], 4 * (others + 4 * 2 * expert));
  expect_equal(f["batch"]["weight_bytes"], 4 * (others + 4 * 4 * (1 - 1. / 16) * expert));
}

TEST(BenchDecode, AWindowLimitsTheRowsThatAreSeen) {
  ModelSpec model{.num_layers = 2};
  EXPECT_DOUBLE_EQ(rows_seen(model, 8, 15), kSeen);
  model.layers = {LayerSpec{.window = 10}, LayerSpec{}};
  EXPECT_DOUBLE_EQ(rows_seen(model, 8, 10), (9 + 10 + 9 + 10) / 4.);
  EXPECT_DOUBLE_EQ(rows_seen(model, 10, 12), (10 + 10 + 11 + 12) / 4.);
}

TEST(BenchDecode, TakesARecipeAndSaysWhichKernelsRun) {
  const Finished f = decode(std::string(testing::kSourceDir) + "/bench/llama-2x256.toml",
                            {"model.path=" + golden("llama-gqa"), "run.threads=1", "run.backend=cpu",
                             "train.precision=bf16", "--prompt=8", "--batch=2"});
  ASSERT_EQ(f.status, 0) << f.err;
  for (const char* part :
       {"(random weights)", "bf16", "a prompt ", "training's forward ", "2 prompts ", "one text ", "2 texts ", "GB/s",
        "2 texts at once are written ", "a prompt's bf16 products: ", "one text's bf16 products: ", "all other ops: "})
    EXPECT_SAYS(f.out, part);
  EXPECT_EQ(f.out.find("attention and products of experts: weft's, AMX") != std::string::npos, cpu_has_tiles());
}

TEST(BenchDecode, RefusesByNameWhatItCannotTime) {
  const TempDir dir;
  testing::spill(dir / "config.json", testing::kTwoLayers);  // 64 positions
  const std::string model = dir.path().string(), recipe = std::string(testing::kSourceDir) + "/bench/llama-2x256.toml";
  const std::vector<std::pair<Finished, std::string>> cases{
      {decode(model, {"--prompt=57"}), "--prompt 57 and --tokens 8 are 65 tokens, and the model was made for 64"},
      {decode(model, {"--batch=0"}), "--batch"},
      {decode(model, {"train.seed=1"}), "train.seed=1: a model has no settings"},
      {decode(model, {"--ops"}), "takes none of --layouts, --trace, --ops"},
      {decode(recipe, {"--precision=bf16"}), "leave out the options"},
      {decode(recipe, {"parallel.cp=2"}), "a layout of 2 ranks cannot run"},
      {decode(recipe, {"adapter.kind=lora"}), "adapter.kind: bench decode times a model without one"},
      {testing::weft({"bench", "decode"}), "needs a model or a recipe"},
      {testing::weft({"bench", "step", recipe, "--batch=2"}), "--batch and --prompt are of `weft bench decode`"}};
  for (const auto& [f, why] : cases) {
    EXPECT_SAYS(f.err, why);
    EXPECT_NE(f.status, 0) << why;
    EXPECT_EQ(f.out, "") << why;
  }
  EXPECT_EQ(decode(model, {"--prompt=56", "--batch=1"}).status, 0) << "all that it was made for";
  const Finished unknown = decode((dir / "other").string(), {});
  EXPECT_NE(unknown.status, 0);
  EXPECT_SAYS(unknown.err, "other: neither a model's folder (config.json)");
  testing::spill(dir / "pytorch_model.bin", "");  // weights that cannot be read are no reason for random ones
  const Finished unreadable = decode(model, {});
  EXPECT_NE(unreadable.status, 0);
  EXPECT_EQ(unreadable.out, "");
}

}  // namespace
}  // namespace weft
