#include "weft/gguf/gguf_header.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support.h"
#include "weft/base/error.h"
#include "weft/gguf/gguf_file.h"
#include "weft/gguf/gguf_head.h"

namespace weft {
namespace {

using testing::error_of;

// A file with one of each kind of key and two tensors.
GgufHead usual() {
  GgufHead head;
  head.text("general.architecture", "llama");
  head.u32("llama.block_count", 2);
  head.f32("llama.eps", 0.5);
  head.flag("on", true);
  head.texts("tokens", {"a", "", "\xe2\x96\x81"});
  head.f32s("scores", std::vector<float>{1, -2});
  head.i32s("kinds", std::vector<int32_t>{3, -1});
  head.tensor("a.weight", {2, 32}, GgufType::q8_0);
  head.tensor("b.bias", {3}, GgufType::f32);
  return head;
}
std::string file_of(const GgufHead& head) { return head.bytes() + std::string(size_t(head.data_bytes()), '\1'); }

std::string refusal_of(const std::string& file) {
  return error_of<FileError>([&] { parse_gguf_header(file, "x.gguf"); });
}

// The file with `number` of type T in place of what stands behind the first `text`.
template <class T>
std::string with(std::string file, std::string_view text, size_t behind, T number) {
  std::memcpy(file.data() + file.find(text) + text.size() + behind, &number, sizeof number);
  return file;
}

TEST(GgufHeader, ReadsWhatWasWritten) {
  const std::string file = file_of(usual());
  const GgufHeader h = parse_gguf_header(file, "x.gguf");
  const GgufFields f(h.metadata, "x.gguf");
  EXPECT_EQ(f.text("general.architecture"), "llama");
  EXPECT_EQ(f.integer("llama.block_count", 1, 9), 2);
  EXPECT_EQ(f.number("llama.eps"), 0.5);
  EXPECT_EQ(f.number("llama.block_count"), 2) << "a whole number is a number";
  EXPECT_TRUE(f.flag("on", false));
  EXPECT_EQ(f.texts("tokens"), (std::vector<std::string_view>{"a", "", "\xe2\x96\x81"}));
  EXPECT_EQ(f.numbers("scores"), (std::vector<double>{1, -2}));
  EXPECT_EQ(f.integers("kinds"), (std::vector<int64_t>{3, -1}));
  EXPECT_EQ(f.integer("absent", 0, 9, 7), 7);
  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(h.tensors[0].end - h.tensors[0].begin, 68);
  EXPECT_EQ(h.tensors[1].begin - h.tensors[0].begin, 96) << "padded to 32";
  EXPECT_EQ(h.tensors[0].begin % 32, 0);
  EXPECT_EQ(h.find("b.bias"), &h.tensors[1]);
  EXPECT_EQ(h.find("c"), nullptr);
}

// The first bytes of a file of version 3, as its specification has them.
TEST(GgufHeader, WritesTheBytesOfTheSpecification) {
  GgufHead head;
  head.u32("k", 5);
  head.tensor("t", {4, 32}, GgufType::q4_0);
  const std::string expected = std::string("GGUF\3\0\0\0", 8) + std::string("\1\0\0\0\0\0\0\0", 8) +
                               std::string("\1\0\0\0\0\0\0\0", 8) + std::string("\1\0\0\0\0\0\0\0k", 9) +
                               std::string("\4\0\0\0\5\0\0\0", 8) + std::string("\1\0\0\0\0\0\0\0t", 9) +
                               std::string("\2\0\0\0", 4) + std::string("\x20\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 16) +
                               std::string("\2\0\0\0\0\0\0\0\0\0\0\0", 12);
  EXPECT_EQ(head.bytes().substr(0, expected.size()), expected);
  EXPECT_EQ(head.bytes().size() % 32, 0u);
  EXPECT_EQ(head.data_bytes(), 4 * 18 + 24);
}

TEST(GgufHeader, RefusesEveryBeginningOfAFile) {
  const std::string file = file_of(usual());
  const size_t needed = file.size() - 32 + 12;  // the last tensor has 12 bytes, and padding that may be missing
  for (size_t bytes = 0; bytes < needed; ++bytes) EXPECT_SAYS(refusal_of(file.substr(0, bytes)), "x.gguf: ") << bytes;
  EXPECT_EQ(refusal_of(file.substr(0, needed)), "");
}

TEST(GgufHeader, NamesWhatIsHostile) {
  const std::string file = file_of(usual());
  const uint64_t huge = ~uint64_t{0};
  EXPECT_SAYS(refusal_of("no file of this kind"), "no GGUF file");
  EXPECT_SAYS(refusal_of(with(file, "GGUF", 0, uint32_t{1})), "version 1");
  EXPECT_SAYS(refusal_of(with(file, "GGUF", 0, uint32_t{0x03000000})), "big-endian");
  EXPECT_SAYS(refusal_of(with(file, "GGUF", 4, huge)), "the name of tensor 2");
  EXPECT_SAYS(refusal_of(with(file, "GGUF", 12, huge)), "cut short");  // keys
  EXPECT_SAYS(refusal_of(with(file, "GGUF", 20, huge)), "cut short");  // the length of a name
  EXPECT_SAYS(refusal_of(with(file, "block_count", 0, uint32_t{77})), "llama.block_count");
  EXPECT_SAYS(refusal_of(with(file, "tokens", 8, huge)), "\"tokens\"");  // values of a list
  EXPECT_SAYS(refusal_of(with(file, "scores", 8, uint64_t{1} << 62)), "\"scores\"");
  EXPECT_SAYS(refusal_of(with(file, "scores", 4, uint32_t{9})), "list of type 9");  // lists of lists
  EXPECT_SAYS(refusal_of(with(file, "a.weight", 0, uint32_t{5})), "5 dims");
  EXPECT_SAYS(refusal_of(with(file, "a.weight", 4, huge)), "a.weight");
  EXPECT_SAYS(refusal_of(with(file, "a.weight", 4, uint64_t{0})), "size of 0");
  EXPECT_SAYS(refusal_of(with(file, "a.weight", 4, uint64_t{33})), "whole blocks of Q8_0");
  EXPECT_SAYS(refusal_of(with(file, "a.weight", 12, uint64_t{1} << 40)), "ends at byte");
  EXPECT_SAYS(refusal_of(with(file, "a.weight", 24, huge)), "behind the end");
  EXPECT_SAYS(refusal_of(with(file, "b.bias", 16, uint64_t{32})), "overlap");
  EXPECT_SAYS(refusal_of(with(file, "a.weight", 24, uint64_t{8})), "alignment");
}

TEST(GgufHeader, RefusesNamesThatAreThereTwice) {
  GgufHead tensors;
  tensors.tensor("t", {1}, GgufType::f32);
  tensors.tensor("u", {1}, GgufType::f32);
  std::string file = file_of(tensors);
  file[file.find("u")] = 't';
  EXPECT_SAYS(refusal_of(file), "\"t\" is there twice");
  GgufHead keys;
  keys.u32("key_a", 1);
  keys.u32("key_b", 1);
  file = file_of(keys);
  file[file.find("key_b") + 4] = 'a';
  EXPECT_SAYS(refusal_of(file), "\"key_a\" is there twice");
}

TEST(GgufHeader, AlignsAsTheFileSays) {
  GgufHead head;
  head.u32("general.alignment", 64);
  head.tensor("t", {1}, GgufType::f32);
  std::string file = head.bytes();
  file.resize((file.size() + 63) / 64 * 64 + 4);
  EXPECT_EQ(parse_gguf_header(file, "x").tensors[0].begin, int64_t(file.size()) - 4);
  GgufHead odd;
  odd.u32("general.alignment", 48);
  EXPECT_SAYS(refusal_of(odd.bytes()), "a power of two");
}

TEST(GgufHeader, TensorsOfOtherTypesAreListedAndNotRead) {
  testing::TempDir dir;
  testing::spill(dir / "x.gguf", with(file_of(usual()), "a.weight", 20, uint32_t{13}));
  const GgufFile file(dir / "x.gguf");
  float x;
  EXPECT_SAYS(error_of<FileError>([&] { file.read_row(*file.find("a.weight"), 0, 0, {&x, 1}); }), "type 13");
  file.read_row(*file.find("b.bias"), 0, 2, {&x, 1});
  EXPECT_TRUE(is_gguf(dir / "x.gguf"));
  EXPECT_FALSE(is_gguf(dir.path()));
  EXPECT_FALSE(is_gguf(dir / "y.gguf"));
}

TEST(GgufHeader, FieldsSayWhatWasExpected) {
  const std::string bytes = file_of(usual());
  const GgufHeader h = parse_gguf_header(bytes, "x.gguf");
  const GgufFields f(h.metadata, "x.gguf");
  EXPECT_EQ(error_of<FileError>([&] { f.integer("llama.block_count", 3, 9); }),
            "x.gguf: \"llama.block_count\": expected a whole number from 3 to 9, got 2");
  EXPECT_EQ(error_of<FileError>([&] { f.text("none"); }), "x.gguf: \"none\": is missing");
  EXPECT_SAYS(error_of<FileError>([&] { f.texts("scores"); }), "expected a list of texts, got a list of 2");
  EXPECT_SAYS(error_of<FileError>([&] { f.integers("scores"); }), "expected a list of whole numbers");
}

TEST(GgufFile, ReadsAnyPartOfARow) {
  testing::TempDir dir;
  std::string file = usual().bytes();
  for (int i = 0; i < 2; ++i) {
    file += std::string("\0\x3c", 2);  // a scale of 1
    for (int j = 0; j < 32; ++j) file += char(32 * i + j);
  }
  file += std::string(60, '\0');
  testing::spill(dir / "x.gguf", file);
  const GgufFile gguf(dir / "x.gguf");
  std::vector<float> x(5);
  gguf.read_row(*gguf.find("a.weight"), 1, 27, x);
  EXPECT_EQ(x, (std::vector<float>{59, 60, 61, 62, 63}));
}

}  // namespace
}  // namespace weft
