#include "weft/data/id_view.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int64_t kMostIds = std::numeric_limits<int32_t>::max();

template <class T>
T element(const MappedFile& file, int64_t i) {
  T value;
  std::memcpy(&value, file.bytes().data() + i * int64_t(sizeof(T)), sizeof(T));
  return value;
}

// Calls f.operator()<T>() with the type that `type` names.
template <class F>
auto with_type(IdType type, const F& f) {
  switch (type) {
    case IdType::u8:
      return f.template operator()<uint8_t>();
    case IdType::i8:
      return f.template operator()<int8_t>();
    case IdType::i16:
      return f.template operator()<int16_t>();
    case IdType::i32:
      return f.template operator()<int32_t>();
    case IdType::i64:
      return f.template operator()<int64_t>();
    case IdType::u16:
      return f.template operator()<uint16_t>();
    case IdType::u32:
      return f.template operator()<uint32_t>();
  }
  WEFT_CHECK(false, "id type {}", int(type));
}

}  // namespace

int64_t bytes_of(IdType type) {
  constexpr int64_t kBytes[] = {1, 1, 2, 4, 8, 2, 4};
  return kBytes[size_t(type)];
}

int64_t largest_of(IdType type) {
  constexpr int64_t kLargest[] = {255, 127, 32767, kMostIds, kMostIds, 65535, kMostIds};
  return kLargest[size_t(type)];
}

IdType id_type_named(const std::string& dtype) {
  if (dtype == "uint16") return IdType::u16;
  if (dtype == "uint32") return IdType::u32;
  if (dtype == "int32") return IdType::i32;
  throw ConfigError(fmt::format("token dtype \"{}\": there are uint16 and uint32", dtype));
}

template <class T>
void IdView::copy(int64_t first, std::span<int32_t> ids) const {
  // One unsigned comparison finds negative ids too. No early exit: the loop is vectorised.
  const uint64_t end = uint64_t(vocab_size > 0 ? std::min(vocab_size, kMostIds + 1) : kMostIds + 1);
  const std::byte* from = file->bytes().data() + first * int64_t(sizeof(T));
  bool bad = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    T id;
    std::memcpy(&id, from + i * sizeof(T), sizeof(T));
    bad |= uint64_t(int64_t(id)) >= end;
    ids[i] = int32_t(id);
  }
  // Behind a new end that is within this page there are zeros.
  if (!ids.empty() && from[ids.size() * sizeof(T) - 1] == std::byte{0}) file->check_whole();
  if (!bad) return;
  for (size_t i = 0; i < ids.size(); ++i)
    if (uint64_t(int64_t(element<T>(*file, first + int64_t(i)))) >= end) fail(first + int64_t(i));
}

void IdView::read(int64_t first, std::span<int32_t> ids) const {
  WEFT_CHECK(first >= 0 && first <= size && int64_t(ids.size()) <= size - first, "{} tokens from {} on, of {}",
             ids.size(), first, size);
  with_type(type, [&]<class T>() { copy<T>(first, ids); });
}

void IdView::fail(int64_t token) const {
  const std::string where =
      fmt::format("{}: token {} at byte {} is {}", file->path().string(), token, token * bytes_of(type),
                  with_type(type, [&]<class T>() { return std::to_string(element<T>(*file, token)); }));
  if (vocab_size == 0) throw FileError(fmt::format("{}, which is no token id; is data.dtype wrong?", where));
  throw FileError(fmt::format(
      "{}, but the model's vocabulary has {} ids (0 to {}); is the file of another tokenizer, or data.dtype wrong?",
      where, vocab_size, vocab_size - 1));
}

std::string hash_of(const MappedFile& file) {
  constexpr size_t kPiece = 1 << 20, kPieces = 64;
  const auto bytes = file.bytes();
  const std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state(XXH64_createState(), XXH64_freeState);
  XXH64_reset(state.get(), bytes.size());
  if (bytes.size() <= kPiece * kPieces) {
    XXH64_update(state.get(), bytes.data(), bytes.size());
  } else {
    const size_t last = bytes.size() - kPiece;  // where the last piece begins
    for (size_t i = 0; i < kPieces; ++i)
      XXH64_update(state.get(), bytes.data() + last / (kPieces - 1) * i + (i == kPieces - 1 ? last % (kPieces - 1) : 0),
                   kPiece);
  }
  file.check_whole();
  return fmt::format("{}:{:016x}", bytes.size(), XXH64_digest(state.get()));
}

}  // namespace weft
