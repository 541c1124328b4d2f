// "%s of %d" % (a, b), and "{} of {}".format(a, b).
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "weft/chat/builtins.h"
#include "weft/chat/operators.h"
#include "weft/chat/strings.h"
#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

constexpr int64_t kWidest = 10'000;

struct Style {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0: by the type
  char sign = '-';
  bool alternate = false, grouped = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

class Reader {
 public:
  Reader(std::string_view text, size_t at) : text_(text), at_(at) {}
  size_t at() const { return at_; }
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() { ++at_; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  int64_t number() {
    int64_t n = 0;
    for (; isdigit(uint8_t(now())) != 0; ++at_) n = std::min(n * 10 + (now() - '0'), kWidest + 1);
    if (n > kWidest) fail(fmt::format("a format's width of more than {}", kWidest));
    return n;
  }

 private:
  std::string_view text_;
  size_t at_;
};

std::string grouped(std::string digits) {
  const size_t point = std::min(digits.find_first_of(".e"), digits.size());
  for (size_t i = point; i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string digits_of(const Value& v, const Style& s) {
  const char type = s.type == 0 ? (v.is<double>() ? 'g' : 'd') : s.type;
  const bool real = std::string_view("eEfFgG%").find(type) != std::string_view::npos;
  if (!real) {
    if (v.is<double>()) fail(fmt::format("the format \"{}\" of a float", type));
    const int64_t x = whole(v);
    const uint64_t size = x < 0 ? 0 - uint64_t(x) : uint64_t(x);
    if (type == 'd' || type == 'n') return fmt::format("{}", size);
    if (type == 'x') return (s.alternate ? "0x" : "") + fmt::format("{:x}", size);
    if (type == 'X') return (s.alternate ? "0X" : "") + fmt::format("{:X}", size);
    if (type == 'o') return (s.alternate ? "0o" : "") + fmt::format("{:o}", size);
    if (type == 'b') return (s.alternate ? "0b" : "") + fmt::format("{:b}", size);
    fail(fmt::format("the format \"{}\" is not supported", type));
  }
  const double x = std::abs(number(v)) * (type == '%' ? 100 : 1);
  if (s.type == 0 && s.precision < 0) {
    Budget budget;
    return to_repr(budget, x);
  }
  const int64_t precision = s.precision < 0 ? 6 : s.precision;
  if (type == '%') return fmt::format("{:.{}f}%", x, precision);
  return fmt::format(fmt::runtime(fmt::format("{{:.{}{}}}", precision, type)), x);
}

std::string number_text(const Value& v, const Style& s) {
  const bool below = number(v) < 0;
  std::string digits = digits_of(v, s);
  if (s.grouped) digits = grouped(digits);
  const std::string sign = below ? "-" : s.sign == '-' ? "" : std::string(1, s.sign);
  if (s.align == '=') return sign + pad(digits, s.width - int64_t(sign.size()), s.fill, Side::kRight);
  return pad(sign + digits, s.width, s.fill,
             s.align == '<'   ? Side::kLeft
             : s.align == '^' ? Side::kBoth
                              : Side::kRight);
}

std::string string_text(std::string_view text, const Style& s) {
  if (s.precision >= 0) text = between(text, 0, s.precision);
  return pad(text, s.width, s.fill, s.align == '>' ? Side::kRight : s.align == '^' ? Side::kBoth : Side::kLeft);
}

// The text of a value put into a safe one.
std::string escaped(const Value& v, std::string text, bool escapes) {
  return escapes && !v.is_safe() ? escape_html(text) : text;
}

// --- % ---

class PercentFormat {
 public:
  PercentFormat(Budget& budget, const Value& values, bool escapes)
      : budget_(budget), values_(values), escapes_(escapes) {}

  std::string run(std::string_view format) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const size_t mark = std::min(format.find('%', at), format.size());
      out += format.substr(at, mark - at);
      at = mark;
      if (at == format.size()) break;
      Reader in(format, at + 1);
      const std::string part = field(format, in);
      budget_.make(part.size());
      out += part;
      at = in.at();
    }
    const bool tuple = values_.holds<List>() && values_.list().kind == List::Kind::kTuple;
    if (tuple && next_ < values_.list().items.size()) fail("not all arguments of % were used");
    if (!tuple && !values_.is_dict() && next_ == 0) fail("not all arguments of % were used");
    return out;
  }

 private:
  std::string field(std::string_view format, Reader& in) {
    if (in.take('%')) return "%";
    Value v = undefined("");
    if (in.take('(')) {
      const size_t end = format.find(')', in.at());
      if (end == std::string_view::npos || !values_.is_dict()) fail("% with a name expects a dictionary");
      v = item_of(budget_, values_, std::string(format.substr(in.at(), end - in.at())));
      in = Reader(format, end + 1);
      next_ = 1;
      return shown(v, style(in), in);
    }
    const Style s = style(in);
    return shown(next_value(), s, in);
  }
  Style style(Reader& in) {
    Style s;
    for (;; in.skip()) {
      if (in.now() == '-')
        s.align = '<';
      else if (in.now() == '0')
        s.fill = "0", s.align = s.align == 0 ? '=' : s.align;
      else if (in.now() == '+' || in.now() == ' ')
        s.sign = in.now();
      else if (in.now() == '#')
        s.alternate = true;
      else
        break;
    }
    if (s.align == '<') s.fill = " ";
    if (in.now() == '*') fail("% with a width of * is not supported");
    s.width = in.number();
    if (in.take('.')) s.precision = in.number();
    return s;
  }
  std::string shown(const Value& v, Style s, Reader& in) {
    const char type = in.now();
    in.skip();
    if (type == 's' || type == 'r') {
      s.align = s.align == '<' ? '<' : '>';
      s.fill = " ";
      return string_text(escaped(v, type == 's' ? to_text(budget_, v) : to_repr(budget_, v), escapes_), s);
    }
    s.type = type == 'i' || type == 'u' ? 'd' : type;
    if (type == '\0' || std::string_view("diuoxXeEfFgG").find(type) == std::string_view::npos)
      fail("% followed by what is not supported");
    if (s.type == 'd' && v.is<double>()) return number_text(int64_t(number(v)), s);
    return number_text(v, s);
  }
  const Value& next_value() {
    const bool tuple = values_.holds<List>() && values_.list().kind == List::Kind::kTuple;
    const size_t place = next_++;
    if (!tuple && place == 0) return values_;
    if (!tuple || place >= values_.list().items.size()) fail("not enough arguments for %");
    return values_.list().items[place];
  }

  Budget& budget_;
  const Value& values_;
  bool escapes_;
  size_t next_ = 0;
};

// --- { } ---

class BraceFormat {
 public:
  BraceFormat(Budget& budget, const Arguments& arguments, bool escapes)
      : budget_(budget), arguments_(arguments), escapes_(escapes) {}

