#include "weft/tokenize/sentencepiece_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

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

namespace {

using Kind = SentencePieceSpec::Kind;

constexpr char32_t kNothing = 0xffffffff, kBlankCode = 0x2581;

// As the library counts: by the first byte.
size_t character_bytes(std::string_view text) {
  return text.empty() ? 0 : std::min(text.size(), bytes_of_character(text[0]));
}
char32_t code_of(std::string_view character) {
  return uint8_t(character[0]) < 0x80 ? char32_t(character[0]) : first_character(character).code;
}
constexpr size_t kFew = 129;
size_t few_of(char32_t code) { return code < 128 ? code : code == kBlankCode ? 128 : kFew; }

// The higher a piece's score, the lower the rank of the pairs that it is made of.
std::vector<uint32_t> ranks_of(const std::vector<SentencePieceSpec::Piece>& pieces) {
  std::vector<float> scores;
  for (const auto& p : pieces) scores.push_back(p.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  for (const auto& p : pieces)
    ranks.push_back(
        uint32_t(std::lower_bound(scores.begin(), scores.end(), p.score, std::greater<>()) - scores.begin()));
  return ranks;
}

}  // namespace

bool SentencePieceEncoder::knows(const SentencePieceSpec& spec) {
  if (!spec.whole || spec.model_type == SentencePieceSpec::kWords) return false;
  return std::all_of(spec.pieces.begin(), spec.pieces.end(), [&](const auto& p) {
    return std::isfinite(p.score) && (p.kind != Kind::kUnused || spec.model_type == SentencePieceSpec::kUnigram);
  });
}

SentencePieceEncoder::SentencePieceEncoder(const SentencePieceSpec& spec, const std::string& source)
    : model_type_(spec.model_type), text_(spec, source), byte_fallback_(spec.byte_fallback) {
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const auto& p = spec.pieces[id];
    if (!p.is_in_texts()) reserved_.emplace(p.text, int32_t(id));
    if (p.kind == Kind::kUnknown) unknown_ = int32_t(id);
  }
  for (int b = 0; b < 256 && byte_fallback_; ++b) {
    const auto found = reserved_.find(fmt::format("<0x{:02X}>", b));
    byte_ids_[size_t(b)] = found == reserved_.end() ? unknown_ : found->second;
  }
  if (is_unigram())
    read_likeliest(spec);
  else
    read_pairs(spec);
}

void SentencePieceEncoder::encode(std::string_view made, std::vector<int32_t>& ids, Space& space) const {
  if (is_unigram())
    encode_likeliest(made, ids, space);
  else
    encode_pairs(made, ids, space);
}

size_t SentencePieceEncoder::cut(std::string_view made, size_t from) const {
  if (is_unigram() || from >= made.size()) return made.size();  // scores are sums from the beginning, and rounded
  while (from > 0 && (uint8_t(made[from]) & 0xc0) == 0x80) --from;
  char32_t before = kNothing;
  for (size_t at = from; at < made.size();) {
    const std::string_view character = made.substr(at, character_bytes(made.substr(at)));
    const char32_t code = code_of(character);
    if (before != kNothing && !may_join(before, code)) return at;
    before = code;
    at += character.size();
  }
  return made.size();
}

// What is unknown is its bytes, or one token in the place of several.
void SentencePieceEncoder::add_unknown(std::string_view characters, std::vector<int32_t>& ids, size_t begin) const {
  if (byte_fallback_) {
    for (unsigned char c : characters) ids.push_back(byte_ids_[c]);
  } else if (ids.size() == begin || ids.back() != unknown_) {
    ids.push_back(unknown_);
  }
}

// --- a unigram model ---

void SentencePieceEncoder::read_likeliest(const SentencePieceSpec& spec) {
  constexpr float kUnknownPenalty = 10;
  float least = FLT_MAX;
  most_ = FLT_MIN;
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const auto& p = spec.pieces[id];
    scores_.push_back({p.score, p.kind == Kind::kUserDefined});
    if (p.kind == Kind::kNormal) least = std::min(least, p.score), most_ = std::max(most_, p.score);
    if (p.is_in_texts() && p.kind != Kind::kUnused) keys.emplace_back(p.text, int32_t(id));
  }
  unknown_score_ = least - kUnknownPenalty;
  pieces_ = ByteTrie(std::move(keys));
}

// In floats, as the library adds: in a long text, sums are so large that they decide between pieces of similar scores.
void SentencePieceEncoder::encode_likeliest(std::string_view made, std::vector<int32_t>& ids, Space& space) const {
  const size_t first = ids.size();
  const auto take = [&](size_t begin, size_t end, int32_t id) {
    if (id == unknown_)
      add_unknown(made.substr(begin, end - begin), ids, first);
    else
      ids.push_back(id);
  };
  const auto score_of = [this](int32_t id, size_t bytes) {
    const Score& s = scores_[size_t(id)];
    return s.user_defined ? double(float(bytes) * most_) - 0.1 : double(s.of_piece);
  };
  BestPath<float, decltype(score_of), decltype(take)>(made, pieces_, {unknown_, unknown_score_}, score_of, take,
                                                      space.path)
      .run();
}

// --- pairs ---

int32_t SentencePieceEncoder::add_character(std::string_view character) {
  more_characters_.emplace_back(character);
  const auto symbol = int32_t(num_pieces_ + int32_t(more_characters_.size()) - 1);
  if (const auto found = reserved_.find(std::string(character)); found != reserved_.end())
    outputs_[symbol] = found->second;
  return symbol;
}

