// From the dialect of Oniguruma and Rust to PCRE2's.
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tokenize/pattern.h"

namespace weft {
namespace {

// White_Space; PCRE2's own \s also holds U+180E.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Alphabetic, M, Nd, Pc, Join_Control; PCRE2's own \w is L, N and '_'.
constexpr std::string_view kWords =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
    R"(\x{1f170}-\x{1f189})";

class Translator {
 public:
  Translator(std::string_view in, const std::string& source) : in_(in), source_(source) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\')
        escape();
      else if (in_class_)
        in_class(c);
      else if (c == '[')
        open_class();
      else
        copy(1);
    }
    return std::move(out_);
  }

 private:
  void copy(size_t n) {
    out_ += in_.substr(at_, n);
    at_ += n;
  }

  void open_class() {
    copy(1);
    if (at_ < in_.size() && in_[at_] == '^') copy(1);
    if (at_ < in_.size() && in_[at_] == ']') fail("an empty [...]");
    in_class_ = true;
  }

  void in_class(char c) {
    const std::string_view rest = in_.substr(at_);
    if (rest.starts_with("&&") || rest.starts_with("--") || rest.starts_with("~~")) fail("operations on sets in [...]");
    if (c == '[' && !rest.starts_with("[:")) fail("a set within a set, [..[..]..]");
    if (c == '[') fail("a POSIX class, as [:alpha:]");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void escape() {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    const auto put = [&](std::string_view set, bool negated) {
      if (in_class_)
        out_ += set;
      else
        out_ += fmt::format("[{}{}]", negated ? "^" : "", set);
      at_ += 2;
    };
    switch (c) {
      case 's':
        return put(kSpaces, false);
      case 'S':
        return in_class_ ? put(kNoSpaces, false) : put(kSpaces, true);
      case 'w':
        return put(kWords, false);
      case 'W':
        if (in_class_) fail("\\W in [...]");
        return put(kWords, true);
      case 'h':
      case 'H':
      case 'X':
      case 'R':
      case 'K':
      case 'C':
        fail(fmt::format("\\{}", c));
      case 'u':
        return code_unit();
      default:
        copy(std::min<size_t>(2, in_.size() - at_));
    }
  }

  // \u00e9 is \x{00e9} in PCRE2.
  void code_unit() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      fail("\\u without four hexadecimal digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw FileError(fmt::format("{}: regular expression {}: {} (byte {}): weft does not read it", source_,
                                in_quotes(in_), what, at_));
  }

  std::string_view in_;
  const std::string& source_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string to_pcre2(std::string_view expression, const std::string& source) {
  return Translator(expression, source).run();
}

}  // namespace weft
