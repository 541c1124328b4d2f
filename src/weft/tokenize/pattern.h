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

// The memory that searches take (PCRE2's match data and the stack of its compiled code), kept from one search to the
// next, whatever their patterns. For one search at a time: each thread brings its own. Empty until it is used.
class PatternSpace {
 public:
  PatternSpace();
  ~PatternSpace();
  PatternSpace(PatternSpace&&) noexcept;
  PatternSpace& operator=(PatternSpace&&) noexcept;

 private:
  friend class Pattern;
  struct State;
  State& state();
  std::unique_ptr<State> state_;
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

  // The first match in `text` that begins at `from` or later; false where there is none. `text` is well-formed UTF-8.
  // Throws Error where the expression takes more steps than its bound: no text is ever dropped.
  bool find(std::string_view text, size_t from, PatternSpace& space, Span& match) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

// `expression` in PCRE2's dialect: \s and \w are Unicode's properties also inside of [...]. Throws FileError.
std::string to_pcre2(std::string_view expression, const std::string& source);

}  // namespace weft
