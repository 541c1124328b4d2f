#include "weft/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::TempDir;

// A file of this header and this many zero bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &size, 8);
  return file + header + std::string(data_bytes, '\0');
}

// What parsing says: "ok", or the message.
std::string verdict(const std::string& file) {
  const std::string said = testing::error_of<FileError>([&] { parse_safetensors_header(file, "x.safetensors"); });
  return said.empty() ? "ok" : said;
}

std::string verdict(const std::string& header, size_t data_bytes) { return verdict(file_of(header, data_bytes)); }

#define EXPECT_VERDICT(kind, ...) \
  EXPECT_NE(verdict(__VA_ARGS__).find(": " kind ": "), std::string::npos) << verdict(__VA_ARGS__)

TEST(SafetensorsHeader, TellsNamesTypesShapesAndPlaces) {
  const SafetensorsHeader h = parse_safetensors_header(
      file_of(R"({"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},"__metadata__":{"format":"pt"},)"
              R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}   )",
              22),
      "x");

  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].name, "a");
  EXPECT_EQ(h.tensors[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(h.find("b")->dtype, FileDType::bf16);
  EXPECT_EQ(h.find("b")->begin, 16);
  EXPECT_EQ(h.find("c"), nullptr);
  EXPECT_EQ(h.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(verdict("{}", 0), "ok");
  EXPECT_EQ(verdict("\t\n {} \r\n", 0), "ok");
  EXPECT_EQ(verdict(R"({"a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})", 4), "ok");
  EXPECT_EQ(verdict(R"({"a":{"dtype":"I32","shape":[2,0],"data_offsets":[0,0]}})", 0), "ok");
  EXPECT_EQ(verdict(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3), "ok");
  EXPECT_EQ(verdict(R"({"a":{"dtype":"U8","later":{"x":[1,{}]},"shape":[1],"data_offsets":[0,1]}})", 1), "ok");
  for (const FileDTypeInfo& t : kFileDTypes)
    EXPECT_EQ(verdict(fmt::format(R"({{"a":{{"dtype":"{}","shape":[8],"data_offsets":[0,{}]}}}})", t.name, t.bits),
                      size_t(t.bits)),
              "ok")
        << t.name;
}

TEST(SafetensorsHeader, RefusesHeadersThatAreNotThere) {
  EXPECT_VERDICT("HeaderTooSmall", std::string(7, '\0'));
  EXPECT_VERDICT("HeaderTooLarge", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
  EXPECT_VERDICT("HeaderTooLarge", std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10));  // 100,000,001
  EXPECT_VERDICT("InvalidHeaderLength", std::string("\x03\0\0\0\0\0\0\0{}", 10));
}

TEST(SafetensorsHeader, RefusesHeadersThatAreNotPlainJson) {
  EXPECT_VERDICT("InvalidHeader", "{\"\xff\":1}", 0);
  for (const char* header :
       {"", "{", "[]", "7", "null", "{}{}", "{},", "// x\n{}", "\xef\xbb\xbf{}", "{\"a\":\"\\ud800\"}"})
    EXPECT_VERDICT("InvalidHeaderDeserialization", header, 0);
  EXPECT_VERDICT("InvalidHeaderDeserialization", std::string("{}\0hidden", 9), 0);
  EXPECT_VERDICT("InvalidHeaderDeserialization", std::string(200'000, '['), 0);
  EXPECT_VERDICT("InvalidHeaderDeserialization", R"({"a":{"x":)" + std::string(200'000, '['), 0);
}

TEST(SafetensorsHeader, RefusesTensorsThatAreNotDescribedRightly) {
  for (const char* info :
       {"1", "[]", "{}", R"({"dtype":"F32","shape":[1]})", R"({"shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","data_offsets":[0,4]})", R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":3,"shape":[1],"data_offsets":[0,4]})", R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})", R"({"dtype":"F32","shape":[1],"data_offsets":[0]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,2,4]})", R"({"dtype":"F32","shape":[1],"data_offsets":{}})",
        R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]})",
        R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})"})
    EXPECT_VERDICT("InvalidHeaderDeserialization", std::string("{\"a\":") + info + "}", 4);
}

TEST(SafetensorsHeader, RefusesMetadataThatIsNotTextByText) {
  for (const char* metadata :
       {"1", "[]", "\"x\"", R"({"a":1})", R"({"a":null})", R"({"a":{}})", R"({"a":"1","a":"2"})"})
    EXPECT_VERDICT("InvalidHeaderDeserialization", std::string("{\"__metadata__\":") + metadata + "}", 0);
  EXPECT_VERDICT("InvalidHeaderDeserialization", R"({"__metadata__":{},"__metadata__":{}})", 0);
  std::string many = R"({"__metadata__":{"x":"")";
  for (int i = 0; i < 100'000; ++i) many += fmt::format(R"(,"{}":"")", i);
  EXPECT_VERDICT("InvalidHeaderDeserialization", many + "}}", 0);
}

std::string two(const char* a, const char* b) {
  return fmt::format(
      R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})", a,
      b);
}

TEST(SafetensorsHeader, RefusesPlacesThatOverlapOrLeaveGaps) {
  EXPECT_EQ(verdict(two("[0,4]", "[4,8]"), 8), "ok");
  EXPECT_EQ(verdict(two("[4,8]", "[0,4]"), 8), "ok");
  EXPECT_VERDICT("InvalidOffset", two("[0,4]", "[0,4]"), 8);
  EXPECT_VERDICT("InvalidOffset", two("[0,4]", "[3,7]"), 8);
  EXPECT_VERDICT("InvalidOffset", two("[0,4]", "[5,9]"), 9);
  EXPECT_VERDICT("InvalidOffset", two("[1,5]", "[5,9]"), 9);
  EXPECT_VERDICT("InvalidOffset", two("[4,0]", "[4,8]"), 8);
  EXPECT_VERDICT("TensorInvalidInfo", two("[0,4]", "[4,9]"), 9);
  EXPECT_VERDICT("TensorInvalidInfo", two("[0,4]", "[4,18446744073709551615]"), 8);
  EXPECT_VERDICT("MetadataIncompleteBuffer", two("[0,4]", "[4,8]"), 7);
  EXPECT_VERDICT("MetadataIncompleteBuffer", two("[0,4]", "[4,8]"), 9);
  EXPECT_VERDICT("MetadataIncompleteBuffer", "{}", 1);
}

TEST(SafetensorsHeader, RefusesNamesGivenTwice) {
  EXPECT_VERDICT(
      "InvalidOffset",
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
      8);
}

TEST(SafetensorsHeader, RefusesSizesBeyondItsArithmetic) {
  for (const char* shape : {"[2,18446744073709551615]", "[2,9223372036854775807]", "[4611686018427387904,3,0]",
                            "[0,18446744073709551615]", "[4294967296,4294967296]"})
    EXPECT_VERDICT("ValidationOverflow",
                   fmt::format(R"({{"a":{{"dtype":"I32","shape":{},"data_offsets":[0,16]}}}})", shape), 16);
  EXPECT_VERDICT("MisalignedSlice", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2);
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_VERDICT("InvalidHeaderDeserialization",
                 R"({"a":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1]}})", 1);
}

TEST(SafetensorsHeader, NamesTheFileAndTheTensorInAllErrors) {
  const std::string message = verdict(R"({"wei\nrd":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(message.rfind("x.safetensors: TensorInvalidInfo: tensor \"wei\\nrd\"", 0), 0u) << message;
}

