#include "weft/tokenize/unigram.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

constexpr double kUnknownPenalty = 10;  // below the least likely token

}  // namespace

Unigram::Unigram(Spec spec) : spec_(std::move(spec)) {
  const Vocabulary& v = spec_.vocabulary;
  WEFT_CHECK(int64_t(spec_.scores.size()) == v.size(), "{} scores of {} tokens", spec_.scores.size(), v.size());
  double least = v.size() > 0 ? spec_.scores[0] : 0;
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (int32_t id = 0; id < v.size(); ++id) {
    if (!v.has(id)) continue;
    least = std::min(least, spec_.scores[size_t(id)]);
    keys.emplace_back(v.token(id), id);
  }
  tokens_ = ByteTrie(std::move(keys));
  unknown_score_ = least - kUnknownPenalty;
  for (int b = 0; b < 256; ++b) byte_ids_[size_t(b)] = v.find(fmt::format("<0x{:02X}>", b));
}

void Unigram::encode(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace& space) const {
  space.caches.encode(piece, ids, [&] { find_path(piece, ids, space); });
}

void Unigram::find_path(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace& space) const {
  size_t unknown_from = SIZE_MAX;  // several unknown characters in a row are one
  const auto flush = [&](size_t end) {
    if (unknown_from != SIZE_MAX) add_unknown(piece.substr(unknown_from, end - unknown_from), ids);
    unknown_from = SIZE_MAX;
  };
  const auto take = [&](size_t begin, size_t, int32_t id) {
    if (id == spec_.unknown) {
      unknown_from = std::min(unknown_from, begin);
      return;
    }
    flush(begin);
    ids.push_back(id);
  };
  const auto score_of = [this](int32_t id, size_t) { return spec_.scores[size_t(id)]; };
  BestPath<double, decltype(score_of), decltype(take)>(piece, tokens_, {spec_.unknown, unknown_score_}, score_of, take,
                                                       space.path)
      .run();
  flush(piece.size());
}

void Unigram::add_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  // What is unknown character by character may be a token as a whole.
  if (const int32_t id = spec_.vocabulary.find(text); id >= 0) return ids.push_back(id);
  const bool has_bytes =
      spec_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) { return byte_ids_[uint8_t(c)] >= 0; });
  if (has_bytes) {
    for (unsigned char c : text) ids.push_back(byte_ids_[c]);
    return;
  }
  if (spec_.unknown < 0)
    throw Error(fmt::format("the tokenizer has no token for {}, and no unknown one (unk_id)", in_quotes(text)));
  ids.push_back(spec_.unknown);
}

void WordPiece::encode(std::string_view word, std::vector<int32_t>& ids, EncodeSpace& space) const {
  space.caches.encode(word, ids, [&] { find_parts(word, ids); });
}

void WordPiece::find_parts(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t begin = ids.size();
  bool known = spec_.whole || count_characters(word) <= spec_.max_characters;
  std::string part;
  for (size_t at = 0; known && at < word.size();) {
    const std::string_view prefix = at > 0 ? std::string_view(spec_.later_prefix) : "";
    const size_t longest = spec_.whole ? word.size() : std::min(word.size() - at, spec_.vocabulary.longest());
    part.assign(prefix);
    part += word.substr(at, longest);
    int32_t id;
    while ((id = spec_.vocabulary.find(part)) < 0 && part.size() > prefix.size() && !spec_.whole) part.pop_back();
    known = id >= 0 && part.size() > prefix.size();
    if (known) ids.push_back(id);
    at += part.size() - prefix.size();
  }
  if (known) return;
  ids.resize(begin);
  if (spec_.unknown < 0)
    throw Error(
        fmt::format("the tokenizer has no token for the word {}, and no unknown one (unk_token)", in_quotes(word)));
  ids.push_back(spec_.unknown);
}

}  // namespace weft
