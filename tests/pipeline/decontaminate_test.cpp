// Documents that contain evaluation texts.
#include "pipeline/pipeline_support.h"
#include "weft/base/json.h"

namespace weft {
namespace {

using testing::Harness;
using testing::spill;
using testing::TempDir;
using testing::texts_of;
using Texts = std::vector<std::string>;

// What is left of these lines beside these evaluation texts, one a line.
struct Decontaminated {
  Decontaminated(const std::string& lines, const std::string& evaluation, const std::string& more = "") {
    spill(dir / "in.txt", lines);
    std::string rows;
    for (size_t at = 0; at < evaluation.size(); at = evaluation.find('\n', at) + 1)
      rows += nlohmann::json{evaluation.substr(at, evaluation.find('\n', at) - at)}.dump() + "\n";
    spill(dir / "eval.jsonl", rows);
    Harness harness;
    harness.run(testing::config_over(
        dir / "out", "[\"" + (dir / "in.txt").string() + "\"]",
        "separator = \"\\n\"\n[decontaminate]\nfiles = [\"" + (dir / "eval.jsonl").string() + "\"]\n" + more));
  }
  Texts texts() const { return texts_of(dir / "out/decontaminate"); }
  nlohmann::json told() const { return open_stage(dir / "out/decontaminate").manifest.at("parameters").at("texts"); }
  TempDir dir;
};

TEST(Decontaminate, LooksForShortTextsWholeAndCountsThoseThatAreTooShort) {
  const std::string lines =
      "so what is the capital of the republic of France they asked\nwhat is the capital of the republic of Spain\n"
      "a b c d e f g h i j k l m n o\nb c d e f g h i j k l m n\nyes\n";
  const std::string evaluation =
      "What is the capital of the republic of France?\nyes\n0 1 2 3 a b c d e f g h i j k l m\n";
  const Decontaminated some(lines, evaluation);
  EXPECT_EQ(some.texts(), (Texts{"what is the capital of the republic of Spain", "b c d e f g h i j k l m n", "yes"}));
  EXPECT_EQ(some.told(), (nlohmann::json{{"looked_for", 2}, {"shorter_than_ngram", 1}, {"too_short", 1}}));
  const Decontaminated all(lines, evaluation, "min_words = 1\n");
  EXPECT_EQ(all.texts(), (Texts{"what is the capital of the republic of Spain", "b c d e f g h i j k l m n"}));
  EXPECT_EQ(all.told().at("too_short"), 0);
}

TEST(Decontaminate, FindsASentenceOfAScriptWithoutSpaces) {
  const std::string question =
      "\u4e2d\u56fd\u7684\u9996\u90fd\u662f\u54ea\u4e2a\u57ce\u5e02\u5462\u4f60\u77e5\u9053\u5417";
  const Decontaminated run("\u6211\u95ee" + question + "\u597d\n\u4f60\u597d\n", question + "\n");
  EXPECT_EQ(run.texts(), (Texts{"\u4f60\u597d"}));
}

TEST(Decontaminate, TellsWhichEvaluationFilesADocumentHasWordsOf) {
  const TempDir dir;
  const std::string common = "a text of eight words that both have",
                    alone = "what only the second of the files asks about";
  spill(dir / "one.txt", common);
  spill(dir / "two.jsonl", nlohmann::json{common, alone}.dump() + "\n");
  spill(dir / "in.txt", "clean\n" + common + "\n" + alone + "\n");
  Harness harness;
  const std::string one = (dir / "one.txt").string(), two = (dir / "two.jsonl").string(),
                    in = (dir / "in.txt").string();
  harness.run(
      testing::config_over(dir / "out", "[\"" + in + "\"]",
                           "separator = \"\\n\"\n[decontaminate]\nfiles = [\"" + one + "\", \"" + two + "\"]\n"));
  const StageResult stage = open_stage(dir / "out/decontaminate");
  EXPECT_EQ(stage.counts.contaminated, (std::map<std::string, int64_t>{{one, 1}, {two, 2}}));
  const std::vector<Sample> samples = samples_of_json(stage.manifest, "");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].detail, "1 sequences of words of evaluation texts: " + one + " 1, " + two + " 1");
  EXPECT_EQ(samples[1].detail, "1 sequences of words of evaluation texts: " + two + " 1");
  EXPECT_EQ(samples[1].file, in);
  EXPECT_EQ(samples[1].row, 3);
}

TEST(Decontaminate, SamplesOfAnOlderManifestHaveNoPlace) {
  const nlohmann::json old = {{"samples", {{{"reason", "r"}, {"detail", "d"}, {"id", "0.1"}, {"text", "t"}}}}};
  const std::vector<Sample> samples = samples_of_json(old, "old");
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].id, "0.1");
  EXPECT_EQ(samples[0].file, "");
}

}  // namespace
}  // namespace weft