TEST(SafetensorsFile, ConformanceFilesAreJudgedAsTheReferenceDoes) {
  WEFT_NEEDS_SHARED();
  const auto dir = testing::shared_dir() / "data/conformance/safetensors";
  for (const auto& c : nlohmann::json::parse(testing::slurp(dir / "cases.json"))) {
    const std::string name = c["file"], expected = c["expected"];
    const std::string got = testing::error_of<FileError>([&] { SafetensorsFile::open(dir / name); });
    if (expected == "ok")
      EXPECT_EQ(got, "") << name;
    else if (expected.starts_with("error:("))
      EXPECT_NE(got, "") << name;
    else
      EXPECT_NE(got.find(": " + expected.substr(6) + ": "), std::string::npos) << name << "\n" << got;
  }
}

TEST(SafetensorsFile, ReadsFilesThatOthersWrote) {
  WEFT_NEEDS_SHARED();
  const auto dir = testing::shared_dir() / "data/conformance/safetensors";
  const SafetensorsFile codes = SafetensorsFile::open(dir / "real_jfk-codes.safetensors");
  ASSERT_EQ(codes.tensors().size(), 1u);
  EXPECT_EQ(codes.bytes(codes.tensors()[0]).size(), 13248u);
  EXPECT_EQ(int(codes.bytes(codes.tensors()[0])[0]), 0x61);
  EXPECT_NE(SafetensorsFile::open(dir / "real_multi_layer.safetensors").find("conv1.weight"), nullptr);
}

