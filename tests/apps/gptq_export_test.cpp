// `weft export --gptq` and `--bf16`, by the commands alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "apps/program.h"
#include "random_models.h"
#include "token_files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::TempDir;
using testing::weft;

// A model with random weights over bytes, and two texts of them.
class GptqExport : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::write_random_model(dir_ / "model",
                                {{"model_type", "llama"},
                                 {"vocab_size", 257},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 64},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 2},
                                 {"max_position_embeddings", 32}},
                                5);
    std::string text;
    for (int i = 0; i < 700; ++i) text += char('a' + i * i % 23), text += i % 7 == 0 ? ' ' : char('a' + i % 11);
    testing::spill(dir_ / "calibrate.txt", text);
    testing::spill(dir_ / "held-out.txt", text.substr(300, 200) + " and other text than that");
  }
  Finished run(std::vector<std::string> more, const std::string& out = "out") {
    more.insert(more.begin(), {"export", (dir_ / "model").string(), "--gptq", (dir_ / out).string(), "--tokenizer",
                               "byte", "--threads", "1"});
    return weft(more);
  }
  std::vector<std::string> texts() const {
    return {"--calibrate",  (dir_ / "calibrate.txt").string(),
            "--data",       (dir_ / "held-out.txt").string(),
            "--group-size", "32"};
  }
  Finished run_with_texts(std::vector<std::string> more, const std::string& out = "out") {
    const auto first = texts();
    more.insert(more.begin(), first.begin(), first.end());
    return run(more, out);
  }
  double loss_of(const fs::path& model) {
    const Finished f = weft({"eval", model.string(), (dir_ / "held-out.txt").string(), "--tokenizer", "byte",
                             "--seq-length", "32", "--threads", "1", "--json"});
    EXPECT_EQ(f.status, 0) << f.err;
    return f.status == 0 ? nlohmann::json::parse(f.out)["loss"].get<double>() : 0;
  }
  TempDir dir_;
};

TEST_F(GptqExport, TellsWhatIsLostAndWritesAFolderThatWeftReads) {
  const Finished f = run_with_texts({"--bits", "8"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "; perplexity ");
  EXPECT_SAYS(f.out, "out: 14 matrices in 8 bits, calibrated on 43 windows of 32 tokens");
  EXPECT_SAYS(f.out, fmt::format("loss {:.6f} before, {:.6f} after", loss_of(dir_ / "model"), loss_of(dir_ / "out")));
  const auto config = nlohmann::json::parse(testing::slurp(dir_ / "out/config.json"));
  EXPECT_EQ(config["quantization_config"]["bits"], 8);
  EXPECT_FALSE(config["quantization_config"].contains("modules_in_block_to_quantize")) << "all of them are in codes";
  const Finished text =
      weft({"generate", (dir_ / "out").string(), "--prompt-ids", "1,2", "--ids", "--max-tokens", "2"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_SAYS(text.err, "weights in codes are read as the numbers that they stand for");
}

TEST_F(GptqExport, SaysWhereTheTextThatIsMeasuredIsTheCalibratedOne) {
  const std::string note = "calibrate.txt is calibrated on and measured on: other text may lose more";
  EXPECT_EQ(run_with_texts({"--bits", "8"}).out.find("is calibrated on and"), std::string::npos);
  const std::string text = (dir_ / "calibrate.txt").string(), same = (dir_ / "." / "calibrate.txt").string();
  EXPECT_SAYS(
      run({"--calibrate", text, "--data", same, "--group-size", "32", "--bits", "8", "--max-loss", "9"}, "own").out,
      note);
}

// On text that the model has written, it loses by any change.
TEST_F(GptqExport, LosesNoMoreThanALimitUnlessItIsAskedTo) {
  const Finished own = weft({"generate", (dir_ / "model").string(), "--prompt-ids", "1,2,3", "--ids", "--max-tokens",
                             "29", "--temperature", "0"});
  ASSERT_EQ(own.status, 0) << own.err;
  std::vector<int32_t> ids;
  std::istringstream words(std::regex_replace(own.out, std::regex(","), " "));
  for (int32_t id; words >> id;) ids.push_back(id);
  ASSERT_GE(ids.size(), 29u) << own.out;
  testing::write_raw_tokens(dir_ / "own.bin", ids, "uint16");
  const std::vector<std::string> asked{
      "--calibrate", (dir_ / "calibrate.txt").string(), "--data", (dir_ / "own.bin").string(), "--group-size", "32"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), asked.begin(), asked.end());
    return run(more);
  };
  const Finished refused = with({"--max-loss", "0"});
  ASSERT_EQ(refused.status, 2) << refused.out;
  EXPECT_SAYS(refused.err, "--bits 4: the loss rises by");
  EXPECT_SAYS(refused.err, "more than --max-loss 0: nothing was written; take --bits 8");
  EXPECT_FALSE(fs::exists(dir_ / "out") || fs::exists(dir_ / "out.tmp"));
  EXPECT_SAYS(with({}).err, "more than --max-loss 0.1: nothing was written");
  EXPECT_EQ(with({"--max-loss", "100"}).status, 0);
  EXPECT_TRUE(fs::exists(dir_ / "out/model.safetensors"));
}

TEST_F(GptqExport, RefusesBeforeItComputes) {
  EXPECT_SAYS(run({}).err, "add --calibrate FILES");
  EXPECT_SAYS(run({"--calibrate", (dir_ / "calibrate.txt").string()}).err, "add --data FILES");
  EXPECT_SAYS(run_with_texts({"--bits", "3"}).err, "--bits");
  const auto bf16 = [&](const std::string& option, const std::string& value) {
    return weft({"export", (dir_ / "model").string(), "--bf16", (dir_ / "out").string(), option, value}).err;
  };
  EXPECT_SAYS(bf16("--tokenizer", "nosuchfile"), "--tokenizer nosuchfile: has no effect on --bf16 without --data");
  EXPECT_SAYS(bf16("--threads", "3"), "--threads 3: has no effect on --bf16 without --data");
  EXPECT_SAYS(run_with_texts({"--gguf", "m.gguf"}).err, "excludes");
  EXPECT_SAYS(run_with_texts({}, "model").err, "is there already: name a new folder");
  testing::spill(dir_ / "short.txt", "few");
  EXPECT_SAYS(run({"--calibrate", (dir_ / "short.txt").string(), "--data", (dir_ / "held-out.txt").string(),
                   "--group-size", "32"})
                  .err,
              "shorter than a window of 32 tokens");
  EXPECT_FALSE(fs::exists(dir_ / "out") || fs::exists(dir_ / "out.tmp"));
}

TEST_F(GptqExport, AFolderInBf16HasTheNumbersRounded) {
  const Finished f = weft({"export", (dir_ / "model").string(), "--bf16", (dir_ / "out").string(), "--data",
                           (dir_ / "held-out.txt").string(), "--tokenizer", "byte", "--threads", "1"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "21 tensors in bf16");
  EXPECT_SAYS(f.out, "perplexity");
  EXPECT_EQ(nlohmann::json::parse(testing::slurp(dir_ / "out/config.json"))["torch_dtype"], "bfloat16");
  const auto before = SafetensorsFolder::open(dir_ / "model"), after = SafetensorsFolder::open(dir_ / "out");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& t : before.tensors()) {
    const auto* there = after.find(t.name());
    ASSERT_NE(there, nullptr) << t.name();
    EXPECT_EQ(there->entry->dtype, FileDType::bf16);
    const int64_t n = t.entry->num_elements();
    std::vector<bf16> expected(static_cast<size_t>(n)), got(static_cast<size_t>(n));
    const auto whole = [&](const SafetensorsFolder& folder, const SafetensorsFolder::Tensor& tensor, bf16* to) {
      const FileMatrix m = folder.matrix(tensor);
      read_matrix(m, {}, {.data = to, .dtype = DType::bf16, .rows = m.rows, .cols = m.cols, .row_stride = m.cols});
    };
    whole(before, t, expected.data());
    whole(after, *there, got.data());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin(), [](bf16 a, bf16 b) {
      return a.bits == b.bits;
    })) << t.name();
  }
}

