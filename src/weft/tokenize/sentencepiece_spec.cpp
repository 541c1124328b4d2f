#include "weft/tokenize/sentencepiece_spec.h"

#include <cstring>

#include "weft/base/varint.h"

namespace weft {
namespace {

enum Wire : uint64_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };

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
    wire = tag & 7;
    if (wire == kVarint)
      value = take_varint();
    else if (wire == kBytes)
      bytes = take(take_varint());
    else if (wire == kEight || wire == kFour)
      bytes = take(wire == kEight ? 8 : 4);
    else
      broken = true;
    return !broken;
  }

  // A number that comes in another way than its field does is an unknown field, as in the library.
  bool is(uint64_t field, Wire by) const { return number == field && wire == by; }

  uint64_t number = 0, wire = 0, value = 0;
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
    if (f.is(1, kBytes)) piece.text = f.bytes;
    if (f.is(2, kFour)) std::memcpy(&piece.score, f.bytes.data(), 4);
    if (f.is(3, kVarint) && f.value >= 1 && f.value <= 6) piece.kind = SentencePieceSpec::Kind(f.value);
  }
  spec.pieces.push_back(piece);
  return !f.broken;
}

bool read_trainer(std::string_view message, SentencePieceSpec& spec) {
  Fields f(message);
  while (f.next()) {
    if (f.is(3, kVarint)) spec.model_type = int(f.value);
    if (f.is(24, kVarint)) spec.spaces_are_suffixes = f.value != 0;
    if (f.is(35, kVarint)) spec.byte_fallback = f.value != 0;
  }
  return !f.broken;
}

bool read_normalizer(std::string_view message, SentencePieceSpec& spec) {
  Fields f(message);
  while (f.next()) {
    if (f.is(2, kBytes)) spec.character_map = f.bytes;
    if (f.is(3, kVarint)) spec.adds_dummy_prefix = f.value != 0;
    if (f.is(4, kVarint)) spec.removes_extra_spaces = f.value != 0;
    if (f.is(5, kVarint)) spec.escapes_spaces = f.value != 0;
  }
  return !f.broken;
}

}  // namespace

SentencePieceSpec read_sentencepiece_spec(std::string_view model) {
  SentencePieceSpec spec;
  Fields f(model);
  bool good = true;
  while (f.next()) {
    if (f.is(1, kBytes)) good = good && read_piece(f.bytes, spec);
    if (f.is(2, kBytes)) good = good && read_trainer(f.bytes, spec);
    if (f.is(3, kBytes)) good = good && read_normalizer(f.bytes, spec);
  }
  spec.whole = good && !f.broken;
  return spec;
}

}  // namespace weft