  std::string run(std::string_view format) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at++];
      const bool twice = at < format.size() && format[at] == c;
      if (c != '{' && c != '}') {
        out += c;
      } else if (twice) {
        out += c;
        ++at;
      } else {
        if (c == '}') fail("format: a single }");
        const size_t end = format.find_first_of("{}", at);
        if (end == std::string_view::npos) fail("format: { has no }");
        if (format[end] == '{') fail("format: { within { } is not supported");
        const std::string part = field(format.substr(at, end - at));
        budget_.make(part.size());
        out += part;
        at = end + 1;
      }
    }
    return out;
  }

 private:
  std::string field(std::string_view text) {
    const size_t colon = std::min(text.find(':'), text.size());
    std::string_view name = text.substr(0, colon);
    const std::string_view spec = text.substr(std::min(colon + 1, text.size()));
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    Value v = value(name);
    if (conversion == 'r') v = to_repr(budget_, v);
    if (conversion == 's') v = to_text(budget_, v);
    if (conversion != 0 && conversion != 'r' && conversion != 's') fail("format: a conversion that is not supported");
    if (spec.empty()) return escaped(v, to_text(budget_, v), escapes_);
    const Style s = style(spec, v);
    if (v.is_number() && !(v.is<bool>() && s.type == 0)) return number_text(v, s);
    if (s.type != 0 && s.type != 's') fail(fmt::format("format: \"{}\" of a value of type {}", s.type, kind_of(v)));
    return string_text(escaped(v, need_string(v, "format"), escapes_), s);
  }

  Value value(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value v = argument(std::string(name.substr(0, end)));
    for (name.remove_prefix(end); !name.empty();) {
      const bool item = name[0] == '[';
      const size_t stop = item ? name.find(']') : std::min(name.find_first_of(".[", 1), name.size());
      if (stop == std::string_view::npos) fail("format: [ has no ]");
      const std::string key(name.substr(1, stop - 1));
      v = item ? attribute_of(budget_, v, key) : member_of(budget_, v, key);
      name.remove_prefix(stop + (item ? 1 : 0));
    }
    return v;
  }
  Value argument(const std::string& name) {
    const bool number = !name.empty() && name.size() < 9 && name.find_first_not_of("0123456789") == std::string::npos;
    if (name.empty() || number) {
      const size_t place = name.empty() ? next_++ : size_t(std::stoul(name));
      if (place >= arguments_.positional.size()) fail("format: not enough arguments");
      return arguments_.positional[place];
    }
    for (const auto& [known, value] : arguments_.named)
      if (known == name) return value;
    fail(fmt::format("format: no argument \"{}\"", name));
  }

  static bool aligns(std::string_view s) {
    return !s.empty() && std::string_view("<>^=").find(s[0]) != std::string_view::npos;
  }
  static Style style(std::string_view spec, const Value& v) {
    Style s;
    const size_t first = first_character(spec).bytes;
    if (aligns(spec.substr(first))) {
      s.fill = spec.substr(0, first);
      s.align = spec[first];
      spec.remove_prefix(first + 1);
    } else if (aligns(spec)) {
      s.align = spec[0];
      spec.remove_prefix(1);
    }
    Reader in(spec, 0);
    if (in.now() == '+' || in.now() == ' ' || in.now() == '-') s.sign = in.now(), in.skip();
    s.alternate = in.take('#');
    if (in.take('0') && s.align == 0) s.fill = "0", s.align = v.is_string() ? '<' : '=';
    s.width = in.number();
    s.grouped = in.take(',');
    if (in.take('.')) s.precision = in.number();
    s.type = in.now();
    if (s.type != 0) in.skip();
    if (in.at() < spec.size()) fail("format: what stands behind : is not supported");
    return s;
  }

  Budget& budget_;
  const Arguments& arguments_;
  bool escapes_;
  size_t next_ = 0;
};

}  // namespace

Value percent_format(Budget& budget, const Value& format, const Value& values) {
  const std::string text = to_text(budget, format);
  if (!format.is_safe()) return PercentFormat(budget, values, false).run(text);
  return safe(PercentFormat(budget, values, true).run(text));
}
Value brace_format(Budget& budget, const Value& format, const Arguments& arguments) {
  if (!format.is_safe()) return BraceFormat(budget, arguments, false).run(format.string());
  return safe(BraceFormat(budget, arguments, true).run(format.string()));
}

}  // namespace weft::chat