class GptqExportSlow : public GptqExport {};

// What is trained from such a folder is a model in full.
TEST_F(GptqExportSlow, AFolderCanBeTrainedAndMerged) {
  ASSERT_EQ(run_with_texts({"--max-loss", "10"}).status, 0);
  const auto train = [&](const std::string& name, std::vector<std::string> more) {
    testing::spill(dir_ / "r.toml",
                   "[model]\npath = \"" + (dir_ / "out").string() + "\"\n[data]\ntokenizer = \"byte\"\ntrain = [\"" +
                       (dir_ / "calibrate.txt").string() +
                       "\"]\n[train]\nseq_length = 16\nglobal_batch_size = 4\ntrain_iters = 2\n[optimizer]\nlr = 1e-3\n"
                       "min_lr = 1e-3\n[checkpoint]\nsave_interval = 1\n[run]\nthreads = 1\ndir = \"" +
                       (dir_ / name).string() + "\"\n");
    more.insert(more.begin(), {"train", (dir_ / "r.toml").string()});
    const Finished f = weft(more);
    EXPECT_EQ(f.status, 0) << f.err;
  };
  train("full", {"train.train_iters=2"});
  const fs::path checkpoint = dir_ / "full/checkpoints/step-2";
  EXPECT_FALSE(nlohmann::json::parse(testing::slurp(checkpoint / "config.json")).contains("quantization_config"));
  EXPECT_GT(loss_of(checkpoint), 0);
  train("adapter", {"adapter.kind=lora", "adapter.rank=2"});
  const Finished merged = weft({"merge", (dir_ / "adapter").string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_NEAR(loss_of(dir_ / "merged"), loss_of(dir_ / "adapter"), 1e-5);
  const Finished gguf =
      weft({"export", (dir_ / "out").string(), "--gguf", (dir_ / "m.gguf").string(), "--type", "F32"});
  ASSERT_EQ(gguf.status, 0) << gguf.err;
  EXPECT_NEAR(loss_of(dir_ / "m.gguf"), loss_of(dir_ / "out"), 1e-6);
}

TEST_F(GptqExportSlow, RealWeightsLoseLittle) {
  WEFT_NEEDS_SHARED();
  const fs::path folder = testing::shared_dir() / "data/models/stories260K";
  const std::string text = testing::slurp(testing::shared_dir() / "data/text/tinystories_sample.txt");
  testing::spill(dir_ / "c.txt", text.substr(0, 60000));
  testing::spill(dir_ / "h.txt", text.substr(60000, 20000));
  for (const auto& [bits, most] : std::vector<std::pair<std::string, std::string>>{{"8", "0.001"}, {"4", "0.06"}}) {
    const Finished f =
        weft({"export", folder.string(), "--gptq", (dir_ / bits).string(), "--bits", bits, "--group-size", "64",
              "--calibrate", (dir_ / "c.txt").string(), "--data", (dir_ / "h.txt").string(), "--tokenizer",
              (folder / "tok512.model").string(), "--max-loss", most});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_SAYS(f.out, "15 matrices of blocks stay in F16") << "their inner width is 172";
    std::cout << f.out;
  }
}

}  // namespace
}  // namespace weft
