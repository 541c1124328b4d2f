// Regular expressions of tokenizers, as their authors' libraries (Oniguruma, Rust's regex) understand them, run by
// PCRE2.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace weft {

// A part of a text, in bytes.
struct Span {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
};

// Immutable; any thread may use it.
class Pattern {
 public:
  // Throws FileError, beginning with `source`, where the expression is broken, or means something in those libraries
  // that PCRE2 cannot be told.
  Pattern(std::string_view expression, const std::string& source);

  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // Runs over one text, which is well-formed UTF-8 and outlives it. For one thread.
  class Search {
   public:
    Search(const Pattern& pattern, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    // The first match that begins at `from` or later; false where there is none. Throws Error where the expression
    // takes more steps than its bound: no text is ever dropped.
    bool next(size_t from, Span& match);

   private:
    const Pattern& pattern_;
    std::string_view text_;
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

// `expression` in PCRE2's dialect: \s and \w are Unicode's properties also inside of [...]. Throws FileError.
std::string to_pcre2(std::string_view expression, const std::string& source);

}  // namespace weft
