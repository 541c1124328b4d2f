// De-duplication: exact, near, by URL and by line, on CS336's cases and small ones.
#include <random>

#include "pipeline/pipeline_support.h"
#include "weft/pipeline/duplicates.h"
#include "weft/pipeline/sorted_runs.h"
#include "weft/pipeline/words.h"

namespace weft {
namespace {

using testing::config_over;
using testing::Harness;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::texts_of;
using Texts = std::vector<std::string>;

// What is left of these JSON lines.
Texts left_of(const std::string& jsonl, const std::string& section, const TempDir& dir) {
  spill(dir / "in.jsonl", jsonl);
  Harness harness;
  harness.run(config_over(dir / "out", "[\"" + (dir / "in.jsonl").string() + "\"]", "[dedup]\n" + section));
  return texts_of(dir / "out" / "dedup");
}
Texts left_of(const std::string& jsonl, const std::string& section) { return left_of(jsonl, section, TempDir()); }

Texts left_of_folder(const std::string& folder, const std::string& section) {
  const TempDir dir;
  testing::unpack_cs336(dir);
  Harness harness;
  harness.run(
      config_over(dir / "out", "[\"" + (dir / "fixtures").string() + "/" + folder + "\"]", "[dedup]\n" + section));
  return texts_of(dir / "out" / "dedup");
}

TEST(Dedup, LinesAreThoseOfCs336) {
  WEFT_NEEDS_SHARED();
  Texts got =
      left_of_folder("documents_with_line_duplicates", "documents = false\nnear = false\nlines = \"keep_none\"\n");
  const TempDir dir;
  testing::unpack_cs336(dir);
  Texts expected;  // two of the five files are empty, which is no document here
  for (const auto& file : std::filesystem::directory_iterator(dir / "fixtures/documents_line_deduplicated"))
    if (const std::string text = slurp(file.path()); !text.empty()) expected.push_back(text);
  std::sort(got.begin(), got.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(got, expected);
  EXPECT_EQ(got.size(), 3u);
}

TEST(Dedup, NearDuplicatesAreThoseOfCs336) {
  WEFT_NEEDS_SHARED();
  EXPECT_EQ(
      left_of_folder("documents_with_line_duplicates", "documents = false\nbands = 10\nrows = 10\njaccard = 0.8\n")
          .size(),
      4u);
  const Texts left = left_of_folder("documents_with_fuzzy_duplicates", "bands = 50\nrows = 10\njaccard = 0.8\n");
  ASSERT_EQ(left.size(), 2u);
  EXPECT_NE(left[0].find("From PyTorch"), std::string::npos);
}

TEST(Dedup, TheFirstIsKeptAndTheOthersSaySo) {
  const TempDir dir;
  const Texts left =
      left_of("{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"a\"}\n{\"text\": \"a\"}\n", "near = false\n", dir);
  EXPECT_EQ(left, (Texts{"a", "b"}));
  EXPECT_EQ(slurp(dir / "out/dedup/duplicates.jsonl"),
            "{\"by\":\"text\",\"id\":\"0.2\",\"kept\":\"0.0\"}\n{\"by\":\"text\",\"id\":\"0.3\",\"kept\":\"0.0\"}\n");
}

// B is near A, and C equals B: C is near A, whatever it is to B.
TEST(Dedup, TheReasonIsThatOfTheWayToTheKeptDocument) {
  Clusters clusters;
  clusters.join(2, 3, Same::kText, 1);
  clusters.join(7, 8, Same::kUrl, 1);
  clusters.join(1, 2, Same::kNear, 0.9);
  clusters.join(3, 8, Same::kNear, 0.8);
  const std::vector<Duplicate> all = clusters.duplicates();
  ASSERT_EQ(all.size(), 4u);
  for (const Duplicate& d : all) {
    EXPECT_EQ(d.kept, 1u);
    EXPECT_EQ(d.same, Same::kNear) << d.document;
    EXPECT_EQ(d.jaccard, d.document < 4 ? 0.9 : 0.8) << d.document;
  }
}

TEST(Dedup, WhatARunThatWasKilledAtItsEndLeftIsRemoved) {
  const TempDir dir;
  left_of("{\"text\": \"a\"}\n", "near = false\n", dir);
  const std::filesystem::path work = dir / "out/dedup" / "work";
  std::filesystem::create_directories(work);
  spill(work / "lines", "");
  Harness harness;
  harness.run(config_over(dir / "out", "[\"" + (dir / "in.jsonl").string() + "\"]", "[dedup]\nnear = false\n"));
  EXPECT_FALSE(std::filesystem::exists(work));
}

TEST(Dedup, UrlsAreComparedWhereAsked) {
  const std::string rows =
      "{\"text\": \"a\", \"url\": \"http://u\"}\n{\"text\": \"b\", \"url\": \"http://u\"}\n{\"text\": "
      "\"c\"}\n{\"text\": \"d\"}\n";
  EXPECT_EQ(left_of(rows, "near = false\nurls = true\n"), (Texts{"a", "c", "d"}));
  EXPECT_EQ(left_of(rows, "near = false\n"), (Texts{"a", "b", "c", "d"}));
}

TEST(Dedup, WhatStandsInThePlaceOfAUrlIsNone) {
  const TempDir dir;
  std::string rows;
  for (const char* url : {"N/A", "N/A", "-", "-", "http://u", "https://u/"})
    rows += fmt::format("{{\"text\": \"{}\", \"url\": \"{}\"}}\n", rows.size(), url);
  EXPECT_EQ(left_of(rows, "near = false\nurls = true\n", dir).size(), 5u);
  const Counts counts = open_stage(dir / "out/dedup").counts;
  EXPECT_EQ(counts.dropped.at("dedup.urls"), 1);
  EXPECT_EQ(counts.changed.at("dedup.no_url"), 4);
}

TEST(Dedup, LinesKeepTheirFirstUnlessToldOtherwise) {
  const std::string rows =
      "{\"text\": \"menu\\none\\n\\nmenu\"}\n{\"text\": \"two\\n menu\\n\\nend\"}\n{\"text\": \"menu\"}\n";
  EXPECT_EQ(left_of(rows, "near = false\nlines = \"keep_first\"\n"), (Texts{"menu\none\n\n", "two\n\nend"}));
  EXPECT_EQ(left_of(rows, "near = false\nlines = \"keep_none\"\n"), (Texts{"one\n\n", "two\n\nend"}));
}

TEST(Dedup, LinesOfOneDocumentAreEqualToo) {
  const std::string row = "{\"text\": \"chorus\\nverse\\nchorus\"}\n";
  EXPECT_EQ(left_of(row, "near = false\nlines = \"keep_first\"\n"), (Texts{"chorus\nverse\n"}));
  EXPECT_EQ(left_of(row, "near = false\nlines = \"keep_none\"\n"), (Texts{"verse\n"}));
}

TEST(Dedup, ALineIsNotLostWithADroppedDocument) {
  const std::string rows = "{\"text\": \"x\\ny\"}\n{\"text\": \"x\\ny\"}\n{\"text\": \"y\\nz\"}\n";
  EXPECT_EQ(left_of(rows, "near = false\nlines = \"keep_first\"\n"), (Texts{"x\ny", "z"}));
}

std::string words(std::mt19937& random, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += fmt::format("{}w{}", i > 0 ? " " : "", random() % 5000);
  return text;
}

TEST(Dedup, SimilarTextsAreFoundAndOthersStay) {
  std::mt19937 random(7);
  std::string rows;
  Texts firsts;
  for (int i = 0; i < 40; ++i) {
    const std::string text = words(random, 200);
    firsts.push_back(text);
    rows += "{\"text\": \"" + text + "\"}\n";
  }
  for (int i = 0; i < 40; ++i)
    rows += "{\"text\": \"" + firsts[size_t(i)].substr(0, firsts[size_t(i)].size() - 12) + ", THE END.\"}\n";
  EXPECT_EQ(left_of(rows, ""), firsts);
}

TEST(Dedup, JaccardIsWhatASlowCountSays) {
  std::mt19937 random(3);
  const auto table = make_character_table();
  for (int i = 0; i < 20; ++i) {
    const std::string a = words(random, 60), b = a.substr(0, a.size() / 2) + words(random, 20);
    const auto set = [&](const std::string& text) {
      return shingle_set(shingle_hashes(plain_word_hashes(*table, text), 5));
    };
    const auto sa = set(a), sb = set(b);
    int64_t shared = 0;
    for (const uint32_t x : sa) shared += std::count(sb.begin(), sb.end(), x);
    EXPECT_EQ(jaccard(sa, sb), double(shared) / double(int64_t(sa.size() + sb.size()) - shared));
  }
}

TEST(Dedup, TypographyMakesNoDifferenceToShingles) {
  const auto table = make_character_table();
  EXPECT_EQ(plain_word_hashes(*table, "Caf\u00e9, \u201cau lait\u201d!"), plain_word_hashes(*table, "cafe au  LAIT"));
}

TEST(Dedup, ScriptsWithoutSpacesHaveAWordForEachCharacter) {
  const auto table = make_character_table();
  const auto words_of = [&](const std::string& text) { return plain_word_hashes(*table, text).size(); };
  EXPECT_EQ(words_of("\u4f60\u597d\uff0c\u4e16\u754c weft\u306f\u3068"), 7u);  // Han and Kana around a Latin word
  EXPECT_EQ(words_of("\u0e20\u0e32\u0e29\u0e32"), 4u);                         // Thai
  EXPECT_EQ(words_of("\ud55c\uad6d\uc5b4 \ubb38\uc7a5"), 2u);                  // Korean has spaces
  std::mt19937 random(9);
  std::string text;
  for (int i = 0; i < 300; ++i) {
    const uint32_t code = 0x4e00 + random() % 3000;
    text += {char(0xe0 | code >> 12), char(0x80 | (code >> 6 & 63)), char(0x80 | (code & 63))};
  }
  const std::string changed = text.substr(0, text.size() - 15) + "\u7684\u662f\u4e00\u4e0d\u4e86";
  EXPECT_EQ(left_of("{\"text\": \"" + text + "\"}\n{\"text\": \"" + changed + "\"}\n", ""), (Texts{text}));
}

TEST(SortedRuns, AreMergedInOrderWhateverTheirNumber) {
  const TempDir dir;
  std::mt19937_64 random(1);
  std::vector<KeyRecord> all;
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < 10; ++i) {
    std::vector<KeyRecord> run;
    for (int k = 0; k < 7; ++k) run.push_back({random() % 50, random() % 3, uint64_t(i), uint64_t(k)});
    all.insert(all.end(), run.begin(), run.end());
    files.push_back(dir / std::to_string(i));
    write_run(files.back(), run);
  }
  std::sort(all.begin(), all.end());
  std::vector<KeyRecord> merged;
  merge_runs(files, dir.path(), [&](const KeyRecord& r) { merged.push_back(r); }, {.fan_in = 3});
  EXPECT_TRUE(merged == all);
}

TEST(SortedRuns, AMergeTellsHowFarItIsAndCanBeStopped) {
  const TempDir dir;
  std::vector<std::filesystem::path> files;
  for (uint64_t i = 0; i < 3; ++i) {
    files.push_back(dir / std::to_string(i));
    write_run(files.back(), std::vector<KeyRecord>(50'000, KeyRecord{i, 0, 0, 0}));
  }
  int64_t seen = 0, taken = 0;
  const auto take = [&](const KeyRecord&) { ++taken; };
  merge_runs(files, dir.path(), take, {.look = [&](int64_t records) { seen += records; }});
  EXPECT_EQ(taken, 150'000);
  EXPECT_EQ(seen, 2 << 16);
  taken = 0;
  const auto stop = [](int64_t) { throw Interrupted(); };
  EXPECT_THROW(merge_runs(files, dir.path(), take, {.fan_in = 2, .look = stop}), Interrupted);
  EXPECT_EQ(taken, 0);  // it ended while files were merged to fewer
}

}  // namespace
}  // namespace weft