void SentencePieceEncoder::read_pairs(const SentencePieceSpec& spec) {
  num_pieces_ = int32_t(spec.pieces.size());
  std::unordered_map<std::string_view, int32_t> symbols;
  for (int32_t id = 0; id < num_pieces_; ++id) {
    const auto& p = spec.pieces[size_t(id)];
    if (!p.is_in_texts()) continue;
    symbols.emplace(p.text, id);
    if (const auto found = reserved_.find(std::string(p.text)); found != reserved_.end()) outputs_[id] = found->second;
  }
  const auto need_character = [&](std::string_view c) {
    if (symbols.count(c) == 0) symbols.emplace(c, add_character(c));
  };
  for (const auto& p : spec.pieces) {
    char32_t before = kNothing;
    const bool is_one = !p.text.empty() && character_bytes(p.text) == p.text.size();
    if (!p.is_in_texts() && !is_one) continue;
    for (size_t at = 0, bytes; at < p.text.size(); at += bytes) {
      bytes = character_bytes(p.text.substr(at));
      const std::string_view character = p.text.substr(at, bytes);
      need_character(character);
      if (before != kNothing) let_join(before, code_of(character));
      before = code_of(character);
    }
  }
  if (model_type_ == SentencePieceSpec::kBpe) {
    const auto ranks = ranks_of(spec.pieces);
    merges_ = MergeTable(symbols.size() * 2);
    for (int32_t id = 0; id < num_pieces_; ++id) {
      const std::string_view text = spec.pieces[size_t(id)].text;
      if (!spec.pieces[size_t(id)].is_in_texts()) continue;
      for (size_t cut = 0; (cut += character_bytes(text.substr(cut))) < text.size();) {
        const auto left = symbols.find(text.substr(0, cut)), right = symbols.find(text.substr(cut));
        if (left != symbols.end() && right != symbols.end())
          merges_.add(left->second, right->second, {.rank = ranks[size_t(id)], .result = id});
      }
    }
  }
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (const auto& [text, symbol] : symbols)
    if (character_bytes(text) == text.size()) keys.emplace_back(text, symbol);
  characters_ = ByteTrie(std::move(keys));
}

void SentencePieceEncoder::let_join(char32_t left, char32_t right) {
  if (const size_t l = few_of(left), r = few_of(right); l < kFew && r < kFew)
    few_join_[l][r] = true;
  else
    join_.insert(uint64_t(left) << 32 | right);
}

bool SentencePieceEncoder::may_join(char32_t left, char32_t right) const {
  if (model_type_ != SentencePieceSpec::kBpe) return false;
  if (const size_t l = few_of(left), r = few_of(right); l < kFew && r < kFew) return few_join_[l][r];
  return join_.count(uint64_t(left) << 32 | right) > 0;
}

void SentencePieceEncoder::encode_pairs(std::string_view made, std::vector<int32_t>& ids, Space& space) const {
  const size_t first = ids.size();
  size_t word = 0;
  const auto flush = [&](size_t end) {
    if (end == word) return;
    const size_t begin = ids.size();
    const std::string_view piece = made.substr(word, end - word);
    space.caches.encode(piece, ids, [&] { merge(piece, ids); });
    if (!byte_fallback_ && begin > first && joins(ids[begin - 1], ids[begin]))
      ids.erase(ids.begin() + ptrdiff_t(begin));
    word = end;
  };
  char32_t before = kNothing;
  for (size_t at = 0, bytes; at < made.size(); at += bytes) {
    const std::string_view rest = made.substr(at);
    if (const int32_t id = text_.symbols().longest(rest, bytes); id >= 0) {
      flush(at);
      const auto other = outputs_.find(id);
      ids.push_back(other == outputs_.end() ? id : other->second);
      word = at + bytes;
      before = kNothing;
      continue;
    }
    bytes = character_bytes(rest);
    const char32_t code = code_of(rest.substr(0, bytes));
    if (before != kNothing && !may_join(before, code)) flush(at);
    before = code;
  }
  flush(made.size());
}

void SentencePieceEncoder::merge(std::string_view word, std::vector<int32_t>& ids) const {
  constexpr size_t kLong = 1 << 20;  // bytes for which the vector shall not double
  const size_t begin = ids.size();
  if (word.size() > kLong) ids.reserve(begin + size_t(count_characters(word)));
  for (size_t at = 0, bytes; at < word.size(); at += bytes) {
    bytes = character_bytes(word.substr(at));
    const int32_t symbol = characters_.find(word.substr(at, bytes));
    if (symbol == ByteTrie::kNone) return add_unknown(word, ids, begin);  // it stands alone: nothing joins it
    ids.push_back(symbol);
  }
  ids.resize(begin + merge_all(merges_, {ids.data() + begin, ids.size() - begin}));
  const auto is_plain = [&](int32_t id) { return id < num_pieces_; };
  if (outputs_.empty() && std::all_of(ids.begin() + ptrdiff_t(begin), ids.end(), is_plain)) return;
  const std::vector<int32_t> symbols(ids.begin() + ptrdiff_t(begin), ids.end());
  ids.resize(begin);
  for (const int32_t symbol : symbols) {
    if (const auto other = outputs_.find(symbol); other != outputs_.end())
      ids.push_back(other->second);
    else if (symbol < num_pieces_)
      ids.push_back(symbol);
    else
      add_unknown(more_characters_[size_t(symbol - num_pieces_)], ids, begin);
  }
}

}  // namespace weft
