#include "weft/tokenize/unigram.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

constexpr double kUnknownPenalty = 10;  // below the least likely token

}  // namespace

Unigram::Unigram(Spec spec) : spec_(std::move(spec)), token_at_(1, -1) {
  const Vocabulary& v = spec_.vocabulary;
  WEFT_CHECK(int64_t(spec_.scores.size()) == v.size(), "{} scores of {} tokens", spec_.scores.size(), v.size());
  double least = v.size() > 0 ? spec_.scores[0] : 0;
  for (int32_t id = 0; id < v.size(); ++id) {
    if (!v.has(id)) continue;
    least = std::min(least, spec_.scores[size_t(id)]);
    int32_t node = 0;
    for (unsigned char c : v.token(id)) {
      int32_t next = next_.find(node, c).result;
      if (next < 0) {
        next = int32_t(token_at_.size());
        next_.add(node, c, {.rank = 0, .result = next});
        token_at_.push_back(-1);
      }
      node = next;
    }
    if (node > 0) token_at_[size_t(node)] = id;
  }
  unknown_score_ = least - kUnknownPenalty;
  for (int b = 0; b < 256; ++b) byte_ids_[size_t(b)] = v.find(fmt::format("<0x{:02X}>", b));
}

// The best way to a place in the piece: its score, and the token that ends there.
struct Unigram::Step {
  double score = 0;
  uint32_t begin = UINT32_MAX;
  int32_t id = -1;
};

void Unigram::encode(std::string_view piece, std::vector<int32_t>& ids, EncodeSpace&) const {
  WEFT_CHECK(piece.size() < UINT32_MAX, "a piece of {} bytes", piece.size());
  std::vector<Step> best(piece.size() + 1);
  best[0].begin = 0;
  const auto offer = [&](size_t begin, size_t end, int32_t id, double score) {
    const double total = best[begin].score + score;
    if (best[end].begin == UINT32_MAX || total > best[end].score) best[end] = {total, uint32_t(begin), id};
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t character = at + std::min<size_t>(first_character(piece.substr(at)).bytes, piece.size() - at);
    bool alone = false;
    int32_t node = 0;
    for (size_t end = at; end < piece.size() && (node = next_.find(node, uint8_t(piece[end])).result) >= 0;) {
      ++end;
      const int32_t id = token_at_[size_t(node)];
      if (id < 0) continue;
      offer(at, end, id, spec_.scores[size_t(id)]);
      alone |= end == character;
    }
    if (!alone) offer(at, character, spec_.unknown, unknown_score_);
    at = character;
  }
  add_path(piece, best, ids);
}

void Unigram::add_path(std::string_view piece, const std::vector<Step>& best, std::vector<int32_t>& ids) const {
  std::vector<size_t> ends;
  for (size_t at = piece.size(); at > 0; at = best[at].begin) ends.push_back(at);
  size_t unknown_from = SIZE_MAX;  // several unknown characters in a row are one
  const auto flush = [&](size_t end) {
    if (unknown_from != SIZE_MAX) add_unknown(piece.substr(unknown_from, end - unknown_from), ids);
    unknown_from = SIZE_MAX;
  };
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Step& step = best[*end];
    if (step.id == spec_.unknown) {
      unknown_from = std::min<size_t>(unknown_from, step.begin);
      continue;
    }
    flush(step.begin);
    ids.push_back(step.id);
  }
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

}  // namespace weft
