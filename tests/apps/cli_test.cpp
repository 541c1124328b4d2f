// The command line, as a process: help, refusals, exit statuses, inspect.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "safetensors_files.h"
#include "token_files.h"
#include "weft/data/token_source.h"

namespace weft {
namespace {

using testing::Finished;
using testing::spill;
using testing::TempDir;
using testing::weft;

TEST(CommandLine, HelpNamesEverySubcommandAndSucceeds) {
  const Finished all = weft({"--help"});
  EXPECT_EQ(all.status, 0);
  for (const char* name : {"train", "plan", "verify", "generate", "eval", "inspect", "data", "bench", "completion"}) {
    EXPECT_SAYS(all.out, name);
    const Finished one = weft({name, "--help"});
    EXPECT_EQ(one.status, 0) << name;
    EXPECT_SAYS(one.out, std::string("weft ") + name);
  }
  EXPECT_SAYS(weft({"--version"}).out, "weft ");
}

TEST(CommandLine, HelpOfRecipesListsKeysWithTheirChoices) {
  const Finished f = weft({"train", "--help-recipe"});
  EXPECT_EQ(f.status, 0);
  EXPECT_SAYS(f.out, "optimizer.lr_decay_style");
  EXPECT_SAYS(f.out, "cosine");
}

TEST(CommandLine, WhatIsUnknownIsRefusedWithTheNearestName) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"trian", "r.toml"}, "did you mean train?"},
      {{"inspect", "x", "--jsno"}, "did you mean --json?"},
      {{"plan", "r", "--shedule"}, "did you mean --schedule?"},
      {{}, "--help"},
      {{"eval"}, "required"}};
  for (const auto& [args, said] : cases) {
    const Finished f = weft(args);
    EXPECT_EQ(f.status, 2) << said;
    EXPECT_SAYS(f.err, said);
    EXPECT_EQ(f.out, "");
  }
}

TEST(CommandLine, ValuesOutsideTheChoicesAreRefused) {
  for (const auto& args : std::vector<std::vector<std::string>>{{"generate", "m", "--precision", "f8"},
                                                                {"generate", "m", "--backend", "gpu"},
                                                                {"generate", "m", "--top-p", "2"},
                                                                {"generate", "m", "--seed", "-1"},
                                                                {"eval", "m", "d", "--micro-batch-size", "0"},
                                                                {"inspect", "x", "--dtype", "int7"},
                                                                {"completion", "tcsh"},
                                                                {"bench", "nothing", "r.toml"}}) {
    EXPECT_EQ(weft(args).status, 2) << args[0] << " " << args.back();
  }
}

TEST(CommandLine, RecipeErrorsNameKeyFileAndLineAndHaveStatusTwo) {
  const TempDir dir;
  const std::string recipe = (dir / "r.toml").string();
  spill(recipe, "[model]\npath = \"m\"\n[train]\nseq_lenght = 8\n[data]\ntrain = [\"a.txt\"]\n");
  for (const char* command : {"train", "plan", "verify"}) {
    const Finished f = weft({command, recipe, "optimizer.lr=-1"});
    EXPECT_EQ(f.status, 2);
    EXPECT_SAYS(f.err, "r.toml:4:");
    EXPECT_SAYS(f.err, "did you mean train.seq_length?");
    EXPECT_SAYS(f.err, "optimizer.lr = -1");
  }
  EXPECT_EQ(weft({"train"}).status, 2);
  EXPECT_EQ(weft({"plan"}).status, 2);
  EXPECT_EQ(weft({"verify"}).status, 2);
}

TEST(CommandLine, FilesThatAreNotThereHaveStatusOneAndAreNamed) {
  for (const auto& args : std::vector<std::vector<std::string>>{{"train", "/nowhere/r.toml"},
                                                                {"plan", "/nowhere/r.toml"},
                                                                {"inspect", "/nowhere/r.toml"},
                                                                {"generate", "/nowhere/r.toml", "--prompt", "a"},
                                                                {"eval", "/nowhere/r.toml", "x.txt"}}) {
    const Finished f = weft(args);
    EXPECT_EQ(f.status, 1) << args[0];
    EXPECT_SAYS(f.err, "/nowhere/r.toml");
  }
}

// --- inspect ---

nlohmann::json inspected(const std::filesystem::path& path, std::vector<std::string> more = {}) {
  std::vector<std::string> args{"inspect", path.string(), "--json"};
  args.insert(args.end(), more.begin(), more.end());
  const Finished f = weft(args);
  EXPECT_EQ(f.status, 0) << f.err;
  return f.status == 0 ? nlohmann::json::parse(f.out) : nlohmann::json();
}

void write_ones(const std::filesystem::path& file, const std::string& name, std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  const std::vector<float> ones(size_t(count), 1.0f);
  const std::string bytes(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float));
  testing::write_safetensors(file, {{.name = name, .dtype = FileDType::f32, .shape = shape, .bytes = bytes}},
                             {{"made", "here"}});
}

