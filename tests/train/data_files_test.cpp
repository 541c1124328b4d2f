// A recipe that names the folder of a dataset: which files that is, with which weights, and what is refused.
#include "weft/train/data_files.h"
#include "weft/base/hashing.h"

#include "pipeline/pipeline_support.h"
#include "weft/train/run_data.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::config_of;
using testing::error_of;
using testing::Harness;
using testing::slurp;
using testing::spill;
using testing::TempDir;

// A dataset in `dir`/`name` in which each document has a token file of its own: `documents` of 100 bytes and more.
struct Source {
  std::string name, more;
  int documents = 0;
};
void make_dataset(const TempDir& dir, const std::string& name, const std::vector<Source>& sources,
                  double valid_fraction = 0) {
  std::string toml = "[run]\ndir = \"" + (dir / name).string() + "\"\ncompression = \"none\"\n";
  for (const Source& s : sources) {
    const std::string file = (dir / (name + s.name + ".jsonl")).string();
    std::string rows;
    for (int i = 0; i < s.documents; ++i)
      rows += fmt::format("{{\"text\": \"{} {}{}\"}}\n", s.name, i, std::string(size_t(100 + 40 * i), 'x'));
    spill(file, rows);
    toml += fmt::format("[[source]]\nname = \"{}\"\nfiles = [\"{}\"]\n{}", s.name, file, s.more);
  }
  PipelineConfig config = config_of(toml + "[tokens]\n");
  config.tokens.shard_mtokens = 0;
  config.tokens.valid_fraction = valid_fraction;
  Harness harness;
  harness.run(config);
}

Recipe recipe_of(const std::vector<std::string>& train, const std::vector<double>& weights = {}) {
  Recipe r;
  r.data.train = train;
  r.data.weights = weights;
  r.train.seq_length = 16;
  return r;
}

std::vector<std::string> prefixes(const fs::path& dataset, const std::string& source, int files) {
  std::vector<std::string> all;
  for (int i = 0; i < files; ++i)
    all.push_back((dataset / fmt::format("tokens/train-{}{:05}", source.empty() ? "" : source + "-", i)).string());
  return all;
}

TEST(DataFiles, AFolderIsItsTrainingFilesInTheOrderOfTheManifest) {
  const TempDir dir;
  make_dataset(dir, "plain", {{"a", "", 2}, {"b", "", 1}});
  const std::string folder = (dir / "plain").string();
  const DataFiles files = training_files_of(recipe_of({folder}));
  EXPECT_EQ(files, (DataFiles{.paths = prefixes(folder, "", 3), .files_of_source = {3}, .weights = {}}));
  EXPECT_EQ(training_files_of(recipe_of({"x.bin", folder + "/", "y.txt"})).paths.size(), 5u);
  EXPECT_EQ(training_files_of(recipe_of({"x.bin", folder}, {3, 1})),
            (DataFiles{.paths = {"x.bin", files.paths[0], files.paths[1], files.paths[2]},
                       .files_of_source = {1, 3},
                       .weights = {3, 1}}));
}

TEST(DataFiles, WeightsOfSourcesAreThoseOfTheirFilesTogether) {
  const TempDir dir;
  make_dataset(dir, "set", {{"a", "weight = 0.3\n", 3}, {"b", "weight = 0.7\n", 1}, {"c", "weight = 0\n", 1}});
  const std::string folder = (dir / "set").string();
  std::vector<std::string> paths = prefixes(folder, "a", 3);
  for (const char* source : {"b", "c"}) paths.push_back(prefixes(folder, source, 1)[0]);
  EXPECT_EQ(training_files_of(recipe_of({folder})),
            (DataFiles{.paths = paths, .files_of_source = {3, 1, 1}, .weights = {0.3, 0.7, 0}}));
  // Beside others: each entry has its share, which sources divide as they would among themselves.
  const DataFiles both = training_files_of(recipe_of({"x.bin", folder}, {1, 4}));
  EXPECT_EQ(both.files_of_source, (std::vector<int64_t>{1, 3, 1, 1}));
  ASSERT_EQ(both.weights.size(), 4u);
  const double expected[] = {1, 1.2, 2.8, 0};
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(both.weights[i], expected[i]);
  EXPECT_NE(error_of([&] {
              training_files_of(recipe_of({"x.bin", folder}));
            }).find("give data.weights"),
            std::string::npos);
}

