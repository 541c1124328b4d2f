// `weft eval` and `weft generate` on several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/program.h"

namespace weft {
namespace {

using testing::Finished;
using testing::weft;
using RankWords = std::vector<std::string>;

std::string golden_file(const std::string& path) {
  return (std::filesystem::path(testing::kSourceDir) / "tests/golden" / path).string();
}
RankWords words_and(RankWords words, const RankWords& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

RankWords eval_words(const RankWords& settings) {
  return words_and({"eval", golden_file("llama-gqa"), golden_file("llama-gqa/tokens.bin"), "--backend", "ref",
                    "--seq-length", "24", "--max-batches", "2", "--json"},
                   settings);
}
RankWords generate_words(const RankWords& settings) {
  return words_and({"generate", golden_file("llama-gqa"), "--ids", "--prompt-ids", "1,2,3,4,5", "--prompt-ids", "9",
                    "--backend", "ref", "--temperature", "0", "--max-tokens", "6"},
                   settings);
}

TEST(ForwardRanks, SayWhatOneRankSaysAndOnce) {
  const double loss = nlohmann::json::parse(weft(eval_words({})).out)["loss"];
  const Finished text = weft(generate_words({}));
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 2);
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), ','), 10);
  for (const RankWords& layout : {RankWords{"parallel.tp=2"}, RankWords{"parallel.dp=2", "parallel.pp=2"},
                                  RankWords{"parallel.cp=2", "parallel.tp=2"}}) {
    const Finished measured = weft(eval_words(layout));
    ASSERT_EQ(measured.status, 0) << measured.err;
    EXPECT_NEAR(double(nlohmann::json::parse(measured.out)["loss"]), loss, 1e-11 * loss) << layout[0];
    const Finished continued = weft(generate_words(layout));
    EXPECT_EQ(continued.status, 0) << continued.err;
    EXPECT_EQ(continued.out, text.out) << layout[0];
  }
}

// Ranks of dp that share experts on one host's cores have all texts: a single one will do.
TEST(ForwardRanks, ThoseOfOneHostThatShareExpertsGoOnWithAllTexts) {
  const auto words = [](const RankWords& settings) {
    return words_and({"generate", golden_file("qwen2-moe"), "--ids", "--prompt-ids", "1,2,3,4,5,6,7", "--temperature",
                      "0", "--max-tokens", "6"},
                     settings);
  };
  const Finished text = weft(words({}));
  ASSERT_EQ(text.status, 0) << text.err;
  for (const RankWords& layout :
       {RankWords{"parallel.dp=2", "parallel.ep=2"}, RankWords{"parallel.dp=3", "parallel.ep=3"},
        RankWords{"parallel.dp=2", "parallel.cp=2", "parallel.ep=2"},
        RankWords{"parallel.dp=2", "parallel.cp=2", "parallel.cp_comm_type=a2a", "parallel.ep=2"},
        RankWords{"parallel.cp=4", "parallel.cp_comm_type=a2a+p2p", "parallel.cp_a2a_size=2"}}) {
    const Finished continued = weft(words(layout));
    EXPECT_EQ(continued.status, 0) << continued.err;
    EXPECT_EQ(continued.out, text.out) << layout[0] << layout[1];
  }
  EXPECT_SAYS(weft(words({"parallel.dp=2"})).err, "1 prompt can be dealt out to at most as many ranks");
}

