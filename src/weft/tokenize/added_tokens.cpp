#include "weft/tokenize/added_tokens.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

bool ends_with_word(std::string_view text) { return !text.empty() && is_word_character(last_character(text).code); }
bool begins_with_word(std::string_view text) { return !text.empty() && is_word_character(first_character(text).code); }

size_t leading_spaces(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_white_space(first_character(text.substr(at)).code))
    at += first_character(text.substr(at)).bytes;
  return at;
}
// Where the spaces begin that end the text; none before `from`.
size_t trailing_spaces(std::string_view text, size_t from) {
  size_t at = text.size();
  while (at > from && is_white_space(last_character(text.substr(0, at)).code))
    at -= last_character(text.substr(0, at)).bytes;
  return std::max(at, from);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& t) { return t.content.empty(); });
  for (const AddedToken& t : tokens_)
    if (t.single_word) need_unicode(fmt::format("the added token {}", in_quotes(t.content)));
  first_.fill(-1);
  for (size_t i = 0; i < tokens_.size(); ++i) add(i);
  only_marks_ = std::all_of(tokens_.begin(), tokens_.end(), [](const AddedToken& t) { return t.is_mark(); });
  const auto used = [](int32_t node) { return node >= 0; };
  if (std::count_if(first_.begin(), first_.end(), used) == 1)
    one_first_ = int(std::find_if(first_.begin(), first_.end(), used) - first_.begin());
}

int32_t AddedTokenFinder::child_of(int32_t node, char byte) const {
  int32_t child = nodes_[size_t(node)].child;
  while (child >= 0 && nodes_[size_t(child)].byte != byte) child = nodes_[size_t(child)].sibling;
  return child;
}

void AddedTokenFinder::add(size_t token) {
  const std::string& content = tokens_[token].content;
  int32_t node = -1;
  for (char byte : content) {
    int32_t& first = first_[uint8_t(byte)];
    int32_t next = node < 0 ? first : child_of(node, byte);
    if (next < 0) {
      next = int32_t(nodes_.size());
      nodes_.push_back({.byte = byte, .sibling = node < 0 ? -1 : nodes_[size_t(node)].child});
      (node < 0 ? first : nodes_[size_t(node)].child) = next;
    }
    node = next;
  }
  nodes_[size_t(node)].token = int32_t(token);
}

int32_t AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  int32_t node = first_[uint8_t(text[at])], found = -1;
  while (node >= 0) {
    if (nodes_[size_t(node)].token >= 0) found = nodes_[size_t(node)].token;
    if (++at == text.size()) break;
    node = child_of(node, text[at]);
  }
  return found;
}

void AddedTokenFinder::split(std::string_view text, bool with_marks, const Found& found) const {
  if (!with_marks && only_marks_) {
    if (!text.empty()) found.text(text);
    return;
  }
  size_t done = 0;  // what is before was given out
  for (size_t at = 0; at < text.size();) {
    if (first_[uint8_t(text[at])] < 0) {
      at = one_first_ >= 0 ? std::min(text.find(char(one_first_), at), text.size()) : at + 1;
      continue;
    }
    const int32_t index = longest_at(text, at);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[size_t(index)];
    size_t begin = at, end = at + token.content.size();
    at = end;
    if (token.is_mark() && !with_marks) continue;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) continue;
    if (begin < done) continue;
    if (token.left_strip) begin = trailing_spaces(text.substr(0, begin), done);
    if (token.right_strip) end += leading_spaces(text.substr(end));
    if (begin > done) found.text(text.substr(done, begin - done));
    found.token(token);
    done = end;
  }
  if (done < text.size()) found.text(text.substr(done));
}

bool AddedTokenFinder::may_cross(bool (*cuts)(char before, char after)) const {
  return std::any_of(tokens_.begin(), tokens_.end(), [&](const AddedToken& t) {
    for (size_t i = 0; i + 1 < t.content.size(); ++i)
      if (cuts(t.content[i], t.content[i + 1])) return true;
    // A token that takes the spaces after it along ends where a text may be cut, or begins there.
    return t.right_strip && (cuts(t.content.back(), ' ') || cuts(t.content.back(), '\n'));
  });
}

}  // namespace weft
