// What stands before the tensors of a GGUF file: metadata, and where each tensor is. docs/formats/gguf.md
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/gguf/gguf_type.h"

namespace weft {

// Types of metadata, with their numbers in files.
enum class GgufKind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

// A list of values of one kind. Numbers are the file's bytes; texts are views of them. Lists of lists are refused.
struct GgufArray {
  GgufKind kind = GgufKind::u8;
  int64_t count = 0;
  std::span<const std::byte> numbers = {};
  std::vector<std::string_view> texts = {};
};
using GgufValue = std::variant<bool, uint64_t, int64_t, double, std::string_view, GgufArray>;
using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

struct GgufTensor {
  std::string name;
  uint32_t type = 0;            // its number in the file: find_gguf_type says whether weft reads it
  std::vector<int64_t> shape;   // rows first, as other programs write shapes: the file has it the other way round
  int64_t begin = 0, end = -1;  // bytes in the file; -1: of a type that weft does not know the size of

  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;  // all but the last size, multiplied
};

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file

  const GgufTensor* find(std::string_view name) const;  // nullptr where there is none of this name
};

// Judges all of a file of version 2 or 3, given its bytes, which the header's views borrow. What it returns is safe to
// use: every tensor of a type that weft reads has whole blocks inside the file, and none overlaps another; names of
// tensors and keys are unique, and texts of keys UTF-8. Takes memory in proportion to the file's bytes, whatever its
// counts claim. Throws FileError that begins with `source`.
GgufHeader parse_gguf_header(std::string_view file, std::string_view source);

// Reads metadata key by key. Each getter checks kind and range and throws FileError such as
//   x.gguf: "llama.block_count": expected a whole number from 1 to 16384, got "2"
// Whole numbers may be of any of the format's kinds. The header and the source are borrowed.
class GgufFields {
 public:
  GgufFields(const GgufMetadata& metadata, std::string source) : metadata_(metadata), source_(std::move(source)) {}

  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // The keys that begin so, sorted.
  std::vector<std::string> keys(std::string_view beginning) const;
  // Without a fallback the key is required.
  int64_t integer(std::string_view key, int64_t min, int64_t max) const;
  int64_t integer(std::string_view key, int64_t min, int64_t max, int64_t fallback) const;
  // The id of a token; -1 where the key is missing or says that there is none (-1, or 2^32 - 1 as llama.cpp has it).
  int64_t token_id(std::string_view key) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double fallback) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  // Lists; required.
  const std::vector<std::string_view>& texts(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;

  // `source: "key"`, with which a message about it begins.
  std::string where(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, std::string_view expected) const;

 private:
  const GgufValue& value(std::string_view key) const;

  const GgufMetadata& metadata_;
  std::string source_;
};

}  // namespace weft
