// weft data stats: what was dropped, and where it was.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"

namespace weft {
namespace {

using testing::Finished;
using testing::spill;
using testing::TempDir;
using testing::weft;

TEST(DataStats, ShowsSamplesOfARuleWithFileAndRow) {
  const TempDir dir;
  const std::string in = (dir / "in.jsonl").string(), set = (dir / "set").string();
  spill(dir / "bad.txt", "darn\n");
  spill(in, "{\"text\": \"one two three\"}\n{\"text\": \"darn it all\"}\n{\"text\": \"one\"}\n");
  spill(dir / "p.toml", "[run]\ndir = \"" + set + "\"\n[[source]]\nname = \"s\"\nfiles = [\"" + in +
                            "\"]\n[length]\nmin_words = 2\n[bad_words]\nfile = \"" + (dir / "bad.txt").string() +
                            "\"\n");
  const Finished made = weft({"data", "run", (dir / "p.toml").string()});
  ASSERT_EQ(made.status, 0) << made.err;

  const std::string bad = "  bad_words: 0.1, " + in + ": row 2\n    1 hits: \"darn\"\n    \"darn it all\"\n";
  const std::string all = weft({"data", "stats", set, "--samples"}).out;
  EXPECT_NE(all.find(bad), std::string::npos) << all;
  EXPECT_NE(all.find("  length.min_words: 0.2, " + in + ": row 3\n"), std::string::npos) << all;
  const std::string some = weft({"data", "stats", set, "--samples", "length"}).out;
  EXPECT_EQ(some.find("  bad_words:"), std::string::npos) << some;
  EXPECT_NE(some.find("  length.min_words: 0.2"), std::string::npos) << some;
  EXPECT_EQ(weft({"data", "stats", set}).out.find(": row "), std::string::npos);

  const auto json = nlohmann::json::parse(weft({"data", "stats", set, "--samples", "length", "--json"}).out);
  const auto& filter = json.at("stages").at(1);
  EXPECT_EQ(filter.at("counts").at("dropped").at("bad_words"), 1);
  ASSERT_EQ(filter.at("samples").size(), 1u);
  EXPECT_EQ(filter.at("samples")[0].at("row"), 3);

  const Finished wrong = weft({"data", "stats", set, "--samples", "lenght"});
  EXPECT_NE(wrong.status, 0);
  EXPECT_NE(wrong.err.find("there are: bad_words, length.min_words"), std::string::npos) << wrong.err;
}

}  // namespace
}  // namespace weft