// By name, with the nearest that works, whatever the backend is: no device is looked for.
TEST(ForwardRanks, WhatCannotRunIsRefusedByName) {
  const std::vector<std::tuple<RankWords, RankWords, std::string>> cases = {
      {eval_words({}),
       {"parallel.tp=3", "parallel.sequence_parallel=false", "parallel.pp=9"},
       "parallel.pp = 9 cannot run"},
      {eval_words({}),
       {"parallel.cp=5"},
       "parallel.cp = 5 cannot run: windows of 24 tokens are no multiple of 2 x 5; the "
       "nearest that works: --seq-length 20"},
      {eval_words({}), {"parallel.tp=7"}, "parallel.tp = 7 cannot run: 8 query heads and "},
      {eval_words({}),
       {"parallel.recompute=full"},
       "parallel.recompute=full has no effect: `weft eval` takes parallel.dp"},
      {eval_words({}), {"parallel.tp=two"}, "parallel.tp = \"two\": expected a whole number"},
      {generate_words({}),
       {"parallel.dp=3"},
       "2 prompts can be dealt out to at most as many ranks; the nearest that works: "
       "parallel.dp = 2"},
      {generate_words({}), {"parallel.tp=7"}, "parallel.tp = 7 cannot run: 8 query heads and "},
      {generate_words({}), {"parallel.zero_stage=3"}, "parallel.zero_stage=3 has no effect: `weft generate` takes"},
      {generate_words({}), {"parallel.pipeline_schedule=zbv"}, "parallel.pipeline_schedule=zbv has no effect"},
      {generate_words({}), {"train.seed=3"}, "train.seed=3 has no effect"},
      {generate_words({}), {"--prompt-tokens", "5", "--plan"}, "of --prompt, --prompt-ids and --prompt-tokens two are"},
      {generate_words({}), {"--prompt-ids", "1,"}, "--prompt-ids 1,: expected numbers with commas between them"},
      {generate_words({}), {"--prompt-ids", "1,,2"}, "--prompt-ids 1,,2: expected numbers with commas between them"},
      {{"generate", golden_file("llama-gqa"), "--prompt-tokens", "5"}, {}, "has no effect without --plan"},
      {{"generate", golden_file("llama-gqa"), "--plan", "--prompt-tokens", "2x0"}, {}, "--prompt-tokens 2x0: expected"},
  };
  for (const auto& [words, settings, says] : cases) {
    const Finished f = weft(words_and(words, settings));
    EXPECT_NE(f.status, 0) << says;
    EXPECT_SAYS(f.err, says);
    EXPECT_EQ(f.out, "");
  }
}

TEST(ForwardRanks, TextThatDoesNotFitIsRefusedWithItsBytes) {
  const Finished f = weft({"generate", golden_file("llama-gqa"), "--ids", "--prompt-ids", "1", "--max-tokens",
                           "100000000", "--context", "200000000"});
  EXPECT_NE(f.status, 0);
  EXPECT_SAYS(f.err, "no memory to generate: the ranks here take ");
  EXPECT_SAYS(f.err, " pages of 64 tokens of keys and values), but ");
  EXPECT_SAYS(f.err, "keys and values  temporaries  workspace  MiB in all");
}

TEST(ForwardRanks, WindowsThatDoNotFitAreRefusedWithTheirBytes) {
  for (const char* tp : {"parallel.tp=1", "parallel.tp=2"}) {
    const Finished f = weft({"eval", golden_file("llama-gqa"), golden_file("llama-gqa/tokens.bin"), "--seq-length",
                             "16384", "--micro-batch-size", "65536", tp});
    EXPECT_EQ(f.status, 2);
    EXPECT_SAYS(f.err, "no memory to evaluate: the ranks here take ");
    EXPECT_SAYS(f.err, "a smaller --micro-batch-size");
  }
}

// Lines of a plan, as words.
std::vector<RankWords> plan_of_generation(const RankWords& settings) {
  const Finished f = weft(words_and({"generate", golden_file("llama-gqa"), "--plan", "--context", "2000"}, settings));
  EXPECT_EQ(f.status, 0) << f.err;
  std::vector<RankWords> lines;
  std::istringstream text(f.out);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return lines;
}

// Keys and values of 4 layers with 4 key heads of 8 columns in f32, of 2 x 1,024 tokens: 2 MiB.
TEST(ForwardRanks, APlanSaysWhatEachRankNeedsForKeysAndValues) {
  const RankWords texts{"--prompt-tokens", "2x1000", "--max-tokens", "24"};
  const std::vector<RankWords> one = plan_of_generation(texts);
  ASSERT_EQ(one.size(), 3u);
  EXPECT_EQ(one[0], (RankWords{"2", "texts", "of", "up", "to", "1024", "tokens"}));
  ASSERT_EQ(one[2].size(), 10u);
  EXPECT_EQ(one[2][2], "2000");  // portion
  EXPECT_EQ(one[2][3], "32");    // pages
  EXPECT_EQ(one[2][6], "2.00");
  const std::vector<RankWords> two = plan_of_generation(words_and(texts, {"parallel.pp=2", "run.ranks=mpi"}));
  ASSERT_EQ(two.size(), 5u);
  for (const size_t line : {2, 3}) {
    EXPECT_EQ(two[line][2], "250");
    EXPECT_EQ(two[line][6], "1.00");
    EXPECT_LT(std::stod(two[line][7]), std::stod(one[2][7])) << "a portion of a prompt takes less than the whole";
  }
  EXPECT_EQ(two[4][0], "2");
  EXPECT_EQ(plan_of_generation(words_and(texts, {"parallel.pp=2"}))[2][2], "2000") << "stages lend their threads";
  EXPECT_EQ(plan_of_generation({"--prompt-ids", "1,2,3", "--ids", "--max-tokens", "100"})[2][3], "2");
}

}  // namespace
}  // namespace weft
