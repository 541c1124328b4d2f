#include "weft/data/token_source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "data/data_support.h"
#include "token_files.h"
#include "weft/data/token_writer.h"

namespace weft {
namespace {

using testing::all_of;
using testing::error_of;
using testing::slurp;
using testing::spill;
using testing::TempDir;

std::vector<std::vector<int32_t>> documents_of(const TokenSource& source) {
  std::vector<std::vector<int32_t>> documents;
  for (int64_t d = 0; d < source.num_documents(); ++d) {
    const int64_t first = source.document_begin(d);
    documents.emplace_back(size_t(source.document_begin(d + 1) - first));
    source.read(first, documents.back());
  }
  return documents;
}

template <class T>
std::string bytes_of_all(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
// A Megatron index, right or wrong.
std::string index_of(uint8_t dtype, const std::vector<int32_t>& sizes, const std::vector<int64_t>& offsets,
                     const std::vector<int64_t>& documents) {
  return std::string("MMIDIDX\0\0", 9) + bytes_of_all<uint64_t>({1}) + char(dtype) +
         bytes_of_all<uint64_t>({sizes.size(), documents.size()}) + bytes_of_all(sizes) + bytes_of_all(offsets) +
         bytes_of_all(documents);
}

TEST(RawTokens, ReadWhatWasWritten) {
  TempDir dir;
  const std::vector<int32_t> ids{0, 1, 65535, 300};
  testing::write_raw_tokens(dir / "a.bin", ids, "uint16");
  EXPECT_EQ(all_of(*open_raw_tokens(dir / "a.bin", "uint16", 0)), ids);
  EXPECT_EQ(slurp(dir / "a.bin").size(), 8u);
}

TEST(RawTokens, AnIdBeyondTheVocabularyNamesFileOffsetAndId) {
  TempDir dir;
  testing::write_raw_tokens(dir / "a.bin", std::vector<int32_t>{1, 2, 99, 3}, "uint16");
  const auto source = open_raw_tokens(dir / "a.bin", "uint16", 50);
  const std::string e = error_of([&] { all_of(*source); });
  EXPECT_SAYS(e, "a.bin: token 2 at byte 4 is 99");
  EXPECT_SAYS(e, "50 ids");
  EXPECT_SAYS(e, "0 to 49");
  spill(dir / "b.bin", std::string("\xff\xff\xff\xff", 4));
  EXPECT_SAYS(error_of([&] { all_of(*open_raw_tokens(dir / "b.bin", "uint32", 0)); }), "4294967295");
}

TEST(RawTokens, IdsThatDoNotFitAreNotWritten) {
  TempDir dir;
  const std::string e = error_of([&] {
    testing::write_raw_tokens(dir / "a.bin", std::vector<int32_t>{1, 70000}, "uint16");
  });
  EXPECT_SAYS(e, "a.bin: id 70000 of token 1 does not fit into 2 bytes");
  EXPECT_SAYS(error_of([&] { testing::write_raw_tokens(dir / "a.bin", std::vector<int32_t>{-1}, "uint32"); }), "id -1");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));  // nor is a part of them
}

TEST(RawTokens, AWriterThatIsStoppedLeavesTheOldFile) {
  TempDir dir;
  testing::write_raw_tokens(dir / "a.bin", std::vector<int32_t>{1, 2}, "uint16");
  {
    RawTokenWriter other(dir / "a.bin", "uint16");
    other.append(std::vector<int32_t>(3 << 20, 7));
  }
  EXPECT_EQ(slurp(dir / "a.bin").size(), 4u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(RawTokens, EmptyAndTruncatedFilesAreRefused) {
  TempDir dir;
  spill(dir / "empty.bin", "");
  spill(dir / "odd.bin", "abc");
  EXPECT_SAYS(error_of([&] { open_raw_tokens(dir / "empty.bin", "uint16", 0); }), "empty");
  EXPECT_SAYS(error_of([&] { open_raw_tokens(dir / "odd.bin", "uint16", 0); }),
              "3 bytes are no whole number of 2-byte ids");
  EXPECT_SAYS(error_of([&] { open_raw_tokens(dir / "absent.bin", "uint16", 0); }), "absent.bin");
}

TEST(MegatronTokens, WrittenByWeftAreReadBack) {
  TempDir dir;
  const std::vector<std::vector<int32_t>> documents{{1, 2, 3}, {}, {4, 70000}};
  testing::write_megatron_tokens(dir / "m", documents, "int32");
  const auto source = open_megatron_tokens(dir / "m", 0);
  EXPECT_EQ(all_of(*source), (std::vector<int32_t>{1, 2, 3, 4, 70000}));
  EXPECT_EQ(source->num_documents(), 3);
}

TEST(MegatronTokens, ThoseOfOthersAreReadAndWrittenAgainByteForByte) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/conformance/megatron";
  TempDir dir;
  const auto expected = nlohmann::json::parse(slurp(folder / "expected.json"));
  ASSERT_EQ(expected.size(), 3u);
  for (const auto& [name, e] : expected.items()) {
    const auto source = open_megatron_tokens(folder / name, 0);
    EXPECT_EQ(source->size(), e["tokens"].get<int64_t>());
    EXPECT_EQ(source->num_documents(), e["documents"].get<int64_t>());
    EXPECT_EQ(source->document_begin(1), e["first_sequence_len"].get<int64_t>());
    const std::vector<int32_t> ids = all_of(*source), first = e["first_tokens"], last = e["last_tokens"];
    EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin()));
    EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), ids.rbegin()));

    testing::write_megatron_tokens(dir / name, documents_of(*source), e["dtype_code"] == 8 ? "uint16" : "int32");

    EXPECT_EQ(slurp(dir / (name + ".bin")), slurp(folder / (name + ".bin"))) << name;
    EXPECT_EQ(slurp(dir / (name + ".idx")), slurp(folder / (name + ".idx"))) << name;
  }
}

