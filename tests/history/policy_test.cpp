// Policies, what models were made from, and model cards.
#include "weft/history/policy.h"

#include <gtest/gtest.h>

#include "history/run_folders.h"
#include "weft/base/error.h"
#include "weft/history/model_card.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

const std::vector<LicensedPart> kBooks = {{.what = "data books.bin", .names = {"c0ffee", "v1"}, .licence = "cc0-1.0"}};
const std::vector<LicensedPart> kPages = {{.what = "data pages.bin", .names = {"f00d"}, .licence = ""}};

TEST(Policies, LetGoWhatTheyAllow) {
  const Policy p = parse_policy("licences = [\"CC0-1.0\"]\nrequire = [\"piqa.acc >= 0.6\"]\nreleased_by = [\"ada\"]\n",
                                "policy.toml");
  EXPECT_TRUE(objections(p, kBooks, {{"piqa.acc", 0.6}}, "ada").empty());
  EXPECT_TRUE(objections(parse_policy("", "policy.toml"), kPages, {}, "eve").empty());
}

TEST(Policies, SayEachReason) {
  const Policy p =
      parse_policy("licences = [\"mit\"]\nrequire = [\"piqa.acc >= 0.6\", \"arc.acc > 0\"]\nreleased_by = [\"ada\"]\n",
                   "policy.toml");
  const std::vector<std::string> reasons = objections(p, kBooks, {{"piqa.acc", 0.5}}, "eve");
  ASSERT_EQ(reasons.size(), 4u);
  EXPECT_EQ(reasons[0], "eve may not release: released_by is ada");
  EXPECT_EQ(reasons[1], "data books.bin: its licence cc0-1.0 is none of mit");
  EXPECT_SAYS(reasons[2], "piqa.acc >= 0.6 is required, and it is 0.5");
  EXPECT_SAYS(reasons[3], "arc.acc > 0 is required, and there is no such result");
}

TEST(Policies, RefuseALicenceThatNobodyKnowsUntilTheySayIt) {
  EXPECT_SAYS(objections(parse_policy("licences = [\"mit\"]\n", "p"), kPages, {}, "ada").at(0), "is not known");
  const char* said = "licences = [\"mit\"]\n[[licence]]\nof = \"f00d\"\nis = \"MIT\"\n";
  EXPECT_TRUE(objections(parse_policy(said, "p"), kPages, {}, "ada").empty());
  EXPECT_SAYS(objections(parse_policy("licences = []\n", "p"), {}, {}, "ada").at(0), "nothing says");
}

TEST(Policies, OfSeveralLicencesEachIsAllowed) {
  std::vector<LicensedPart> parts = kBooks;
  parts[0].licence = "cc0-1.0, gpl-3.0";
  const std::vector<std::string> reasons =
      objections(parse_policy("licences = [\"cc0-1.0\"]\n", "p"), parts, {}, "ada");
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_SAYS(reasons[0], "gpl-3.0 is none of");
}

TEST(Policies, AreRefusedByLineWhereTheyAreWrong) {
  EXPECT_SAYS(error_of<ConfigError>([] { parse_policy("license = [\"mit\"]\n", "p.toml"); }), "p.toml:1:");
  EXPECT_SAYS(error_of<ConfigError>([] { parse_policy("require = [\"good\"]\n", "p.toml"); }), "\"good\": expected");
  EXPECT_SAYS(error_of<ConfigError>([] { parse_policy("[[licence]]\nof = \"x\"\n", "p.toml"); }), "is is missing");
}

TEST(ModelOrigins, HaveTheLicenceOfAModelsCard) {
  testing::TempDir dir;
  testing::spill(dir / "README.md", "---\nlanguage: en\nlicense: \"Apache-2.0\"\n---\nlicense: mit\n");
  EXPECT_EQ(licence_in_card(dir.path()), "apache-2.0");
  const ModelOrigin origin = origin_of(dir.path());
  ASSERT_EQ(origin.parts.size(), 1u);
  EXPECT_EQ(origin.parts[0].licence, "apache-2.0");
  testing::spill(dir / "README.md", "license: mit\n");  // no front matter
  EXPECT_EQ(licence_in_card(dir.path()), "");
}

TEST(ModelCards, SayWhatIsRecordedAndWhatIsNot) {
  testing::TempDir dir;
  const fs::path run = testing::make_run(dir / "first");
  testing::make_saved(run, 4, 2.25);
  const ModelOrigin origin = origin_of(run / "checkpoints/step-4");
  const HfConfig config = read_hf_config(fs::path(testing::kSourceDir) / "tests/golden/llama-gqa");
  CardFacts facts{.origin = origin, .config = config, .results = {{"piqa.acc", 0.5}}};
  const std::string card = model_card(facts);
  EXPECT_EQ(card.find("---\nlicense: \"unknown\"\n"), 0u) << card;
  EXPECT_SAYS(card, kCardMark);
  EXPECT_SAYS(card, "metrics:\n- \"acc\"\n- \"loss\"\n");
  EXPECT_SAYS(card, "| steps | 4 |");
  EXPECT_SAYS(card, "| held-out loss (nats a token) | 2.25, of 64 tokens |");
  EXPECT_SAYS(card, "| energy | unknown: no energy is recorded |");
  facts.watts = 600;
  facts.grams_per_kwh = 100;
  EXPECT_SAYS(model_card(facts), "0.001 kWh: that time at 600 W");  // steps of 3, 1, 1 and 1 s
}

}  // namespace
}  // namespace weft
