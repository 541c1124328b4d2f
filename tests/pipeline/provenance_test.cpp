// From token files back to documents: only where all that is read is what the manifest says.
#include "weft/pipeline/provenance.h"

#include "pipeline/pipeline_support.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::config_of;
using testing::error_of;
using testing::Harness;
using testing::slurp;
using testing::small_toml;
using testing::spill;
using testing::TempDir;

constexpr const char* kStages = "[length]\nmin_words = 2\n[dedup]\nnear = false\n[tokens]\n";

// The stories of the documents of the first token file.
std::vector<DocumentStory> stories_of(const fs::path& dataset) {
  const auto file = find_dataset(dataset / "tokens/train-00000");
  if (!file) throw FileError("no dataset");
  const Provenance provenance(*file);
  return provenance.stories({provenance.document(0)});
}

// One letter of the text that a story would tell.
TEST(Provenance, AShardThatWasChangedIsRefusedByName) {
  const TempDir dir;
  Harness harness;
  harness.run(config_of(small_toml(dir, kStages)));
  EXPECT_EQ(stories_of(dir / "out").at(0).text, "one two three");
  const fs::path shard = dir / "out/filter/00000.jsonl";
  std::string text = slurp(shard);
  spill(shard, text.replace(text.find("two"), 3, "2wo"));
  EXPECT_NE(error_of([&] { stories_of(dir / "out"); }).find("filter/00000.jsonl: is not the shard of which"),
            std::string::npos);
}

TEST(Provenance, ADatasetHasNoManifestOnceAStageIsMadeAnew) {
  const TempDir dir;
  Harness harness;
  harness.run(config_of(small_toml(dir, kStages)));
  harness.again = true;
  harness.run(config_of(small_toml(dir, "[length]\nmin_words = 1\n[dedup]\nnear = false\n[tokens]\n")), "filter");
  EXPECT_FALSE(fs::exists(dir / "out/manifest.json"));
  EXPECT_FALSE(find_dataset(dir / "out/tokens/train-00000"));
}

TEST(Provenance, OtherIdsOfTheDocumentsOfATokenFileAreRefused) {
  const TempDir dir;
  Harness harness;
  harness.run(config_of(small_toml(dir, "[tokens]\n")));
  const fs::path ids = dir / "out/tokens/train-00000.documents";
  std::string bytes = slurp(ids);
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 8);
  spill(ids, bytes);
  EXPECT_NE(error_of([&] { stories_of(dir / "out"); }).find("train-00000.documents: is not the file of which"),
            std::string::npos);
  fs::remove(ids);
  EXPECT_NE(error_of([&] { stories_of(dir / "out"); }).find("train-00000.documents: is missing"), std::string::npos);
}

TEST(Provenance, DuplicatesAreNotTakenFromAStageThatLeftThePipeline) {
  const TempDir dir;
  Harness harness;
  harness.run(config_of(small_toml(dir, kStages)));
  EXPECT_EQ(stories_of(dir / "out").at(0).duplicates.size(), 1u);
  harness.again = true;
  harness.run(config_of(small_toml(dir, "[length]\nmin_words = 2\n[tokens]\n")));
  ASSERT_TRUE(fs::exists(dir / "out/dedup/duplicates.jsonl"));
  EXPECT_TRUE(stories_of(dir / "out").at(0).duplicates.empty());
}

TEST(Provenance, ADatasetIsKnownHoweverItsPathIsSpelled) {
  const TempDir dir;
  Harness harness;
  harness.run(config_of(small_toml(dir, "[tokens]\n")));
  const fs::path here = fs::current_path();
  fs::create_directory_symlink(dir / "out/tokens", dir / "link");
  fs::current_path(dir / "out/tokens");
  const auto bare = find_dataset("train-00000"), linked = find_dataset(dir / "link/train-00000.bin");
  const auto dotted = find_dataset("../read/../tokens/./train-00000.idx");
  fs::current_path(here);
  for (const auto* file : {&bare, &linked, &dotted}) {
    ASSERT_TRUE(*file);
    EXPECT_TRUE(fs::equivalent((*file)->folder, dir / "out"));
    EXPECT_EQ((*file)->prefix, "train-00000");
  }
}

}  // namespace
}  // namespace weft
