#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"
#include "weft/chat/syntax.h"
#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

using Kind = Token::Kind;

constexpr std::string_view kBlanks = " \t\n\r\v\f";
constexpr size_t kMaxTemplate = 1 << 20;  // bytes

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return isalpha(uint8_t(c)) != 0 || c == '_' || uint8_t(c) >= 0x80; }
bool in_name(char c) { return begins_name(c) || is_digit(c); }

// Line ends are \n; the last one is no part of the text.
std::string normal_lines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& source) : source_(source) {
    if (text.size() > kMaxTemplate) fail(fmt::format("longer than {} bytes", kMaxTemplate));
    if (utf8_error(text) != std::string_view::npos) fail("not UTF-8 text");
    whole_ = normal_lines(text);
    text_ = whole_;
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const size_t open = next_open();
      plain(open);
      if (open == text_.size()) break;
      begin_tag();
    }
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // --- text ---

  size_t next_open() const {
    for (size_t i = text_.find('{', at_); i != std::string_view::npos; i = text_.find('{', i + 1))
      if (i + 1 < text_.size() && (text_[i + 1] == '%' || text_[i + 1] == '{' || text_[i + 1] == '#')) return i;
    return text_.size();
  }

  // The text up to a tag, without the blanks that the tag takes.
  void plain(size_t end) {
    std::string_view part = text_.substr(at_, end - at_);
    const char mark = end + 2 < text_.size() ? text_[end + 2] : ' ';
    if (end < text_.size()) part = without_blanks(part, mark, text_[end + 1] == '{');
    if (!part.empty()) add(Kind::kText, std::string(part));
    count_lines(end);
  }

  // `-` takes all blanks before the tag; else a statement or comment takes those between it and the line's begin.
  std::string_view without_blanks(std::string_view part, char mark, bool prints) const {
    if (mark == '-') {
      while (!part.empty() && is_white_space(last_character(part).code)) part.remove_suffix(last_character(part).bytes);
      return part;
    }
    if (mark == '+' || prints) return part;
    const size_t newline = part.rfind('\n');
    if (newline == std::string_view::npos && !line_begins_) return part;
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    return part.find_first_not_of(kBlanks, begin) == std::string_view::npos ? part.substr(0, begin) : part;
  }

  // --- tags ---

  void begin_tag() {
    const char kind = text_[at_ + 1];
    size_t from = at_ + 2;
    if (from < text_.size() && (text_[from] == '-' || text_[from] == '+')) ++from;
    if (kind == '#') return comment(from);
    if (kind == '%' && is_raw(from, "raw")) return raw(from);
    add(kind == '%' ? Kind::kTagBegin : Kind::kPrintBegin, "");
    count_lines(from);
    tag(kind == '%' ? "%}" : "}}");
  }

  void comment(size_t from) {
    const size_t end = text_.find("#}", from);
    if (end == std::string_view::npos) fail("the comment {# has no end #}");
    const char mark = end > from ? text_[end - 1] : ' ';
    count_lines(end + 2);
    end_tag(mark, true);
  }

  // Behind %} or #} that stood at the end: `-` takes all blanks that follow; else one newline.
  void end_tag(char mark, bool takes_newline) {
    size_t to = at_;
    if (mark == '-') {
      while (to < text_.size() && is_white_space(first_character(text_.substr(to)).code))
        to += first_character(text_.substr(to)).bytes;
    } else if (mark != '+' && takes_newline && to < text_.size() && text_[to] == '\n') {
      ++to;
    }
    line_begins_ = to > at_ && text_[to - 1] == '\n';
    count_lines(to);
  }

  bool is_raw(size_t from, std::string_view word) const {
    from = text_.find_first_not_of(kBlanks, from);
    if (from == std::string_view::npos || text_.substr(from, word.size()) != word) return false;
    from = text_.find_first_not_of(kBlanks, from + word.size());
    return from != std::string_view::npos && (text_.substr(from, 2) == "%}" || text_.substr(from, 3) == "-%}" ||
                                              (word == "endraw" && text_.substr(from, 3) == "+%}"));
  }
  // To behind the %} that follows.
  void skip_tag(bool takes_newline) {
    const size_t end = text_.find("%}", at_);
    const char mark = text_[end - 1];
    count_lines(end + 2);
    end_tag(mark, takes_newline);
  }
  void raw(size_t from) {
    count_lines(from);
    skip_tag(false);
    for (size_t i = text_.find("{%", at_); i != std::string_view::npos; i = text_.find("{%", i + 2)) {
      const bool marked = i + 2 < text_.size() && (text_[i + 2] == '-' || text_[i + 2] == '+');
      if (!is_raw(i + 2 + marked, "endraw")) continue;
      plain(i);
      return skip_tag(true);
    }
    fail("{% raw %} has no {% endraw %}");
  }

  // Tokens up to and with `close`, which ends the tag where no bracket is open.
  void tag(std::string_view close) {
    std::string open;
    while (true) {
      count_lines(std::min(text_.find_first_not_of(kBlanks, at_), text_.size()));
      if (at_ == text_.size()) fail(fmt::format("a tag has no end {}", close));
      const char c = text_[at_];
      const bool marked = c == '-' || (c == '+' && close == "%}");
      if (open.empty() && text_.substr(at_ + marked, 2) == close) {
        add(close == "%}" ? Kind::kTagEnd : Kind::kPrintEnd, std::string(close));
        count_lines(at_ + marked + 2);
        return end_tag(marked ? c : ' ', close == "%}");
      }
      if (is_digit(c))
        number();
      else if (begins_name(c))
        word(Kind::kName, at_, [](char x) { return in_name(x); });
      else if (c == '\'' || c == '"')
        string(c);
      else
        sign(open);
    }
  }

  template <class F>
  void word(Kind kind, size_t from, const F& belongs) {
    size_t end = from;
    while (end < text_.size() && belongs(text_[end])) ++end;
    add(kind, std::string(text_.substr(at_, end - at_)));
    at_ = end;
  }

  void number() {
    const auto digits = [this](size_t i) {
      while (i < text_.size() &&
             (is_digit(text_[i]) || (text_[i] == '_' && i + 1 < text_.size() && is_digit(text_[i + 1]))))
        ++i;
      return i;
    };
    const char second = at_ + 1 < text_.size() ? char(tolower(text_[at_ + 1])) : ' ';
    if (text_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b'))
      return word(Kind::kInteger, at_, [](char x) { return isalnum(uint8_t(x)) != 0 || x == '_'; });
    size_t end = digits(at_);
    bool real = false;
    const auto digit_at = [this](size_t i) { return i < text_.size() && is_digit(text_[i]); };
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    if (!after_dot && end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
      real = true;
      end = digits(end + 1);
    }
    if (!after_dot && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const size_t signed_by = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
      if (digit_at(end + 1 + signed_by)) {
        real = true;
        end = digits(end + 1 + signed_by);
      }
    }
    std::string text(text_.substr(at_, end - at_));
    std::erase(text, '_');
    add(real ? Kind::kFloat : Kind::kInteger, text);
    at_ = end;
  }

  void string(char quote) {
    const size_t line = line_;
    std::string out;
    size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != quote)
      if (text_[i] == '\\' && i + 1 < text_.size())
        i = escape(i + 1, out);
      else
        out += text_[i++];
    if (i >= text_.size()) fail("a string has no end");
    tokens_.push_back({Kind::kString, std::move(out), line});
    count_lines(i + 1);
  }

  // Position i is behind the backslash. Returns the position behind the escape.
  size_t escape(size_t i, std::string& out) {
    constexpr std::string_view kNames = "ntrabfv0\\'\"", kMeans{"\n\t\r\a\b\f\v\0\\'\"", 11};
    const char c = text_[i];
    const bool octal = c >= '0' && c <= '7';
    if (c == '\n') return i + 1;
    if (octal) return code(i, 3, 8, out);
    if (c == 'x') return code(i + 1, 2, 16, out);
    if (c == 'u') return code(i + 1, 4, 16, out);
    if (c == 'U') return code(i + 1, 8, 16, out);
    if (c == 'N') fail("\\N{...} in a string is not supported");
    const size_t at = kNames.find(c);
    if (at == std::string_view::npos)
      (out += '\\') += c;
    else
      out += kMeans[at];
    return i + 1;
  }
  size_t code(size_t i, size_t digits, int base, std::string& out) {
    size_t end = i;
    while (end < text_.size() && end < i + digits &&
           (base == 8 ? text_[end] >= '0' && text_[end] <= '7' : isxdigit(uint8_t(text_[end])) != 0))
      ++end;
    const auto value = std::strtoul(std::string(text_.substr(i, end - i)).c_str(), nullptr, base);
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    if ((base == 16 && end != i + digits) || surrogate || value > 0x10ffff) fail("a string has a broken \\ escape");
    append_character(out, char32_t(value));
    return end;
  }

  void sign(std::string& open) {
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    for (const char* s : {"//", "**", "==", "!=", "<=", ">="})
      if (text_.substr(at_, 2) == s) {
        add(Kind::kSign, s);
        at_ += 2;
        return;
      }
    const char c = text_[at_];
    if (std::string_view("+-*/%~()[]{}<>=.:,|").find(c) == std::string_view::npos)
      fail(fmt::format("unexpected {}", in_quotes(text_.substr(at_, first_character(text_.substr(at_)).bytes))));
    if (kOpen.find(c) != std::string_view::npos) open += kClose[kOpen.find(c)];
    if (kClose.find(c) != std::string_view::npos) {
      if (open.empty() || open.back() != c) fail(fmt::format("unexpected {}", c));
      open.pop_back();
    }
    add(Kind::kSign, std::string(1, c));
    ++at_;
  }

  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  // On to `to`.
  void count_lines(size_t to) {
    line_ += size_t(std::count(text_.begin() + ptrdiff_t(at_), text_.begin() + ptrdiff_t(to), '\n'));
    at_ = to;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: line {}: {}", source_, line_, what));
  }

  const std::string& source_;
  std::string whole_;
  std::string_view text_;
  std::vector<Token> tokens_;
  size_t at_ = 0, line_ = 1;
  bool line_begins_ = true;  // the tag before ended with a newline
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text, const std::string& source) { return Lexer(text, source).run(); }

}  // namespace weft::chat