// Counted over a whole number of rounds, whatever the sizes of the sources.
TEST(DataFiles, SamplesComeFromSourcesByTheirWeights) {
  const TempDir dir;
  make_dataset(dir, "set", {{"a", "weight = 3\n", 3}, {"b", "weight = 1\n", 9}, {"c", "weight = 4\n", 1}});
  const SampleOrder order(data_spec_of(recipe_of({(dir / "set").string()}), 257));
  std::map<char, int64_t> times;
  std::map<std::pair<size_t, int64_t>, int64_t> seen;
  constexpr int64_t kSamples = 8 * 300;
  for (int64_t k = 0; k < kSamples; ++k) {
    const auto place = order.place_of(k);
    ++seen[{place.source, place.sample}];
    ++times[fs::path(order.source(place.source).tokens->path()).filename().string()[6]];
  }
  EXPECT_EQ(times, (std::map<char, int64_t>{{'a', 900}, {'b', 300}, {'c', 1200}}));
  // Within a source, every sample of every file as often as any other, to one.
  std::map<char, std::pair<int64_t, int64_t>> range;
  for (size_t s = 0; s < order.num_sources(); ++s) {
    const char source = fs::path(order.source(s).tokens->path()).filename().string()[6];
    for (int64_t i = 0; i < order.source(s).num_samples; ++i) {
      const int64_t n = seen[{s, i}];
      auto& [least, most] = range.emplace(source, std::pair(n, n)).first->second;
      least = std::min(least, n), most = std::max(most, n);
    }
  }
  for (const char source : {'a', 'b', 'c'}) EXPECT_LE(range[source].second - range[source].first, 1) << source;
}

// None of its samples is drawn, so it needs none.
TEST(DataFiles, ASourceOfWeightZeroMayBeShorterThanASample) {
  const TempDir dir;
  const auto open = [&](const std::string& name) {
    Recipe r = recipe_of({(dir / name).string()});
    r.train.seq_length = 150;
    return SampleOrder(data_spec_of(r, 257)).num_sources();
  };
  make_dataset(dir, "zero", {{"a", "weight = 1\n", 4}, {"b", "weight = 0\n", 1}});
  EXPECT_EQ(open("zero"), 5u);
  make_dataset(dir, "one", {{"a", "weight = 1\n", 4}, {"b", "weight = 1\n", 1}});
  EXPECT_NE(error_of([&] { open("one"); }).find("train-b-00000"), std::string::npos);
}

TEST(DataFiles, ALossMaskBesideADatasetIsRefusedAtOnce) {
  const TempDir dir;
  make_dataset(dir, "set", {{"a", "", 1}});
  Recipe r = recipe_of({(dir / "set").string()});
  r.data.loss_mask = "m.mask";
  EXPECT_NE(error_of([&] { require_run_data(r); }).find("leave data.loss_mask out"), std::string::npos);
}

TEST(DataFiles, ValidationTakesWhatADatasetHoldsOut) {
  const TempDir dir;
  make_dataset(dir, "set", {{"a", "weight = 1\n", 6}, {"b", "weight = 1\n", 6}}, 0.5);
  const std::vector<std::string> files = validation_files_of({(dir / "set").string(), "x.bin"}).paths;
  EXPECT_GT(files.size(), 3u);
  EXPECT_EQ(files.back(), "x.bin");
  for (const std::string& file : files) EXPECT_TRUE(file == "x.bin" || file.find("/valid-") != std::string::npos);
  make_dataset(dir, "none", {{"a", "", 1}});
  EXPECT_NE(error_of([&] { validation_files_of({(dir / "none").string()}); }).find("set tokens.valid_fraction"),
            std::string::npos);
}

