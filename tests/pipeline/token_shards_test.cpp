// Tokenized documents to token files: planned before they are written, the same for any number of threads.
#include "weft/pipeline/token_shards.h"

#include <cstring>

#include "pipeline/pipeline_support.h"
#include "weft/data/token_source.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of_folder;
using testing::Harness;
using testing::spill;
using testing::TempDir;

constexpr int64_t kMost = 100;

// 40 documents of 0 to 39 tokens in three files, the second of which is empty; dealt to series in turns.
struct Case {
  explicit Case(bool masks, size_t num_series = 1) : masks(masks) {
    for (size_t s = 0; s < num_series; ++s)
      series.push_back({.name = "train-" + std::to_string(s), .more = {{"source", s}}});
    std::string bytes;
    for (int i = 0; i < 40; ++i) {
      EncodedDocument d{.ids = std::vector<int32_t>(size_t(i), i), .counted = {}};
      if (masks) d.counted.assign(size_t(i), uint8_t(i % 2));
      append_tokenized(bytes, uint64_t(1000 + i), size_t(i) % num_series, d);
      if (i != 14 && i != 39) continue;
      spill(dir / (i == 14 ? "a" : "c"), bytes);
      bytes.clear();
    }
    spill(dir / "b", "");
  }
  nlohmann::json write(const std::string& folder, Harness& harness) const {
    fs::create_directories(dir / folder);
    return write_token_shards({{.folder = dir / folder,
                                .series = series,
                                .tokenized = {dir / "a", dir / "b", dir / "c"},
                                .dtype = "uint16",
                                .most = kMost,
                                .masks = masks}},
                              harness.context());
  }
  TempDir dir;
  bool masks;
  std::vector<TokenSeries> series;
};

TEST(TokenShards, EndWithTheDocumentThatFillsThemAndKeepTheOrder) {
  const Case c(false);
  Harness harness;
  const nlohmann::json files = c.write("out", harness);
  int32_t next = 0;
  for (const auto& file : files) {
    const auto source = open_megatron_tokens(c.dir / "out" / file.at("prefix").get<std::string>(), 0);
    EXPECT_EQ(source->size(), file.at("tokens"));
    EXPECT_EQ(source->num_documents(), file.at("documents"));
    for (int64_t d = 0; d < source->num_documents(); ++d, ++next)
      EXPECT_EQ(source->document_begin(d + 1) - source->document_begin(d), next);
    const int64_t last = next - 1;
    EXPECT_LT(source->size() - last, kMost);
    EXPECT_TRUE(source->size() >= kMost || next == 40);
  }
  EXPECT_EQ(next, 40);
  EXPECT_GT(files.size(), 5u);
}

TEST(TokenShards, OfASeriesHaveItsDocumentsAlone) {
  const Case c(true, 3);
  Harness harness;
  std::map<std::string, std::vector<uint64_t>> ids;
  int64_t counted = 0;
  for (const auto& file : c.write("out", harness)) {
    const std::string prefix = file.at("prefix"), bytes = testing::slurp(c.dir / "out" / (prefix + ".documents"));
    std::vector<uint64_t>& of_series = ids[prefix.substr(0, 7)];
    EXPECT_EQ("train-" + file.at("source").dump(), prefix.substr(0, 7));
    const size_t before = of_series.size();
    of_series.resize(before + bytes.size() / sizeof(uint64_t));
    std::memcpy(&of_series[before], bytes.data(), bytes.size());
    counted += file.at("counted").get<int64_t>();
  }
  for (size_t s = 0; s < 3; ++s) {
    std::vector<uint64_t> expected;
    for (size_t i = s; i < 40; i += 3) expected.push_back(1000 + i);
    EXPECT_EQ(ids["train-" + std::to_string(s)], expected);
  }
  EXPECT_EQ(counted, 20 * 20);  // 1 + 3 + ... + 39
}

TEST(TokenShards, AreTheSameForAnyNumberOfThreads) {
  for (const bool masks : {false, true}) {
    const Case c(masks, 3);
    std::vector<nlohmann::json> files;
    for (const int threads : {1, 3}) {
      Harness harness;
      harness.threads = threads;
      files.push_back(c.write(std::to_string(threads), harness));
    }
    EXPECT_EQ(files[0], files[1]);
    EXPECT_EQ(files[0][0].contains("counted"), masks);
    EXPECT_TRUE(bytes_of_folder(c.dir / "1") == bytes_of_folder(c.dir / "3"));
  }
}

TEST(TokenShards, TellHowFarTheyAreAndStopWhenAsked) {
  const Case c(true);
  Harness harness;
  c.write("out", harness);
  const StageProgress::View view = harness.progress.view();
  EXPECT_EQ(view.stage, "token files");
  EXPECT_EQ(view.work, int64_t(fs::file_size(c.dir / "a") + fs::file_size(c.dir / "c")));
  EXPECT_EQ(view.work_done, view.work);
  EXPECT_EQ(view.counts.documents_out, 40);
  harness.stop = true;
  EXPECT_THROW(c.write("stopped", harness), Interrupted);
  EXPECT_TRUE(bytes_of_folder(c.dir / "stopped").empty());
}

}  // namespace
}  // namespace weft
