// Filters that make text.
#include <algorithm>

#include "weft/chat/arguments.h"
#include "weft/chat/builtins.h"
#include "weft/chat/operators.h"
#include "weft/chat/strings.h"

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

// A text that is safe already stays as it is.
Value escaped(Budget& budget, const Value& v, const Given&) {
  const std::string text = to_text(budget, v);
  budget.make(text.size() * 5);
  return v.is_safe() ? text : escape_html(text);
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
    {"e", "", escaped},
    {"escape", "", escaped},
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
    {"upper", "", cased<upper>},
};

}  // namespace

std::span<const Filter> text_filters() { return kTextFilters; }

}  // namespace weft::chat
