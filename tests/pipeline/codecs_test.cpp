// bzip2 and lz4, as gzip, zstd and xz in readers_test.cpp.
#include <bzlib.h>
#include <lz4frame.h>

#include "apps/program.h"
#include "pipeline/pipeline_support.h"

namespace weft {
namespace {

using testing::ReadFile;
using Texts = std::vector<std::string>;
using Compress = std::string (*)(const std::string&);

std::string bzip2(const std::string& text) {
  auto size = unsigned(text.size() + text.size() / 50 + 1000);
  std::string out(size, '\0');
  BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(text.data()), unsigned(text.size()), 1, 0, 0);
  out.resize(size);
  return out;
}
std::string lz4(const std::string& text) {
  LZ4F_preferences_t p{};
  p.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  std::string out(LZ4F_compressFrameBound(text.size(), &p), '\0');
  out.resize(LZ4F_compressFrame(out.data(), out.size(), text.data(), text.size(), &p));
  return out;
}
constexpr std::pair<const char*, Compress> kBoth[] = {{".bz2", bzip2}, {".lz4", lz4}};

std::string many_rows() {
  std::string json;
  for (int i = 0; i < 6000; ++i) json += fmt::format("{{\"text\": \"document {} {}\"}}\n", i, i * 7919 % 10007);
  return json;
}

TEST(Codecs, Bzip2AndLz4AreReadByWhatTheyAre) {
  const std::string json = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  for (const auto& [extension, compress] : kBoth) {
    EXPECT_EQ(ReadFile(std::string("a.jsonl") + extension, compress(json)).texts(), (Texts{"one", "two"}));
    EXPECT_EQ(ReadFile("a.jsonl", compress(json)).texts(), (Texts{"one", "two"})) << "whatever its name";
    EXPECT_EQ(ReadFile("a.jsonl", compress(many_rows())).texts().size(), 6000u);
    EXPECT_EQ(ReadFile("a.jsonl", compress("") + compress(json)).texts(), (Texts{"one", "two"}));
    EXPECT_EQ(ReadFile("a.jsonl", compress("")).texts(), Texts{});
  }
}

TEST(Codecs, SeveralStreamsAreOneFile) {
  const std::string json = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  for (const auto& [extension, compress] : kBoth) {
    const std::string two = compress(json.substr(0, 9)) + compress(json.substr(9));
    EXPECT_EQ(ReadFile("a.jsonl", two).texts(), (Texts{"one", "two"}));
    EXPECT_EQ(ReadFile("a.jsonl", two + std::string(8, '\0')).broken(), 0);
    const ReadFile garbage("a.jsonl", two + "garbage!");
    EXPECT_EQ(garbage.texts(), (Texts{"one", "two"}));
    EXPECT_EQ(garbage.failure(), "other bytes follow the compressed data");
  }
}

TEST(Codecs, ATruncatedOneKeepsWhatCameBeforeAndIsNamed) {
  for (const auto& [extension, compress] : kBoth) {
    const std::string whole = compress(many_rows());
    for (const size_t size : {whole.size() - 1, whole.size() / 2, size_t{10}}) {
      const ReadFile read("a.jsonl", whole.substr(0, size));
      EXPECT_EQ(read.broken(), 1) << extension << " " << size;
      EXPECT_SAYS(read.failure(), "cut short: the compressed data ends too early");
    }
    EXPECT_GT(ReadFile("a.jsonl", whole.substr(0, whole.size() - 1)).texts().size(), 2000u);
  }
}

TEST(Codecs, ABrokenOneIsNamed) {
  for (const auto& [extension, compress] : kBoth) {
    std::string bytes = compress(many_rows());
    for (size_t i = 0; i < 20; ++i) bytes[bytes.size() / 2 + i] = char(~bytes[bytes.size() / 2 + i]);
    EXPECT_SAYS(ReadFile("a.jsonl", bytes).failure(), "broken ") << extension;
  }
}

TEST(Codecs, ABombIsStopped) {
  for (const auto& [extension, compress] : kBoth) {
    const ReadFile read("a.txt", compress(std::string(20 << 20, 'a')), "separator = \"\\n\"\n");
    EXPECT_EQ(read.texts(), Texts{});
    EXPECT_SAYS(read.failure(), "bomb");
  }
}

TEST(Codecs, ASkippableFrameBeforeAnLz4FrameIsSkipped) {
  const std::string json = "{\"text\": \"one\"}\n", skipped("\x5e\x2a\x4d\x18\3\0\0\0abc", 11);
  const ReadFile read("a.jsonl.lz4", skipped + skipped + lz4(json) + skipped + lz4(json) + skipped);
  EXPECT_EQ(read.texts(), (Texts{"one", "one"}));
  EXPECT_EQ(read.broken(), 0);
}

}  // namespace
}  // namespace weft