TEST(MegatronTokens, DocumentsAreRunsOfSequencesOfEveryIntegerType) {
  TempDir dir;
  const std::map<int, int> bytes{{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
  for (const auto& [code, each] : bytes) {
    std::string bin;
    for (int id = 10; id < 16; ++id) bin += char(id) + std::string(size_t(each - 1), '\0');
    spill(dir / "m.bin", bin);
    // sequences of 1, 2, 0, 3 tokens; documents of the first two, none, and the rest
    spill(dir / "m.idx", index_of(uint8_t(code), {1, 2, 0, 3}, {0, each, 3 * each, 3 * each}, {0, 2, 2, 4}));
    const auto source = open_megatron_tokens(dir / "m.idx", 16);
    EXPECT_EQ(documents_of(*source), (std::vector<std::vector<int32_t>>{{10, 11, 12}, {}, {13, 14, 15}})) << code;
    EXPECT_SAYS(error_of([&] { all_of(*open_megatron_tokens(dir / "m", 15)); }),
                fmt::format("m.bin: token 5 at byte {} is 15", 5 * each));
  }
  for (int code : {0, 6, 7, 9, 255}) {
    spill(dir / "m.idx", index_of(uint8_t(code), {}, {}, {0}));
    EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 0); }), fmt::format("dtype {}", code));
  }
}

TEST(MegatronTokens, NegativeIdsAreNamed) {
  TempDir dir;
  spill(dir / "m.bin", "\x05\xfe");
  spill(dir / "m.idx", index_of(2, {2}, {0}, {0, 1}));
  EXPECT_SAYS(error_of([&] { all_of(*open_megatron_tokens(dir / "m", 100)); }), "m.bin: token 1 at byte 1 is -2");
}

// Counts and sizes whose sums or products overflow 64 bits must not look small.
TEST(MegatronTokens, HugeClaimsAreRefused) {
  TempDir dir;
  spill(dir / "m.bin", std::string(8, '\1'));
  const std::string good = index_of(8, {4}, {0}, {0, 1});
  for (const uint64_t claim : {uint64_t(1) << 62, uint64_t(1) << 61, ~uint64_t(0), (uint64_t(1) << 63) / 4 + 1}) {
    for (size_t at : {size_t(18), size_t(26)}) {  // sequences, documents
      std::string bad = good;
      bad.replace(at, 8, reinterpret_cast<const char*>(&claim), 8);
      spill(dir / "m.idx", bad);
      EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 0); }), "bytes are left") << claim << " at " << at;
    }
  }
  spill(dir / "m.idx", index_of(8, {-4}, {0}, {0, 1}));
  EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 0); }), "sequence 0 has -4 tokens");
  spill(dir / "m.idx", index_of(8, {2, 2147483647}, {0, 4}, {0, 2}));
  EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 0); }), "sequence 1 ends at byte 4294967298");
  spill(dir / "m.idx", index_of(8, {3}, {0}, {0, 1}));
  EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 0); }), "6 bytes, the .bin file 8");
  spill(dir / "m.idx", index_of(8, {2, 2}, {0, 2}, {0, 2}));
  EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 0); }), "sequence 1 begins at byte 2");
  spill(dir / "m.idx", index_of(8, {4}, {0}, {0, 2}));
  EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 0); }), "document 1 begins at sequence 2 of 1");
  spill(dir / "m.idx", index_of(8, {1, 3}, {0, 2}, {0, 1}));
  EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 0); }), "last document ends at sequence 1 of 2");
}

// Every byte of the index is changed in turn, and the file cut everywhere: an error or an answer, never a crash.
TEST(MegatronTokens, ABrokenIndexIsRefusedByName) {
  TempDir dir;
  testing::write_megatron_tokens(dir / "m", {{1, 2, 3}, {4}}, "uint16");
  const std::string good = slurp(dir / "m.idx");
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = char(bad[at] ^ 0x81);
    spill(dir / "m.idx", bad);
    const std::string e = error_of([&] { all_of(*open_megatron_tokens(dir / "m", 1000)); });
    EXPECT_SAYS(e, "m.") << at;
    spill(dir / "m.idx", good.substr(0, at));
    EXPECT_FALSE(error_of([&] { open_megatron_tokens(dir / "m", 1000); }).empty()) << at;
  }
  spill(dir / "m.idx", good + "x");
  EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 1000); }), "follow its end");
}

TEST(LossMask, OfAnotherLengthIsRefusedWithBoth) {
  TempDir dir;
  testing::write_raw_tokens(dir / "a.bin", std::vector<int32_t>{1, 2, 3}, "uint16");
  spill(dir / "mask", std::string("\1\1", 2));
  const auto source = open_raw_tokens(dir / "a.bin", "uint16", 0);
  EXPECT_SAYS(error_of([&] { open_loss_mask(dir / "mask", *source); }), "2 bytes for the 3 tokens");
  spill(dir / "mask", std::string("\1\2\1", 3));
  std::vector<uint8_t> counted(3);
  EXPECT_SAYS(error_of([&] { open_loss_mask(dir / "mask", *source)->read(0, counted); }), "byte 1 is 2");
}

}  // namespace
}  // namespace weft
