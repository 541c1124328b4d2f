// GGUF files, by the commands alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "weft/gguf/gguf_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::TempDir;
using testing::weft;

fs::path golden(const std::string& name) { return fs::path(testing::kSourceDir) / "tests/golden" / name; }

double loss_of(const fs::path& model, const fs::path& tokens, const std::vector<std::string>& layout = {}) {
  std::vector<std::string> words{
      "eval", model.string(), tokens.string(), "--seq-length", "16", "--max-batches", "4", "--threads", "1", "--json"};
  words.insert(words.end(), layout.begin(), layout.end());
  const Finished f = weft(words);
  EXPECT_EQ(f.status, 0) << f.err;
  return f.status == 0 ? nlohmann::json::parse(f.out)["loss"].get<double>() : 0;
}

Finished export_to(const fs::path& file, const fs::path& model, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"export", model.string(), "--gguf", file.string()});
  return weft(more);
}

TEST(Export, AFileHasTheLossOfItsFolder) {
  TempDir dir;
  const fs::path model = golden("llama-gqa");
  const Finished f = export_to(dir / "m.gguf", model, {"--type", "F32"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "39 tensors");
  EXPECT_SAYS(f.err, "holds no tokenizer");
  EXPECT_EQ(loss_of(dir / "m.gguf", model / "tokens.bin"), loss_of(model, model / "tokens.bin"));
}

TEST(Export, TellsTheLossAndRefusesToLoseMore) {
  TempDir dir;
  TempDir data;
  const fs::path model = golden("llama-gqa");
  testing::spill(data / "t.bin", testing::slurp(model / "tokens.bin").substr(0, 1100));
  const std::vector<std::string> judged{"--type", "Q4_0", "--data", (data / "t.bin").string(), "--threads", "1"};
  auto strict = judged;
  strict.insert(strict.end(), {"--max-loss", "0"});
  const Finished refused = export_to(dir / "m.gguf", model, strict);
  const bool rises = refused.status != 0;
  if (rises) {
    EXPECT_EQ(refused.status, 2);
    EXPECT_SAYS(refused.err, "more than --max-loss 0: nothing was written");
    EXPECT_TRUE(fs::is_empty(dir.path()));
  }
  auto loose = judged;
  loose.insert(loose.end(), {"--max-loss", "1", "--again"});
  const Finished f = export_to(dir / "m.gguf", model, loose);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, " before, ");
  EXPECT_SAYS(f.out, "perplexity");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1) << "nothing beside it";
}

// llama.cpp has no window there: beyond it the file would be measured as a model that nobody has.
TEST(Export, MeasuresWithinTheContextOfTheFile) {
  TempDir dir;
  const fs::path model = golden("mistral-window");
  testing::spill(dir / "t.bin", testing::slurp(model / "tokens.bin").substr(0, 1100));
  const Finished f = export_to(dir / "m.gguf", model, {"--type", "F32", "--data", (dir / "t.bin").string()});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "0.000000); perplexity");
  EXPECT_SAYS(f.out, "the context is 24 tokens");
}

TEST(Export, RefusesBeforeItWrites) {
  TempDir dir;
  testing::spill(dir / "there.gguf", "mine");
  EXPECT_SAYS(export_to(dir / "there.gguf", golden("llama-gqa")).err, "add --again");
  EXPECT_EQ(testing::slurp(dir / "there.gguf"), "mine");
  EXPECT_SAYS(export_to(dir.path(), golden("llama-gqa"), {"--again"}).err, "is a folder, which is not replaced");
  EXPECT_SAYS(export_to("/dev/null", golden("llama-gqa"), {"--again"}).err, "is no regular file");
  testing::spill(dir / "m.gguf.unchecked", "mine too");
  EXPECT_SAYS(export_to(dir / "m.gguf", golden("llama-gqa"), {"--data", (dir / "there.gguf").string()}).err,
              "m.gguf.unchecked until its loss is known, and that is there already");
  EXPECT_EQ(testing::slurp(dir / "m.gguf.unchecked"), "mine too");
  EXPECT_SAYS(export_to(dir / "m.gguf", golden("deepseek-v2-groups")).err, "the nearest that works");
  EXPECT_SAYS(export_to(dir / "m.gguf", golden("llama-gqa"), {"--max-loss", "1"}).err, "add --data");
  EXPECT_FALSE(fs::exists(dir / "m.gguf"));
}

// Weights and configuration of a golden case in a folder of this name.
fs::path copied(const std::string& name, const fs::path& to) {
  fs::create_directories(to);
  for (const char* file : {"config.json", "model.safetensors"}) fs::copy_file(golden(name) / file, to / file);
  return to;
}

