// Filters that make text.
#include <algorithm>

#include "weft/chat/builtins.h"
#include "weft/chat/filters.h"
#include "weft/chat/operators.h"
#include "weft/chat/strings.h"
#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;

int64_t width_of(const Given& g, size_t place, int64_t fallback) {
  const int64_t width = g.number(place, fallback);
  if (width > kMaxWidth) fail(fmt::format("a width of {}: more than {}", width, kMaxWidth));
  return width;
}

template <std::string (*F)(std::string_view)>
Value cased(Budget& budget, const Value& v, const Given&) {
  return F(to_text(budget, v));
}
Value titled(Budget& budget, const Value& v, const Given&) { return title(to_text(budget, v), Words::kByBlanks); }
Value plain(Budget& budget, const Value& v, const Given&) { return to_text(budget, v); }

Value trimmed(Budget& budget, const Value& v, const Given& g) {
  const std::string text = to_text(budget, v);
  return strip(text, g.has(0) ? std::optional(g.string(0)) : std::nullopt, Side::kBoth);
}

Value replaced(Budget& budget, const Value& v, const Given& g) {
  const std::string text = to_text(budget, v), what = to_text(budget, g(0)), by = to_text(budget, g(1));
  budget.make((count(text, what) + 1) * by.size());
  return replace(text, what, by, g.number(2, -1));
}

Value indented(Budget& budget, const Value& v, const Given& g) {
  std::string blanks(4, ' ');
  if (g[0] != nullptr && g[0]->is_string())
    blanks = g[0]->string();
  else
    blanks.assign(size_t(std::max<int64_t>(0, width_of(g, 0, 4))), ' ');
  const auto lines = split_lines(need_string(v, "indent") + "\n", false);
  const bool first = g.flag(1, false), blank = g.flag(2, false);
  budget.make(v.string().size() + lines.size() * (blanks.size() + 1));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += blanks;
    out += lines[i];
  }
  return out;
}

Value centered(Budget& budget, const Value& v, const Given& g) {
  return pad(to_text(budget, v), width_of(g, 0, 80), " ", Side::kBoth);
}

Value joined(Budget& budget, const Value& v, const Given& g) {
  const std::string by = g[0] == nullptr ? "" : to_text(budget, *g[0]);
  std::string out;
  bool first = true;
  for (const Value& item : items_of(budget, v)) {
    const std::string part = to_text(budget, g.has(1) ? attribute_of(budget, item, g(1)) : item);
    budget.make(by.size());
    if (!first) out += by;
    out += part;
    first = false;
  }
  return out;
}

Value as_json(Budget& budget, const Value& v, const Given& g) {
  JsonStyle style{.ascii = g.flag(0, false), .sorted = g.flag(3, false)};
  if (g.has(1)) {
    style.lines = true;
    style.item = ",";
    style.indent = g(1).is_string() ? g(1).string() : std::string(size_t(std::max<int64_t>(0, width_of(g, 1, 0))), ' ');
  }
  if (g.has(2)) {
    const Items parts = items_of(budget, g(2));
    if (parts.size() != 2) fail("tojson: separators are two");
    style.item = need_string(parts[0], "a separator");
    style.key = need_string(parts[1], "a separator");
  }
  return to_json(budget, v, style);
}

// As it is where it is safe already.
Value escaped(Budget& budget, const Value& v, const Given&) {
  const std::string text = to_text(budget, v);
  budget.make(text.size() * 5);
  return v.is_safe() ? text : escape_html(text);
}
Value escaped_again(Budget& budget, const Value& v, const Given&) {
  const std::string text = to_text(budget, v);
  budget.make(text.size() * 5);
  return escape_html(text);
}

Value url_encoded(Budget& budget, const Value& v, const Given&) {
  if (v.is_dict() || v.holds<List>()) fail("urlencode of anything but text is not supported");
  const std::string text = to_text(budget, v);
  budget.make(text.size() * 3);
  std::string out;
  for (char c : text)
    if (uint8_t(c) < 0x80 && (isalnum(uint8_t(c)) != 0 || std::string_view("_.-~/").find(c) != std::string_view::npos))
      out += c;
    else
      out += fmt::format("%{:02X}", uint8_t(c));
  return out;
}

Value truncated(Budget& budget, const Value& v, const Given& g) {
  const std::string text = to_text(budget, v), end = g[2] == nullptr ? "..." : g.string(2);
  const int64_t length = g.number(0, 255), leeway = g.number(3, 5);
  if (length < count_characters(end)) fail("truncate: a length below that of its end");
  if (count_characters(text) <= length + leeway) return text;
  std::string kept(between(text, 0, length - count_characters(end)));
  if (!g.flag(1, false) && kept.find(' ') != std::string::npos) kept.resize(kept.rfind(' '));
  return kept + end;
}

Value words(Budget& budget, const Value& v, const Given&) {
  const std::string text = to_text(budget, v);
  int64_t found = 0;
  bool within = false;
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(std::string_view(text).substr(at));
    const bool in_word = is_word_character(c.code);
    found += in_word && !within;
    within = in_word;
    at += c.bytes;
  }
  return found;
}

Value formatted(Budget& budget, const Value& v, const Given& g) {
  const Arguments& a = g.all();
  if (!a.named.empty() && !a.positional.empty()) fail("format takes arguments with names, or without, not both");
  if (a.named.empty()) return percent_format(budget, v, make_list(a.positional, List::Kind::kTuple));
  Value names = make_dict();
  for (const auto& [name, value] : a.named) names.dict().set(name, value);
  return percent_format(budget, v, names);
}

constexpr Filter kTextFilters[] = {
    {"capitalize", "", cased<capitalize>},
    {"center", "width", centered},
    {"e", "", escaped},
    {"escape", "", escaped},
    {"forceescape", "", escaped_again},
    {"format", "*", formatted},
    {"indent", "width first blank", indented},
    {"join", "d attribute", joined},
    {"lower", "", cased<lower>},
    {"replace", "old new count", replaced},
    {"safe", "", plain},
    {"string", "", plain},
    {"title", "", titled},
    {"tojson", "ensure_ascii indent separators sort_keys", as_json},
    {"trim", "chars", trimmed},
    {"truncate", "length killwords end leeway", truncated},
    {"upper", "", cased<upper>},
    {"urlencode", "", url_encoded},
    {"wordcount", "", words},
};

}  // namespace

std::span<const Filter> text_filters() { return kTextFilters; }

}  // namespace weft::chat
