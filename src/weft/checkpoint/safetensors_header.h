// The header of a safetensors file: which tensors it holds, and where. docs/formats/safetensors.md
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Element types of the format, by increasing alignment: the order in which its writers lay tensors out (last first).
enum class FileDType : uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};

struct FileDTypeInfo {
  std::string_view name;  // as written in files
  int64_t bits;           // of one element
};
inline constexpr std::array<FileDTypeInfo, 22> kFileDTypes = {
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};

constexpr std::string_view name_of(FileDType t) { return kFileDTypes[size_t(t)].name; }
constexpr int64_t bits_of(FileDType t) { return kFileDTypes[size_t(t)].bits; }

struct SafetensorsEntry {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes of the data section

  int64_t num_elements() const;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // by offset: together they cover the data section
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // offset of the data section in the file

  // nullptr where there is none of this name.
  const SafetensorsEntry* find(std::string_view name) const;

 private:
  friend SafetensorsHeader parse_safetensors_header(std::string_view, std::string_view);
  std::vector<uint32_t> by_name_;  // tensors sorted by name
};

// Judges all of a file, given its bytes. What it returns is safe to use: every range lies within the file, ranges
// neither overlap nor leave gaps, sizes are those of shape and dtype, and names are unique. Takes memory in proportion
// to the header's actual bytes, whatever it claims. Throws FileError "SOURCE: CLASS: what": the classes are those of
// the reference implementation (HeaderTooSmall, HeaderTooLarge, InvalidHeaderLength, InvalidHeader,
// InvalidHeaderDeserialization, InvalidOffset, ValidationOverflow, MisalignedSlice, TensorInvalidInfo,
// MetadataIncompleteBuffer).
SafetensorsHeader parse_safetensors_header(std::string_view file, std::string_view source);

}  // namespace weft
