// Tokens that are found in a text before anything else is done with it: special ones and words added to a vocabulary.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// A word that was added to the vocabulary is found in every text. A mark is found only where special tokens are asked
// for: what is special, or written as marks are, "<...>" (Qwen's file does not call its <|fim_prefix|> special).
struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;                          // the file calls it so
  bool normalized = false;                       // found in the normalized text rather than in the text itself
  bool single_word = false;                      // not within a word
  bool left_strip = false, right_strip = false;  // takes the spaces before or after it along

  bool is_mark() const { return special || (content.starts_with('<') && content.ends_with('>')); }
};

// Finds tokens in a text: the leftmost first, of those that begin there the longest. Immutable.
class AddedTokenFinder {
 public:
  // Contents that are empty are never found. Throws NotBuilt for a single word in a build that knows no characters.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  // Calls text(part) and token(added) in the order of the text; parts of text are not empty.
  struct Found {
    std::function<void(std::string_view)> text;
    std::function<void(const AddedToken&)> token;
  };
  void split(std::string_view text, bool with_marks, const Found& found) const;
  // Whether a token may contain or touch a place where `cuts` allows a cut.
  bool may_cross(bool (*cuts)(char before, char after)) const;

 private:
  struct Node {  // of a tree of bytes; children are a list
    char byte = 0;
    int32_t child = -1, sibling = -1, token = -1;
  };
  int32_t child_of(int32_t node, char byte) const;
  void add(size_t token);
  // The longest token that begins at `at`; -1: none.
  int32_t longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> first_;  // nodes of first bytes; -1: none
  int one_first_ = -1;              // the only first byte; -1: there are several
  bool only_marks_ = true;
};

}  // namespace weft