TEST(DataFiles, AFolderThatCannotBeTrainedOnIsRefusedAndSaysWhatToDo) {
  const TempDir dir;
  make_dataset(dir, "set", {{"a", "", 2}});
  const auto said = [&](const fs::path& folder) {
    return error_of([&] { training_files_of(recipe_of({folder.string()})); });
  };
  const auto expect = [&](const fs::path& folder, const std::string& part) {
    EXPECT_NE(said(folder).find(part), std::string::npos) << said(folder);
  };
  EXPECT_EQ(said(dir / "set"), "");
  expect(dir / "set/tokens", "name the dataset's folder, ");
  fs::create_directory(dir / "empty");
  expect(dir / "empty", "no dataset of `weft data run`: there is no manifest.json; list the files in it");

  const fs::path bin = dir / "set/tokens/train-00001.bin", manifest = dir / "set/manifest.json";
  const std::string good = slurp(bin), json = slurp(manifest);
  spill(bin, good + "more");
  expect(dir / "set", "train-00001.bin: is missing, or of another size than the manifest");
  fs::remove(bin);
  expect(dir / "set", "train-00001.bin: is missing, or of another size than the manifest");
  spill(bin, good);

  spill(manifest, json.substr(0, json.size() / 2));
  expect(dir / "set", "run the pipeline again, which writes it anew");
  spill(manifest, std::string(json).replace(json.find("\"tool\""), 6, "\"fool\""));
  expect(dir / "set", "its version is not the hash of what it says");
  fs::remove(manifest);
  expect(dir / "set", "a dataset that is not complete");

  spill(dir / "in.txt", "text");
  Harness harness;
  harness.run(testing::config_over(dir / "texts", "[\"" + (dir / "in.txt").string() + "\"]", "[dedup]\n"));
  expect(dir / "texts", "its pipeline has no [tokens]");
}

// A manifest that was made by hand, with the hash that belongs to it.
TEST(DataFiles, AManifestThatNamesFilesElsewhereIsRefused) {
  const TempDir dir;
  make_dataset(dir, "set", {{"a", "weight = 1\n", 2}});
  const auto said = [&](const std::function<void(nlohmann::json & file)>& change) {
    nlohmann::json manifest = open_dataset(dir / "set").manifest;
    const std::string before = slurp(dir / "set/manifest.json");
    change(manifest["stages"].back()["files"][1]);
    manifest.erase("version");
    manifest["version"] = to_hex(hash128(manifest.dump()));
    spill(dir / "set/manifest.json", manifest.dump());
    const std::string text = error_of([&] { training_files_of(recipe_of({(dir / "set").string()})); });
    spill(dir / "set/manifest.json", before);
    return text;
  };
  EXPECT_EQ(said([](auto&) {}), "");
  EXPECT_NE(said([](auto& f) { f["prefix"] = "../../train-00000"; }).find("the name of a file"), std::string::npos);
  EXPECT_NE(said([](auto& f) { f["weight"] = -1; }).find("weight"), std::string::npos);
  EXPECT_NE(said([](auto& f) { f["weight"] = 2; }).find("that of the other files"), std::string::npos);
  EXPECT_NE(said([](auto& f) { f.erase("source"); }).find("files that all have a source"), std::string::npos);
}

TEST(DataFiles, AreTheSameHoweverTheyAreNamed) {
  const TempDir dir;
  make_dataset(dir, "set", {{"a", "weight = 1\n", 1}, {"b", "weight = 2\n", 1}});
  make_dataset(dir, "plain", {{"a", "", 2}});
  const std::string set = (dir / "set").string(), plain = (dir / "plain").string();
  const std::string a = set + "/tokens/train-a-00000", b = set + "/tokens/../tokens/train-b-00000.bin";
  EXPECT_TRUE(have_the_same_files(recipe_of({set}), recipe_of({a, b}, {1, 2})));
  EXPECT_FALSE(have_the_same_files(recipe_of({set}), recipe_of({a, b})));
  EXPECT_FALSE(have_the_same_files(recipe_of({set}), recipe_of({b, a}, {2, 1})));
  EXPECT_TRUE(have_the_same_files(recipe_of({plain}), recipe_of(prefixes(plain, "", 2))));
  EXPECT_FALSE(have_the_same_files(recipe_of({plain}), recipe_of({(dir / "no").string() + "/"})));
  Recipe valid = recipe_of({plain});
  valid.data.valid = {a};
  EXPECT_FALSE(have_the_same_files(recipe_of({plain}), valid));
}

}  // namespace
}  // namespace weft
