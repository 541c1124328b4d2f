#include "weft/tokenize/model.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

uint64_t hash_of(std::string_view token) { return XXH3_64bits(token.data(), token.size()); }

}  // namespace

void Vocabulary::add(std::string_view token, int64_t id, size_t expected, bool findable) {
  const size_t bound = std::min(kMaxTokens, 4 * expected + (1 << 17));
  if (id < 0 || size_t(id) >= bound)
    throw FileError(fmt::format("{}: the token {} has the id {}; about {} tokens have ids from 0 to {}", source_,
                                in_quotes(token), id, expected, bound - 1));
  if (text_.size() + token.size() >= kNone)
    throw FileError(fmt::format("{}: the tokens are longer than 4 GiB in all", source_));
  if (has(id)) {
    if (this->token(int32_t(id)) == token) return;
    throw FileError(fmt::format("{}: the id {} is given to two tokens, {} and {}", source_, id,
                                in_quotes(this->token(int32_t(id))), in_quotes(token)));
  }
  if (size_t(id) >= places_.size()) places_.resize(size_t(id) + 1);
  places_[size_t(id)] = {uint32_t(text_.size()), uint32_t(token.size())};
  text_ += token;
  longest_ = std::max(longest_, token.size());
  ++num_tokens_;
  if (findable) index(token, int32_t(id));
}

void Vocabulary::index(std::string_view token, int32_t id) {
  if (size_t(num_found_ + 1) * 2 > table_.size()) {
    std::vector<int32_t> old(std::max<size_t>(64, table_.size() * 2), -1);
    old.swap(table_);
    num_found_ = 0;
    for (int32_t known : old)
      if (known >= 0) index(this->token(known), known);
  }
  size_t at = hash_of(token) & (table_.size() - 1);
  for (; table_[at] >= 0; at = (at + 1) & (table_.size() - 1))
    if (this->token(table_[at]) == token)
      throw FileError(fmt::format("{}: the token {} appears twice, with the ids {} and {}", source_, in_quotes(token),
                                  table_[at], id));
  table_[at] = id;
  ++num_found_;
}

int32_t Vocabulary::find(std::string_view token) const {
  if (table_.empty() || token.size() > longest_) return -1;
  for (size_t at = hash_of(token) & (table_.size() - 1); table_[at] >= 0; at = (at + 1) & (table_.size() - 1))
    if (this->token(table_[at]) == token) return table_[at];
  return -1;
}

std::string_view Vocabulary::token(int32_t id) const {
  const Place& place = places_[size_t(id)];
  return std::string_view(text_).substr(place.begin, place.bytes);
}

}  // namespace weft
