#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "safetensors_files.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/checkpoint/safetensors.h"

namespace weft {
namespace {

using testing::TempDir;
using testing::TensorToWrite;
using testing::write_safetensors;
using testing::write_safetensors_folder;

TensorToWrite tensor(const std::string& name, FileDType dtype, std::vector<int64_t> shape, std::string bytes) {
  return {name, dtype, std::move(shape), std::move(bytes)};
}

std::string written(const std::vector<TensorToWrite>& tensors, const SafetensorsMetadata& metadata = {}) {
  TempDir dir;
  write_safetensors(dir / "x.safetensors", tensors, metadata);
  return testing::slurp(dir / "x.safetensors");
}

const std::string kZeros(16, '\0');

TEST(SafetensorsWriter, PadsTheHeaderWithSpacesToEightBytes) {
  EXPECT_EQ(written({tensor("test", FileDType::i32, {2, 2}, kZeros)}),
            std::string("@\0\0\0\0\0\0\0", 8) + R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}    )" +
                kZeros);
}

TEST(SafetensorsWriter, OrdersByAlignmentThenName) {
  const auto a = tensor("a", FileDType::f16, {1}, "aa"), b = tensor("b", FileDType::f32, {1}, "bbbb"),
             c = tensor("c", FileDType::f32, {1}, "cccc");
  const std::string file = written({a, c, b}, {{"format", "pt"}});
  EXPECT_EQ(file.substr(file.size() - 10), "bbbbccccaa");
  EXPECT_EQ(file.find(R"({"__metadata__":{"format":"pt"},"b":{)"), 8u);
  EXPECT_EQ(file, written({b, c, a}, {{"format", "pt"}}));
}

TEST(SafetensorsWriter, WritesTheBytesOfTheReferenceWriter) {
  WEFT_NEEDS_SHARED();
  const auto dir = testing::shared_dir() / "data/conformance/safetensors";
  const auto expected = [&](const char* name) { return testing::slurp(dir / (std::string(name) + ".safetensors")); };
  std::string last_one = kZeros;
  last_one[12] = 1;
  EXPECT_EQ(written({tensor("test", FileDType::i32, {2, 2}, kZeros)}), expected("writer_i32_zeros_2x2"));
  EXPECT_EQ(written({tensor("test", FileDType::i32, {2, 2}, last_one)}), expected("writer_i32_last_one"));
  EXPECT_EQ(written({tensor("test2", FileDType::f16, {2, 2}, kZeros.substr(8)),
                     tensor("test1", FileDType::i32, {2, 2}, kZeros)}),
            expected("writer_two_dtypes_alignment"));
  EXPECT_EQ(written({tensor("test1", FileDType::i32, {2, 2}, kZeros)}, {{"framework", "pt"}}),
            expected("writer_metadata"));
}

TEST(SafetensorsWriter, WritesNamesThatNeedEscapes) {
  TempDir dir;
  const std::string name = "a\"\\\n\x01 \xc3\xa9";
  write_safetensors(dir / "x.safetensors", {tensor(name, FileDType::u8, {2}, "ab")}, {{"k\n", "v\""}});
  const SafetensorsFile file = SafetensorsFile::open(dir / "x.safetensors");
  EXPECT_NE(file.find(name), nullptr);
  EXPECT_EQ(file.metadata().at("k\n"), "v\"");
}

TEST(SafetensorsWriter, WritesOneFileWhereAllFits) {
  TempDir dir;
  write_safetensors_folder(dir.path(), {tensor("a", FileDType::u8, {2}, "aa"), tensor("b", FileDType::u8, {1}, "b")},
                           3);
  EXPECT_FALSE(std::filesystem::exists(dir / "model.safetensors.index.json"));
  EXPECT_EQ(SafetensorsFile::open(dir / "model.safetensors").metadata().at("format"), "pt");
}

TEST(SafetensorsWriter, DividesLargeModelsAndIndexesThem) {
  TempDir dir;
  write_safetensors_folder(dir.path(),
                           {tensor("d", FileDType::u8, {2}, "dd"), tensor("c", FileDType::u8, {1}, "c"),
                            tensor("b", FileDType::u8, {5}, "bbbbb"), tensor("a", FileDType::u8, {3}, "aaa")},
                           3);
  const auto index = nlohmann::json::parse(testing::slurp(dir / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 11);
  EXPECT_EQ(index["weight_map"]["c"], "model-00001-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["b"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["a"], "model-00003-of-00003.safetensors");
  const SafetensorsFolder folder = SafetensorsFolder::open(dir.path());
  EXPECT_EQ(folder.tensors().size(), 4u);
  EXPECT_EQ(char(folder.bytes(*folder.find("d"))[1]), 'd');
}

TEST(SafetensorsWriter, ChecksWhatItIsGiven) {
  TempDir dir;
  const auto write = [&](const std::vector<TensorToWrite>& t) { write_safetensors(dir / "x", t); };
  const auto a = tensor("a", FileDType::u8, {2}, "aa");
  EXPECT_THROW(write({a, a}), CheckFailure);
  EXPECT_THROW(write({tensor("__metadata__", FileDType::u8, {2}, "aa")}), CheckFailure);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THROW(write({tensor("a", FileDType::u8, {2}, "aaa")}), CheckFailure);
}

}  // namespace
}  // namespace weft
