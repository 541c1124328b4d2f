#include "weft/tokenize/word_piece.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tokenize/unicode.h"

namespace weft {

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
