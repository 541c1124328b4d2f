#include "weft/recipe/recipe.h"

#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

const char* const kSmall = "[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n";

std::string error_of(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  try {
    check_supported(parse_recipe(toml, "r.toml", overrides));
  } catch (const Error& e) { return e.what(); }
  return "";
}
#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Recipe, PrintsWhatItWouldRead) {
  const Recipe r = parse_recipe(kSmall, "r.toml",
                                {"optimizer.lr=0.1234567890123", "data.weights=[0.5]", "model.hidden_dropout=0.1",
                                 "run.dir=a \"b\"\\c", "optimizer.adam_eps=1e-08", "train.seed=7"});
  EXPECT_EQ(parse_recipe(to_toml(r), "again.toml", {}), r);
  EXPECT_EQ(r.run.dir, "a \"b\"\\c");
}

TEST(Recipe, OverridesTakePlainTextListsAndNumbers) {
  const Recipe r =
      parse_recipe(kSmall, "r.toml", {"data.train=x.bin", "run.backend=ref", "optimizer.lr=1", "data.shuffle=false"});
  EXPECT_EQ(r.data.train, std::vector<std::string>{"x.bin"});
  EXPECT_EQ(r.optimizer.lr, 1);
  EXPECT_FALSE(r.data.shuffle);
  EXPECT_EQ(r.train.precision, "f64");  // what ref computes in
}

TEST(Recipe, AnUnknownKeyNamesTheNearestWithFileAndLine) {
  EXPECT_SAYS(error_of(std::string(kSmall) + "[train]\nsequence_length = 8\n"), "r.toml:6:");
  EXPECT_SAYS(error_of(std::string(kSmall) + "[train]\nseq_lenght = 8\n"), "did you mean train.seq_length?");
  EXPECT_SAYS(error_of(std::string(kSmall) + "[train]\nlr = 8\n"), "did you mean optimizer.lr?");
  EXPECT_SAYS(error_of(kSmall, {"trian.seed=1"}),
              "command line: no recipe key trian.seed (= 1); did you mean train.seed?");
}

TEST(Recipe, EveryProblemIsReportedAtOnce) {
  const std::string e =
      error_of("[train]\nseed = \"x\"\nmicro_batch_size = 0\n[optimizer]\nadam_beta1 = 1.0\nlr = -1\n");
  for (const char* part : {"train.seed = 'x'", "train.micro_batch_size = 0", "optimizer.adam_beta1 = 1.0",
                           "optimizer.lr = -1", "model.path is missing", "data.train is missing", "r.toml:2:"})
    EXPECT_SAYS(e, part);
}

TEST(Recipe, ValuesThatDoNotFitEachOtherAreRefused) {
  EXPECT_SAYS(error_of(kSmall, {"train.global_batch_size=6", "train.micro_batch_size=4"}), "no multiple");
  EXPECT_SAYS(error_of(kSmall, {"optimizer.lr_warmup_iters=2000"}), "exceeds train.train_iters");
  EXPECT_SAYS(error_of(kSmall, {"train.eval_interval=5"}), "needs data.valid");
  EXPECT_SAYS(error_of(kSmall, {"data.weights=[1, 2]"}), "2 values for 1 files");
  EXPECT_SAYS(error_of(kSmall, {"train.train_iters=1.5"}), "expected a whole number");
  EXPECT_SAYS(error_of(kSmall, {"train.precision=f8"}), "one of \"f32\", \"bf16\"");
}

TEST(Recipe, WhatThisVersionCannotRunIsRefusedWithTheNearestThatWorks) {
  for (const char* o :
       {"parallel.tp=2", "parallel.pp=2", "parallel.cp=2", "parallel.ep=2", "run.ranks=mpi", "run.backend=cuda",
        "train.precision=fp16", "parallel.pipeline_schedule=zbv", "train.precision=f64"})
    EXPECT_SAYS(error_of(kSmall, {o}), "the nearest that works");
  EXPECT_SAYS(error_of(kSmall, {"parallel.dp=2"}), "parallel.dp = 2 cannot run");
}

TEST(Recipe, HostileTextIsRefusedWithoutACrash) {
  EXPECT_SAYS(error_of("[model\npath = 1"), "r.toml:1:");
  EXPECT_FALSE(error_of(std::string("a\0b", 3)).empty());
  EXPECT_FALSE(error_of("x = " + std::string(100000, '[')).empty());
  EXPECT_FALSE(error_of("model = 3\ndata = []\n").empty());
  EXPECT_SAYS(error_of(kSmall, {"nonsense"}), "expected section.key=value");
}

TEST(Recipe, DifferencesLeaveOutWhatMayChangeOnResume) {
  const Recipe a = parse_recipe(kSmall, "r.toml", {}),
               b = parse_recipe(kSmall, "r.toml", {"run.threads=2", "optimizer.lr=1.0", "checkpoint.keep_latest=5"});
  EXPECT_EQ(recipe_differences(a, b), std::vector<std::string>{"optimizer.lr: 0.0003 there, 1.0 here"});
}

// docs/formats/recipe.md is written by hand; no key may be missing from it.
TEST(Recipe, EveryKeyIsInTheDocument) {
  const std::string text = testing::slurp(std::filesystem::path(WEFT_SOURCE_DIR) / "docs/formats/recipe.md");
  for (const KeyHelp& key : recipe_help()) EXPECT_NE(text.find("`" + key.key + "`"), std::string::npos) << key.key;
}

}  // namespace
}  // namespace weft
