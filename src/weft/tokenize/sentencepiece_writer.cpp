#include "weft/tokenize/sentencepiece_writer.h"

#include <algorithm>

namespace weft {
namespace {

// One message of protocol buffers, field by field. Numbers are those of sentencepiece_model.proto.
class Message {
 public:
  void number(uint64_t field, int64_t value) {
    varint(field << 3);
    varint(uint64_t(value));
  }
  void text(uint64_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  void real(uint64_t field, float value) {
    varint(field << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += char(value | 0x80);
    bytes_ += char(value);
  }
  std::string bytes_;
};

using Piece = SentencePieceSpec::Piece;

}  // namespace

std::string write_sentencepiece(const SentencePieceSpec& spec, int32_t beginning, int32_t end) {
  Message model, trainer, normalizer;
  for (const Piece& p : spec.pieces) {
    Message piece;
    piece.text(1, p.text);
    piece.real(2, p.score);
    piece.number(3, int64_t(p.kind));
    model.text(1, piece.bytes());
  }
  const auto unknown = std::find_if(spec.pieces.begin(), spec.pieces.end(),
                                    [](const Piece& p) { return p.kind == SentencePieceSpec::Kind::kUnknown; });
  trainer.number(3, spec.model_type);
  trainer.number(24, spec.spaces_are_suffixes);
  trainer.number(35, spec.byte_fallback);
  trainer.number(40, unknown - spec.pieces.begin());
  trainer.number(41, beginning);
  trainer.number(42, end);
  trainer.number(43, -1);
  const auto name = [&](uint64_t field, int64_t id) {
    if (id >= 0 && id < int64_t(spec.pieces.size())) trainer.text(field, spec.pieces[size_t(id)].text);
  };
  name(45, unknown - spec.pieces.begin());
  name(46, beginning);
  name(47, end);
  normalizer.text(1, "identity");
  normalizer.number(3, spec.adds_dummy_prefix);
  normalizer.number(4, spec.removes_extra_spaces);
  normalizer.number(5, spec.escapes_spaces);
  model.text(2, trainer.bytes());
  model.text(3, normalizer.bytes());
  return model.bytes();
}

}  // namespace weft
