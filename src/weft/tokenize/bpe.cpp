#include "weft/tokenize/bpe.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/tokenize/unicode.h"

namespace weft {

Bpe::Bpe(Spec spec) : spec_(std::move(spec)) {
  for (int b = 0; b < 256; ++b) {
    const char byte = char(b);
    byte_ids_[size_t(b)] = spec_.vocabulary.find(spec_.bytes ? std::string(1, byte) : fmt::format("<0x{:02X}>", b));
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace& space) const {
  if (!spec_.cut_before_blanks) return encode_word(piece, ids, space);
  while (!piece.empty()) {
    size_t at = 0;
    while (piece.substr(at).starts_with(kBlank)) at += kBlank.size();
    const size_t end = std::min(piece.find(kBlank, at), piece.size());
    encode_word(piece.substr(0, end), ids, space);
    piece.remove_prefix(end);
  }
}

void Bpe::encode_word(std::string_view word, std::vector<int32_t>& ids, EncodeSpace& space) const {
  space.caches.encode(word, ids, [&] { merge_word(word, ids); });
}

void Bpe::merge_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (const int32_t whole = spec_.whole_first ? spec_.vocabulary.find(word) : -1; whole >= 0)
    return ids.push_back(whole);
  const size_t begin = ids.size();
  add_symbols(word, ids);
  ids.resize(begin + merge_all(spec_.merges, {ids.data() + begin, ids.size() - begin}));
}

void Bpe::add_symbols(std::string_view word, std::vector<int32_t>& ids) const {
  if (!spec_.bytes) return add_characters(word, ids);
  bool unknown_before = false;
  for (unsigned char c : word) {
    const int32_t id = byte_ids_[c] >= 0 ? byte_ids_[c] : spec_.unknown;
    const bool unknown = byte_ids_[c] < 0;
    if (id >= 0 && !(unknown && unknown_before && spec_.fuse_unknown)) ids.push_back(id);
    unknown_before = unknown;
  }
}

void Bpe::add_characters(std::string_view word, std::vector<int32_t>& ids) const {
  bool unknown_before = false;
  std::string symbol;
  for (size_t at = 0; at < word.size();) {
    const size_t end = std::min(word.size(), at + first_character(word.substr(at)).bytes);
    symbol.assign(at == 0 ? "" : spec_.later_prefix);
    symbol += word.substr(at, end - at);
    if (end == word.size()) symbol += spec_.last_suffix;
    at = end;
    const int32_t id = spec_.vocabulary.find(symbol);
    const bool unknown = id < 0 && !(spec_.byte_fallback && add_fallback(symbol, ids));
    if (id >= 0)
      ids.push_back(id);
    else if (unknown && spec_.unknown >= 0 && !(unknown_before && spec_.fuse_unknown))
      ids.push_back(spec_.unknown);
    unknown_before = unknown;
  }
}

bool Bpe::add_fallback(std::string_view symbol, std::vector<int32_t>& ids) const {
  for (unsigned char c : symbol)
    if (byte_ids_[c] < 0) return false;
  for (unsigned char c : symbol) ids.push_back(byte_ids_[c]);
  return true;
}

}  // namespace weft