std::string text_in(const fs::path& gguf, const char* key) { return GgufFile(gguf).fields().text(key, ""); }

TEST(Export, AFileIsNamedAsItsModelIs) {
  TempDir dir;
  const fs::path model = copied("llama-gqa", dir / "Llama-3.2-1B"), file = dir / "Tiny-1.5.gguf";
  ASSERT_EQ(export_to(file, model).status, 0);
  EXPECT_EQ(text_in(file, "general.name"), "Llama-3.2-1B");
  ASSERT_EQ(export_to(dir / "m.gguf", file).status, 0);
  EXPECT_EQ(text_in(dir / "m.gguf", "general.name"), "Tiny-1.5");
}

TEST(Export, TheModelsTemplateGoesWithATokenizerThatHasNone) {
  TempDir dir;
  const fs::path model = copied("qwen3-qknorm", dir / "model");
  testing::spill(model / "chat_template.jinja", "{{ messages }}");
  ASSERT_EQ(export_to(dir / "m.gguf", model, {"--tokenizer", "byte"}).status, 0);
  EXPECT_EQ(text_in(dir / "m.gguf", "tokenizer.chat_template"), "{{ messages }}");
  ASSERT_EQ(export_to(dir / "again.gguf", dir / "m.gguf", {"--tokenizer", "byte"}).status, 0);
  EXPECT_EQ(text_in(dir / "again.gguf", "tokenizer.chat_template"), "{{ messages }}");
}

TEST(Export, AFullDiskLeavesNothing) {
  TempDir dir;
  const Finished f = testing::run(
      {.args = {"export", golden("gpt2").string(), "--gguf", (dir / "m.gguf").string()}, .largest_file = 100000});
  EXPECT_EQ(f.status, 1);
  EXPECT_SAYS(f.err, "m.gguf");
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Export, AFileOfThatNameThatIsNoneIsRefused) {
  TempDir dir;
  testing::spill(dir / "m.gguf", "<html>not found</html>");
  EXPECT_SAYS(weft({"generate", (dir / "m.gguf").string(), "--prompt", "a"}).err, "it does not begin with \"GGUF\"");
}

TEST(Export, TellsKeysThatAreNotKnown) {
  TempDir dir;
  const fs::path file = dir / "m.gguf", tokens = golden("olmo2") / "tokens.bin";
  ASSERT_EQ(export_to(file, golden("olmo2")).status, 0);
  std::string bytes = testing::slurp(file);
  const std::string key = "olmo2.attention.value_length";
  bytes.replace(bytes.find(key), key.size(), "olmo2.attention.value_lengtj");
  testing::spill(file, bytes);
  const std::string note = "note: " + file.string() + ": \"olmo2.attention.value_lengtj\" is passed over";
  EXPECT_SAYS(weft({"generate", file.string(), "--prompt-ids", "1,2", "--ids", "--max-tokens", "1"}).err, note);
  EXPECT_SAYS(weft({"eval", file.string(), tokens.string(), "--seq-length", "16", "--max-batches", "1"}).err, note);
  EXPECT_SAYS(export_to(dir / "again.gguf", file).err, note);
}

