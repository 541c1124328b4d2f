// The element types of GGUF files. A tensor's row is cut into blocks of equally many numbers, each of so many bytes.
//   docs/formats/gguf.md has the layout of each block.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace weft {

// Those that weft reads, with their numbers in files.
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q5_0 = 6,
  q8_0 = 8,
  q4_k = 12,
  q6_k = 14,
  bf16 = 30,
  mxfp4 = 39
};

struct GgufTypeInfo {
  GgufType type;
  std::string_view name;  // as llama.cpp writes it
  int64_t block;          // numbers in a block
  int64_t bytes;          // of a block
};
inline constexpr std::array<GgufTypeInfo, 9> kGgufTypes = {{{GgufType::f32, "F32", 1, 4},
                                                            {GgufType::f16, "F16", 1, 2},
                                                            {GgufType::bf16, "BF16", 1, 2},
                                                            {GgufType::q8_0, "Q8_0", 32, 34},
                                                            {GgufType::q5_0, "Q5_0", 32, 22},
                                                            {GgufType::q4_0, "Q4_0", 32, 18},
                                                            {GgufType::q6_k, "Q6_K", 256, 210},
                                                            {GgufType::q4_k, "Q4_K", 256, 144},
                                                            {GgufType::mxfp4, "MXFP4", 32, 17}}};

// nullptr where weft does not read type number `id`.
constexpr const GgufTypeInfo* find_gguf_type(uint32_t id) {
  for (const GgufTypeInfo& t : kGgufTypes)
    if (uint32_t(t.type) == id) return &t;
  return nullptr;
}
constexpr const GgufTypeInfo& info_of(GgufType type) { return *find_gguf_type(uint32_t(type)); }
constexpr std::string_view name_of(GgufType type) { return info_of(type).name; }
constexpr bool is_quantised(GgufType type) { return info_of(type).block > 1; }

}  // namespace weft
