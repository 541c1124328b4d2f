#include "weft/tokenize/tokenizer.h"

#include <algorithm>

#include "weft/base/parallel.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr size_t kPart = 1 << 17;  // bytes of text that a thread takes at once

// Where parts end.
std::vector<size_t> cuts_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<size_t> ends;
  for (size_t begin = 0; begin < text.size(); begin = ends.back()) {
    size_t end = text.size();
    // No place in one part's length: the next one may have some.
    for (size_t reach = kPart; begin + reach < text.size(); reach += kPart) {
      const size_t cut = tokenizer.cut_between(text.substr(begin), reach - kPart, reach);
      if (cut == 0) continue;
      end = begin + cut;
      break;
    }
    ends.push_back(end);
  }
  return ends;
}

// How many bytes at the end of a text may be the beginning of a character.
size_t waiting_bytes(std::string_view text) {
  const size_t error = utf8_error(text);
  if (error == std::string_view::npos || text.size() - error > 3) return 0;
  const auto lead = uint8_t(text[error]);
  const size_t needs = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
  return text.size() - error < needs ? text.size() - error : 0;
}

}  // namespace

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special, int num_threads) const {
  const std::vector<size_t> ends = num_threads > 1 ? cuts_of(*this, text) : std::vector<size_t>{};
  if (ends.size() < 2) return encode(text, ids, special);
  std::vector<std::vector<int32_t>> parts(ends.size());
  parallel_for(int64_t(ends.size()), num_threads, 1, [&](int64_t begin, int64_t end) {
    for (auto i = size_t(begin); i < size_t(end); ++i) {
      const size_t from = i == 0 ? 0 : ends[i - 1];
      encode(text.substr(from, ends[i] - from), parts[i], special);
    }
  });
  for (const auto& part : parts) ids.insert(ids.end(), part.begin(), part.end());
}

std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.beginning();
  if (text.empty() && ids.empty() && tokenizer.end_of_document() >= 0)
    ids.push_back(tokenizer.end_of_document());  // as at the beginning of a document
  tokenizer.encode(text, ids);
  return ids;
}

void IncrementalDecoder::follow(std::span<const int32_t> ids) {
  constexpr size_t kEnough = 8;
  recent_.assign(ids.end() - ptrdiff_t(std::min(ids.size(), kEnough)), ids.end());
  shown_ = recent_.size();
}

std::string IncrementalDecoder::next(int32_t id) {
  constexpr size_t kMany = 12;  // a character has at most four tokens
  recent_.push_back(id);
  const std::span<const int32_t> all(recent_);
  const std::string before = tokenizer_.decode(all.first(shown_), Tokenizer::Specials::kHidden);
  std::string text = tokenizer_.decode(all, Tokenizer::Specials::kHidden);
  const size_t waits = waiting_bytes(text);
  const bool broken = waits > 0 || text.ends_with("\xef\xbf\xbd");
  if (broken && all.size() - shown_ < 4) return "";
  if (!text.starts_with(before)) text = before;  // a rule changed what is shown already: it stays
  text.erase(0, before.size());
  if (recent_.size() > kMany) recent_.erase(recent_.begin(), recent_.end() - kMany / 2);
  shown_ = recent_.size();
  return text;
}

}  // namespace weft