TEST(Inspect, TellsTheTensorsOfASafetensorsFile) {
  const TempDir dir;
  write_ones(dir / "a.safetensors", "w", {2, 3});
  const auto json = inspected(dir / "a.safetensors");
  EXPECT_EQ(json["numbers"], 6);
  EXPECT_EQ(json["metadata"]["made"], "here");
  const nlohmann::json row{{"name", "w"}, {"dtype", "F32"}, {"shape", {2, 3}}, {"bytes", 24}};
  EXPECT_EQ(json["tensors"], nlohmann::json::array({row}));
  EXPECT_SAYS(weft({"inspect", (dir / "a.safetensors").string()}).out, "w     F32    [2, 3]     24");
}

TEST(Inspect, ShowsControlCharactersOfNamesInsteadOfSendingThem) {
  const TempDir dir;
  write_ones(dir / "a.safetensors", "\033[2J", {1});
  const Finished f = weft({"inspect", (dir / "a.safetensors").string()});
  EXPECT_EQ(f.status, 0);
  EXPECT_EQ(f.out.find('\033'), std::string::npos) << f.out;
}

TEST(Inspect, CountsTokensDocumentsAndTheRangeOfIds) {
  const TempDir dir;
  const std::vector<int32_t> ids{5, 7, 65535, 2};
  testing::write_raw_tokens(dir / "raw.bin", ids, "uint16");
  auto json = inspected(dir / "raw.bin");
  EXPECT_EQ(json["tokens"], 4);
  EXPECT_EQ(json["smallest_id"], 2);
  EXPECT_EQ(json["largest_id"], 65535);
  EXPECT_EQ(json["first_ids"], ids);
  EXPECT_EQ(inspected(dir / "raw.bin", {"--dtype", "uint32"})["tokens"], 2);

  testing::write_megatron_tokens(dir / "pair", {{1, 2, 3}, {4}}, "int32");
  for (const char* name : {"pair.bin", "pair.idx", "pair"}) {
    json = inspected(dir / name);
    EXPECT_EQ(json["tokens"], 4);
    EXPECT_EQ(json["documents"], 2);
    EXPECT_EQ(json["token_bytes"], 4);
    EXPECT_EQ(json["largest_id"], 4);
  }
}

TEST(Inspect, TellsAModelFromItsConfigAlone) {
  const auto json = inspected(std::filesystem::path(testing::kSourceDir) / "bench/models/gpt2-124m");
  EXPECT_EQ(json["family"], "gpt2");
  EXPECT_EQ(json["parameters"], 124439808);  // as its authors count
  EXPECT_SAYS(json["weights"].get<std::string>(), "none");
}

TEST(Inspect, RefusesWhatIsDamagedOrUnknownWithStatusOne) {
  const TempDir dir;
  spill(dir / "short.safetensors", "1234");
  spill(dir / "long.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  spill(dir / "odd.bin", "abc");
  spill(dir / "empty.bin", "");
  spill(dir / "alone.idx", "MMIDIDX");
  spill(dir / "text.txt", "some text");
  spill(dir / "broken.json", "{\"model_type\": \"llama\", \"hidden_size\": -1");
  spill(dir / "pair.bin", "abcd");
  spill(dir / "pair.idx", std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0\4\xff\xff\xff\xff\xff\xff\xff\x7f", 26));
  std::filesystem::create_directories(dir / "folder");
  std::filesystem::create_directories(dir / "model");
  spill(dir / "model/config.json", std::string(100000, '['));
  std::filesystem::create_directories(dir / "checkpoint/weft");
  spill(dir / "checkpoint/weft/state.json", "{}");
  std::filesystem::create_directories(dir / "run/checkpoints");
  spill(dir / "run/recipe.toml", "[model]\npath=\"m\"\n[data]\ntrain=\"x\"\n");
  spill(dir / "run/metrics.jsonl", "nonsense\n{\"step\": 1}\n");
  for (const char* name : {"short.safetensors", "long.safetensors", "odd.bin", "empty.bin", "alone.idx", "text.txt",
                           "broken.json", "pair.bin", "folder", "model", "checkpoint"}) {
    const Finished f = weft({"inspect", (dir / name).string()});
    EXPECT_EQ(f.status, 1) << name << ": " << f.err;
    EXPECT_SAYS(f.err, (dir / name).replace_extension().string());
    EXPECT_EQ(f.out, "") << name;
  }
  const Finished run = weft({"inspect", (dir / "run").string()});  // goes on without a damaged record, and so does this
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_SAYS(run.out, "damaged lines  1");
}

TEST(Inspect, JudgesTheSharedConformanceFilesAsTheReferenceDoes) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/conformance/safetensors";
  for (const auto& one : nlohmann::json::parse(testing::slurp(folder / "cases.json"))) {
    const std::string file = one["file"], expected = one["expected"];
    const Finished f = weft({"inspect", (folder / file).string()});
    EXPECT_EQ(f.status, expected == "ok" ? 0 : 1) << file << ": " << f.err;
    const size_t colon = expected.find(':');
    if (colon != std::string::npos && expected[colon + 1] != '(') { EXPECT_SAYS(f.err, expected.substr(colon + 1)); }
  }
}

}  // namespace
}  // namespace weft
