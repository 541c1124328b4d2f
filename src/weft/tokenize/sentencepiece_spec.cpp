#include "weft/tokenize/sentencepiece_spec.h"

#include <cstring>

#include "weft/base/varint.h"

namespace weft {
namespace {

// One field of a message of protocol buffers after the other.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // False at the end, or where the message is broken.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = take_varint();
    number = tag >> 3;
    value = 0;
    bytes = {};
    const uint64_t type = tag & 7;
    if (type == 0)
      value = take_varint();
    else if (type == 2)
      bytes = take(take_varint());
    else if (type == 1 || type == 5)
      bytes = take(type == 1 ? 8 : 4);
    else
      broken = true;
    return !broken;
  }

  uint64_t number = 0, value = 0;
  std::string_view bytes;
  bool broken = false;

 private:
  uint64_t take_varint() {
    const auto next = [&] {
      const std::string_view byte = take(1);
      return byte.empty() ? '\0' : byte[0];
    };
    const std::optional<uint64_t> value = read_varint(next);
    broken = broken || !value;
    return value.value_or(0);
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) {
      broken = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

bool read_piece(std::string_view message, SentencePieceSpec& spec) {
  Fields f(message);
  SentencePieceSpec::Piece piece;
  while (f.next()) {
    if (f.number == 1) piece.text = f.bytes;
    if (f.number == 2 && f.bytes.size() == sizeof piece.score) std::memcpy(&piece.score, f.bytes.data(), 4);
    if (f.number == 3 && f.value >= 1 && f.value <= 6) piece.kind = SentencePieceSpec::Kind(f.value);
  }
  spec.pieces.push_back(piece);
  return !f.broken;
}

bool read_trainer(std::string_view message, SentencePieceSpec& spec) {
  Fields f(message);
  while (f.next()) {
    if (f.number == 3) spec.model_type = int(f.value);
    if (f.number == 24) spec.spaces_are_suffixes = f.value != 0;
    if (f.number == 35) spec.byte_fallback = f.value != 0;
  }
  return !f.broken;
}

bool read_normalizer(std::string_view message, SentencePieceSpec& spec) {
  Fields f(message);
  while (f.next()) {
    if (f.number == 2) spec.character_map = f.bytes;
    if (f.number == 3) spec.adds_dummy_prefix = f.value != 0;
    if (f.number == 4) spec.removes_extra_spaces = f.value != 0;
    if (f.number == 5) spec.escapes_spaces = f.value != 0;
  }
  return !f.broken;
}

}  // namespace

SentencePieceSpec read_sentencepiece_spec(std::string_view model) {
  SentencePieceSpec spec;
  Fields f(model);
  bool good = true;
  while (f.next()) {
    if (f.number == 1) good = good && read_piece(f.bytes, spec);
    if (f.number == 2) good = good && read_trainer(f.bytes, spec);
    if (f.number == 3) good = good && read_normalizer(f.bytes, spec);
  }
  spec.whole = good && !f.broken;
  return spec;
}

}  // namespace weft
