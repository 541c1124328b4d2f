#include "weft/gguf/gguf_head.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/gguf/gguf_header.h"

namespace weft {
namespace {

template <class T>
void put(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void put_text(std::string& to, std::string_view text) {
  put(to, uint64_t(text.size()));
  to += text;
}

template <class T>
void put_numbers(std::string& to, GgufKind kind, std::span<const T> values) {
  put(to, uint32_t(kind));
  put(to, uint64_t(values.size()));
  for (const T value : values) put(to, value);
}

}  // namespace

std::string gguf_padding(int64_t bytes) {
  return std::string(size_t((GgufHead::kAlignment - bytes % GgufHead::kAlignment) % GgufHead::kAlignment), '\0');
}

int64_t gguf_bytes(GgufType type, int64_t rows, int64_t cols) {
  const GgufTypeInfo& t = info_of(type);
  WEFT_CHECK(cols % t.block == 0, "rows of {} numbers are no whole blocks of {}", cols, t.name);
  return rows * (cols / t.block) * t.bytes;
}

void GgufHead::key(std::string_view key, uint32_t kind) {
  WEFT_CHECK(std::find(names_.begin(), names_.end(), key) == names_.end(), "{} twice", key);
  names_.emplace_back(key);
  put_text(metadata_, key);
  put(metadata_, kind);
  ++num_keys_;
}

void GgufHead::text(std::string_view name, std::string_view value) {
  key(name, uint32_t(GgufKind::text));
  put_text(metadata_, value);
}
void GgufHead::u32(std::string_view name, int64_t value) {
  WEFT_CHECK(value >= 0 && value <= int64_t(UINT32_MAX), "{} = {}", name, value);
  key(name, uint32_t(GgufKind::u32));
  put(metadata_, uint32_t(value));
}
void GgufHead::f32(std::string_view name, double value) {
  key(name, uint32_t(GgufKind::f32));
  put(metadata_, float(value));
}
void GgufHead::flag(std::string_view name, bool value) {
  key(name, uint32_t(GgufKind::boolean));
  put(metadata_, uint8_t(value));
}
void GgufHead::texts(std::string_view name, const std::vector<std::string>& values) {
  key(name, uint32_t(GgufKind::array));
  put(metadata_, uint32_t(GgufKind::text));
  put(metadata_, uint64_t(values.size()));
  for (const std::string& value : values) put_text(metadata_, value);
}
void GgufHead::f32s(std::string_view name, std::span<const float> values) {
  key(name, uint32_t(GgufKind::array));
  put_numbers(metadata_, GgufKind::f32, values);
}
void GgufHead::i32s(std::string_view name, std::span<const int32_t> values) {
  key(name, uint32_t(GgufKind::array));
  put_numbers(metadata_, GgufKind::i32, values);
}

void GgufHead::tensor(std::string_view name, const std::vector<int64_t>& shape, GgufType type) {
  put_text(tensors_, name);
  put(tensors_, uint32_t(shape.size()));
  for (size_t i = shape.size(); i-- > 0;) put(tensors_, uint64_t(shape[i]));
  put(tensors_, uint32_t(type));
  put(tensors_, uint64_t(data_bytes_));
  ++num_tensors_;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  const int64_t bytes = gguf_bytes(type, rows, shape.empty() ? 1 : shape.back());
  data_bytes_ += bytes + int64_t(gguf_padding(bytes).size());
}

std::string GgufHead::bytes() const {
  std::string all = "GGUF";
  put(all, uint32_t(3));
  put(all, num_tensors_);
  put(all, num_keys_);
  all += metadata_;
  all += tensors_;
  return all + gguf_padding(int64_t(all.size()));
}

}  // namespace weft