TEST(Export, InspectSaysWhatIsInAFile) {
  TempDir dir;
  ASSERT_EQ(export_to(dir / "m.gguf", golden("qwen3-qknorm"), {"--type", "Q8_0", "--tokenizer", "byte"}).status, 0);
  const Finished f = weft({"inspect", (dir / "m.gguf").string(), "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  const auto report = nlohmann::json::parse(f.out);
  EXPECT_EQ(report["kind"], "GGUF file");
  EXPECT_EQ(report["family"], "qwen3");
  EXPECT_EQ(report["tokenizer"], "gpt2");
  EXPECT_SAYS(report["tensors"].get<std::string>(), "Q8_0");
}

// Frequencies that are scaled may be rounded in the file.
TEST(ExportSlow, EveryFamilyHasItsLoss) {
  TempDir dir;
  struct Family {
    const char* name;
    double most;
    bool has_experts = false;
  };
  for (const auto& [name, most, has_experts] :
       {Family{"llama-gqa", 0}, Family{"qwen2-bias", 0}, Family{"qwen3-qknorm", 0}, Family{"gpt2", 0},
        Family{"olmo2", 0}, Family{"llama3-rope-tied", 1e-6}, Family{"mixtral", 0, true}, Family{"gpt-oss", 1e-6, true},
        Family{"deepseek-v3-bias", 1e-6, true}}) {
    const fs::path model = golden(name), file = dir / "m.gguf", tokens = model / "tokens.bin";
    const Finished f = export_to(file, model, {"--type", "F32", "--again"});
    ASSERT_EQ(f.status, 0) << name << ": " << f.err;
    const double before = loss_of(model, tokens);
    EXPECT_NEAR(loss_of(file, tokens), before, most) << name;
    EXPECT_NEAR(loss_of(file, tokens, {"parallel.tp=2"}), before, 1e-5) << name << ": ranks read their columns alone";
    if (!has_experts) continue;
    EXPECT_NEAR(loss_of(file, tokens, {"parallel.dp=2", "parallel.ep=2"}), before, 1e-5)
        << name << ": ranks read their experts alone";
  }
}

TEST(ExportSlow, EveryTypeIsNearTheLoss) {
  TempDir dir;
  const fs::path model = golden("llama-gqa");
  const double before = loss_of(model, model / "tokens.bin");
  for (const auto& [type, most] : std::vector<std::pair<std::string, double>>{
           {"F16", 1e-4}, {"BF16", 1e-3}, {"Q8_0", 1e-3}, {"Q6_K", 1e-3}, {"Q4_K", 1e-2}, {"Q4_0", 2e-2}}) {
    ASSERT_EQ(export_to(dir / "m.gguf", model, {"--type", type, "--again"}).status, 0);
    EXPECT_NEAR(loss_of(dir / "m.gguf", model / "tokens.bin"), before, most) << type;
  }
}

// A run goes from a GGUF file to a checkpoint, with the tokenizer of the file.
TEST(ExportSlow, AFileCanBeTrained) {
  TempDir dir;
  ASSERT_EQ(export_to(dir / "m.gguf", golden("llama-gqa"), {"--tokenizer", "byte"}).status, 0);
  testing::spill(dir / "t.txt", std::string(4000, 'a') + "\nSome text to learn.\n");
  testing::spill(dir / "r.toml", "[model]\npath = \"" + (dir / "m.gguf").string() + "\"\n[data]\ntrain = [\"" +
                                     (dir / "t.txt").string() +
                                     "\"]\n[train]\nseq_length = 16\nglobal_batch_size = 4\ntrain_iters = 2\n"
                                     "[optimizer]\nlr = 1e-3\nmin_lr = 1e-3\n[run]\nthreads = 1\ndir = \"" +
                                     (dir / "run").string() + "\"\n");
  const Finished f = weft({"train", (dir / "r.toml").string()});
  ASSERT_EQ(f.status, 0) << f.err;
  const fs::path checkpoint = dir / "run/checkpoints/step-2";
  EXPECT_TRUE(fs::exists(checkpoint / "tokenizer.json"));
  EXPECT_TRUE(fs::exists(checkpoint / "model.safetensors"));
  const Finished text =
      weft({"generate", checkpoint.string(), "--prompt", "aaa", "--max-tokens", "4", "--temperature", "0"});
  EXPECT_EQ(text.status, 0) << text.err;
  ASSERT_EQ(export_to(dir / "after.gguf", dir / "run", {"--type", "F32"}).status, 0);
  const Finished there =
      weft({"generate", (dir / "after.gguf").string(), "--prompt", "aaa", "--max-tokens", "4", "--temperature", "0"});
  EXPECT_EQ(there.status, 0) << there.err;
  EXPECT_EQ(there.out, text.out);
}

TEST(ExportSlow, RealWeightsHaveTheirLoss) {
  WEFT_NEEDS_SHARED();
  TempDir dir;
  const fs::path folder = testing::shared_dir() / "data/models/stories260K";
  const std::string text = testing::slurp(testing::shared_dir() / "data/text/tinystories_sample.txt").substr(0, 20000);
  testing::spill(dir / "t.txt", text);
  const auto loss = [&](const fs::path& model) {
    const Finished f = weft({"eval", model.string(), (dir / "t.txt").string(), "--seq-length", "128", "--tokenizer",
                             (folder / "tok512.model").string(), "--json"});
    EXPECT_EQ(f.status, 0) << f.err;
    return nlohmann::json::parse(f.out)["loss"].get<double>();
  };
  const double before = loss(folder);
  EXPECT_NEAR(loss(folder / "stories260K.gguf"), before, 1e-6);
  for (const auto& [type, most] :
       std::vector<std::pair<std::string, double>>{{"F32", 1e-6}, {"F16", 1e-3}, {"Q8_0", 5e-3}, {"Q4_0", 0.5}}) {
    const Finished f =
        export_to(dir / (type + ".gguf"), folder, {"--type", type, "--tokenizer", (folder / "tok512.model").string()});
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_NEAR(loss(dir / (type + ".gguf")), before, most) << type;
  }
}

}  // namespace
}  // namespace weft
