#include "weft/tokenize/sentencepiece_text.h"

#include <algorithm>

#include "weft/base/ascii.h"
#include "weft/tokenize/bpe.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

ByteTrie user_defined(const SentencePieceSpec& spec) {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (size_t id = 0; id < spec.pieces.size(); ++id)
    if (spec.pieces[id].kind == SentencePieceSpec::Kind::kUserDefined)
      keys.emplace_back(spec.pieces[id].text, int32_t(id));
  return ByteTrie(std::move(keys));
}

}  // namespace

SentencePieceText::SentencePieceText(const SentencePieceSpec& spec, const std::string& source)
    : symbols_(user_defined(spec)),
      suffix_(spec.adds_dummy_prefix && spec.spaces_are_suffixes),
      prefix_(spec.adds_dummy_prefix && !spec.spaces_are_suffixes),
      squeezes_(spec.removes_extra_spaces),
      space_(spec.escapes_spaces ? kBlank : std::string_view(" ")) {
  if (!spec.character_map.empty()) map_.emplace(std::string(spec.character_map), source);
  for (size_t i = 1; i < plain_.size(); ++i) {
    const char pair[] = {char(i), '\0'};
    const std::string_view one(pair, 1);
    std::string_view replacement;
    uint32_t node = ByteTrie::kRoot;
    plain_[i] = i != ' ' && !symbols_.step(node, char(i)) && (!map_ || map_->find(one, replacement) == 0);
    for (char next = 1; plain_[i] && map_ && next < '\x7f'; ++next)
      plain_[i] = !map_->begins_any(std::string{char(i), next});
    plain_[i] = plain_[i] && (!map_ || !map_->begins_any(std::string{char(i), '\x7f'}));
  }
}

std::string_view SentencePieceText::first_part(std::string_view text, size_t& bytes) const {
  if (symbols_.longest(text, bytes) >= 0) return text.substr(0, bytes);
  std::string_view replacement;
  if (map_ && (bytes = map_->find(text, replacement)) > 0) return replacement;
  const Character c = first_character(text);
  bytes = c.bytes;
  return c.code == kReplacement && c.bytes == 1 ? "\xef\xbf\xbd" : text.substr(0, bytes);
}

size_t SentencePieceText::end_of_plain(std::string_view text, size_t at) const {
  while (at < text.size() && is_plain(text[at])) ++at;
  // The last character may combine with the next.
  return at < text.size() && !is_ascii(text[at]) && at > 0 ? at - 1 : at;
}

std::string_view SentencePieceText::without_spaces_before(std::string_view text) const {
  while (squeezes_ && !text.empty()) {
    size_t bytes;
    if (first_part(text, bytes) != " ") break;
    text.remove_prefix(bytes);
  }
  return text;
}

std::string SentencePieceText::made_of(std::string_view text) const {
  std::string out;
  text = without_spaces_before(text);
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2 + 2 * space_.size());
  if (prefix_) out += space_;
  bool after_space = squeezes_;
  for (size_t at = 0, bytes; at < text.size(); at += bytes) {
    if (const size_t end = end_of_plain(text, at); end > at) {
      out += text.substr(at, end - at);
      bytes = end - at;
      after_space = false;
      continue;
    }
    std::string_view part = first_part(text.substr(at), bytes);
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    if (!part.empty()) after_space = squeezes_ && part.ends_with(' ');
    for (size_t space; (space = part.find(' ')) != std::string_view::npos; part.remove_prefix(space + 1))
      (out += part.substr(0, space)) += space_;
    out += part;
  }
  while (squeezes_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
  if (suffix_) out += space_;
  return out;
}

}  // namespace weft
