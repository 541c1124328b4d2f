// Tasks beside the evaluation of a real model by an independent program.
#include <gtest/gtest.h>

#include "apps/program.h"
#include "weft/apps/backends.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/evaluate.h"

namespace weft {
namespace {

class TaskGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    WEFT_NEEDS_SHARED();
    folder_ = testing::shared_dir() / "data/models/stories260K";
    golden_ = nlohmann::json::parse(testing::slurp(folder_ / "golden_eval.json"));
  }
  static std::filesystem::path questions(const std::string& file) { return testing::shared_dir() / "data/eval" / file; }

  std::filesystem::path folder_;
  nlohmann::json golden_;
};

using TaskGoldenSlow = TaskGolden;

// SentencePiece drops the blank that a text begins with, without which no indented program runs.
TEST_F(TaskGolden, AnAnswerKeepsTheBlankThatItBeginsWith) {
  testing::TempDir dir;
  testing::spill(dir / "prompts.jsonl", R"({"prompt": "Once upon a time, there was"})");
  testing::spill(dir / "words.txt", "darn\n");
  const testing::Finished f =
      testing::weft({"eval", folder_.string(), "--tokenizer", (folder_ / "tok512.model").string(), "--tasks",
                     "toxicity=" + (dir / "prompts.jsonl").string(), "--bad-words", (dir / "words.txt").string(),
                     "--max-tokens", "8", "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  const std::string written = nlohmann::json::parse(f.out)["results"][0]["samples"][0]["written"];
  EXPECT_TRUE(written.starts_with(" a little girl")) << written;
}

TEST_F(TaskGoldenSlow, BlimpIsThatOfTheReferenceProgram) {
  const testing::Finished f =
      testing::weft({"eval", folder_.string(), "--tokenizer", (folder_ / "tok512.model").string(), "--tasks",
                     "blimp=" + questions("blimp.tar.gz").string(), "--limit", "100", "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  const nlohmann::json all = nlohmann::json::parse(f.out);
  ASSERT_EQ(all["results"].size(), 67u);
  for (const nlohmann::json& set : all["results"]) {
    const nlohmann::json& golden = golden_["blimp"].at(set["task"].get<std::string>().substr(6) + ".jsonl");
    EXPECT_NEAR(set["metrics"]["acc"]["value"].get<double>(), golden["acc"].get<double>(), 1e-9) << set["task"];
    for (size_t i = 0; i < 10; ++i)
      for (size_t c = 0; c < 2; ++c)
        EXPECT_NEAR(set["samples"][i]["log_probs"][c].get<double>(), golden["first10"][i][c].get<double>(), 1e-3);
  }
}

// The golden numbers are of the choice right behind the query, without what the harness sets between them.
TEST_F(TaskGoldenSlow, PiqaIsThatOfTheReferenceProgram) {
  const auto tokenizer = open_sentencepiece(folder_ / "tok512.model");
  std::vector<ScoredText> texts;
  for (const std::string& line : testing::lines_of(testing::slurp(questions("piqa.jsonl")))) {
    if (texts.size() == 2 * golden_["piqa"].size()) break;
    const nlohmann::json row = nlohmann::json::parse(line);
    std::vector<int32_t> query;
    tokenizer->encode(row["query"].get<std::string>(), query);
    for (const nlohmann::json& choice : row["choices"]) {
      std::vector<int32_t> ids;
      tokenizer->encode(row["query"].get<std::string>() + choice.get<std::string>(), ids);
      const auto scored = int64_t(ids.size() - query.size());
      if (ids.size() > 511) ids.erase(ids.begin(), ids.end() - 511);
      ids.insert(ids.begin(), 1);
      texts.push_back({ids, std::min(scored, int64_t(ids.size()) - 1)});
    }
  }
  Recipe recipe;
  const Machine machine = machine_for(recipe);
  Evaluator evaluator(folder_, {.machine = machine, .precision = kF32, .seq_length = 512, .micro_batch_size = 4});
  const std::vector<double> scores = evaluator.scores(texts).log_probs;
  for (size_t i = 0; i < scores.size(); ++i)
    EXPECT_NEAR(scores[i], golden_["piqa"][i / 2][i % 2].get<double>(), 1e-3) << i;
}

}  // namespace
}  // namespace weft