TEST(SafetensorsFile, SaysWhyAFileCannotBeOpened) {
  TempDir dir;
  EXPECT_THROW(SafetensorsFile::open(dir / "none.safetensors"), FileError);
  EXPECT_THROW(SafetensorsFile::open(dir.path()), FileError);
}

// Folders

std::string one_tensor(const std::string& name, uint8_t value) {
  std::string file = file_of("{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  file.back() = char(value);
  return file;
}

struct IndexedFolder {
  TempDir dir;
  IndexedFolder() {
    testing::spill(dir / "model-1.safetensors", one_tensor("a", 1));
    testing::spill(dir / "model-2.safetensors", one_tensor("b", 2));
  }
  void index(const std::string& weight_map) {
    testing::spill(dir / "model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":" + weight_map + "}");
  }
  std::string error() {
    return testing::error_of<FileError>([&] { SafetensorsFolder::open(dir.path()); });
  }
};

TEST(SafetensorsFolder, ReadsTheFilesOfAnIndex) {
  IndexedFolder f;
  f.index(R"({"a":"model-1.safetensors","b":"model-2.safetensors"})");
  const SafetensorsFolder folder = SafetensorsFolder::open(f.dir.path());
  ASSERT_EQ(folder.tensors().size(), 2u);
  EXPECT_EQ(int(folder.bytes(*folder.find("b"))[0]), 2);
  EXPECT_EQ(folder.find("c"), nullptr);
}

TEST(SafetensorsFolder, PrefersTheSingleFile) {
  IndexedFolder f;
  f.index(R"({"a":"absent.safetensors"})");
  testing::spill(f.dir / "model.safetensors", one_tensor("c", 3));
  EXPECT_NE(SafetensorsFolder::open(f.dir.path()).find("c"), nullptr);
}

TEST(SafetensorsFolder, RefusesAnIndexThatIsNotOfItsFiles) {
  IndexedFolder f;
  f.index(R"({"a":"model-1.safetensors","b":"model-3.safetensors"})");
  EXPECT_NE(f.error().find("\n  \"model-3.safetensors\""), std::string::npos) << f.error();
  f.index(R"({"a":"model-2.safetensors","b":"model-1.safetensors"})");
  EXPECT_NE(f.error().find("\"a\" is not in \"model-2.safetensors\""), std::string::npos) << f.error();
  EXPECT_NE(f.error().find("\"a\" is in \"model-1.safetensors\", but"), std::string::npos) << f.error();
  f.index(R"({"a":"model-1.safetensors","c":"model-2.safetensors"})");
  EXPECT_NE(f.error().find("\"b\" of \"model-2.safetensors\" is not in the index"), std::string::npos) << f.error();
  testing::spill(f.dir / "model-2.safetensors", one_tensor("a", 2));
  f.index(R"({"a":"model-1.safetensors","b":"model-2.safetensors"})");
  EXPECT_NE(f.error().find("\"a\" is in \"model-2.safetensors\", but"), std::string::npos) << f.error();
}

TEST(SafetensorsFolder, RefusesToLeaveItsFolder) {
  IndexedFolder f;
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "d/x.safetensors", "..\\\\x.safetensors", "", "..",
                           "x.safetensors\\u0000", ".safetensors", "config.json"}) {
    f.index(fmt::format(R"({{"a":"{}"}})", name));
    EXPECT_NE(f.error().find("\"weight_map.a\": expected the name of a .safetensors file"), std::string::npos)
        << name << "\n"
        << f.error();
  }
  f.index("[]");
  EXPECT_NE(f.error().find("\"weight_map\": expected an object"), std::string::npos) << f.error();
  f.index(R"({"a":"model-1.safetensors","a":"model-1.safetensors"})");
  EXPECT_NE(f.error().find("appears twice"), std::string::npos) << f.error();
}

TEST(SafetensorsFolder, SaysWhatItLooksFor) {
  TempDir dir;
  testing::spill(dir / "pytorch_model.bin", "");
  try {
    SafetensorsFolder::open(dir.path());
    FAIL();
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find("convert its pytorch_model.bin"), std::string::npos);
  }
}

TEST(SafetensorsFolder, ReadsARealIndexAndNamesWhatIsMissing) {
  WEFT_NEEDS_SHARED();
  TempDir dir;
  std::filesystem::copy_file(testing::shared_dir() / "data/conformance/hf_configs/qwen-vl.model.safetensors.index.json",
                             dir / "model.safetensors.index.json");
  try {
    SafetensorsFolder::open(dir.path());
    FAIL();
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find("model-00005-of-00005.safetensors"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace weft
