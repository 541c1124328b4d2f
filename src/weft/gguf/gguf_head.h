// Writing GGUF files: what stands before the tensors, and where each of them goes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/gguf/gguf_type.h"

namespace weft {

// Collects metadata and tensors; bytes() is then all of a file of version 3 before its first tensor. Keys and tensors
// are written in the order they came in. Throws nothing; a key or tensor of the same name twice is a CheckFailure, and
// so is a row that is no whole blocks of its type.
class GgufHead {
 public:
  static constexpr int64_t kAlignment = 32;

  void text(std::string_view key, std::string_view value);
  void u32(std::string_view key, int64_t value);
  void f32(std::string_view key, double value);
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, const std::vector<std::string>& values);
  void f32s(std::string_view key, std::span<const float> values);
  void i32s(std::string_view key, std::span<const int32_t> values);

  // Shape: rows first. The tensor's bytes follow those of the one before, padded to kAlignment.
  void tensor(std::string_view name, const std::vector<int64_t>& shape, GgufType type);

  std::string bytes() const;
  int64_t data_bytes() const { return data_bytes_; }  // of all tensors, with padding

 private:
  void key(std::string_view key, uint32_t kind);

  std::string metadata_, tensors_;
  std::vector<std::string> names_;
  uint64_t num_keys_ = 0, num_tensors_ = 0;
  int64_t data_bytes_ = 0;
};

// The zeros that follow so many bytes of a tensor.
std::string gguf_padding(int64_t bytes);
int64_t gguf_bytes(GgufType type, int64_t rows, int64_t cols);

}  // namespace weft
