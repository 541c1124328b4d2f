// The regular expressions of the best-known tokenizers, written out by hand: the same pieces as the expression gives,
// in time linear in the text, and many times as fast.
#pragma once
#include <memory>
#include <optional>
#include <string_view>

#include "weft/tokenize/unicode.h"

namespace weft {

// Covers any text with pieces. Immutable; any thread may use it.
class Splitter {
 public:
  // What differs between the expressions of the GPT-2, cl100k (Llama 3, Qwen 2) and o200k families.
  enum class Family { kGpt2, kCl100k, kO200k };
  struct Rules {
    Family family;
    int digits;  // at most, in a piece; 0: any number
  };

  // By name: r50k, cl100k, o200k, llama3, qwen2 (gpt2, p50k and qwen are other names); nothing if unknown.
  static std::optional<Rules> rules_named(std::string_view name);
  // The rules that the expression is equivalent to; nothing if there are none.
  static std::optional<Rules> rules_of(std::string_view expression);
  // The expression, as tokenizer.json would give it.
  static std::string_view expression_of(Rules rules);

  // Throws NotBuilt without a table: this build has none then.
  Splitter(Rules rules, std::shared_ptr<const CharacterTable> table) : rules_(rules), table_(std::move(table)) {
    if (!table_) need_unicode("a tokenizer that splits text");
  }

  Rules rules() const { return rules_; }
  // Where the piece that begins at `from` ends; from < text.size(). Each piece depends on the text from its beginning
  // on alone. Text that is not UTF-8 is split somehow, at characters where there are some.
  size_t end_of_piece(std::string_view text, size_t from) const;
  // Whether a piece always ends between these two bytes, whatever stands around them.
  static bool always_splits(char before, char after);

 private:
  Rules rules_;
  std::shared_ptr<const CharacterTable> table_;
};

}  // namespace weft
