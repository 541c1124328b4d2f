// Methods of strings, lists and dictionaries.
#include <algorithm>
#include <span>

#include "weft/chat/arguments.h"
#include "weft/chat/builtins.h"
#include "weft/chat/strings.h"
#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

using Kind = List::Kind;

struct Method {
  const char* name;
  const char* parameters;
  Value (*call)(Budget& budget, const Value& owner, const Given& given);
};

std::optional<std::string> optional_string(const Given& g, size_t place) {
  return g.has(place) ? std::optional(g.string(place)) : std::nullopt;
}
Value list_of(Budget& budget, const std::vector<std::string>& parts, Kind kind = Kind::kList) {
  Items items;
  budget.make(parts.size() * 64);
  for (const auto& part : parts) items.emplace_back(part);
  return make_list(std::move(items), kind);
}
int64_t width_of(Budget& budget, const Given& g) {
  const int64_t width = whole(g(0));
  budget.make(width < 0 ? 0 : size_t(width) * 4);
  return width;
}

// --- of strings; the budget has paid for reading, and for making, as much as the string ---

template <std::string (*F)(std::string_view)>
Value cased(Budget&, const Value& v, const Given&) {
  return F(v.string());
}
Value titled(Budget&, const Value& v, const Given&) { return title(v.string(), Words::kByLetters); }

template <Side kSide>
Value stripped(Budget&, const Value& v, const Given& g) {
  return strip(v.string(), optional_string(g, 0), kSide);
}

template <Side kFrom>
Value parts(Budget& budget, const Value& v, const Given& g) {
  const auto by = optional_string(g, 0);
  if (by && by->empty()) fail("split by an empty string");
  return list_of(budget, split(v.string(), by, g.number(1, -1), kFrom));
}
Value lines(Budget& budget, const Value& v, const Given& g) {
  return list_of(budget, split_lines(v.string(), g.flag(0, false)));
}

template <Side kFrom>
Value partition(Budget& budget, const Value& v, const Given& g) {
  const std::string &text = v.string(), &by = g.string(0);
  if (by.empty()) fail("partition by an empty string");
  const size_t at = kFrom == Side::kRight ? text.rfind(by) : text.find(by);
  const bool left = kFrom == Side::kLeft;
  if (at == std::string::npos) return list_of(budget, {left ? text : "", "", left ? "" : text}, Kind::kTuple);
  return list_of(budget, {text.substr(0, at), by, text.substr(at + by.size())}, Kind::kTuple);
}

std::string_view part_between(const Value& v, const Given& g) {
  return between(v.string(), g.number(1, 0), g.number(2, INT64_MAX));
}
template <bool kEnd>
Value has_edge(Budget&, const Value& v, const Given& g) {
  const std::string_view text = part_between(v, g);
  const auto is_edge = [&](const Value& edge) {
    const std::string& e = need_string(edge, kEnd ? "endswith" : "startswith");
    return kEnd ? text.ends_with(e) : text.starts_with(e);
  };
  if (!g(0).holds<List>() || g(0).list().kind != Kind::kTuple) return is_edge(g(0));
  return std::any_of(g(0).list().items.begin(), g(0).list().items.end(), is_edge);
}

// The place of a part: what is not found is -1, or an error.
template <Side kFrom, bool kMustBe>
Value place(Budget&, const Value& v, const Given& g) {
  const std::string_view text = part_between(v, g);
  const std::string& what = g.string(0);
  const size_t at = kFrom == Side::kLeft ? text.find(what) : text.rfind(what);
  if (at == std::string_view::npos && kMustBe) fail("substring not found");
  if (at == std::string_view::npos) return -1;
  return character_of_byte(v.string(), size_t(text.data() - v.string().data()) + at);
}
Value occurrences(Budget&, const Value& v, const Given& g) { return count(part_between(v, g), g.string(0)); }

Value replaced(Budget& budget, const Value& v, const Given& g) {
  budget.make(size_t(count(v.string(), g.string(0)) + 1) * g.string(1).size());
  return replace(v.string(), g.string(0), g.string(1), g.number(2, -1));
}

Value joined(Budget& budget, const Value& v, const Given& g) {
  std::string out;
  bool first = true;
  for (const Value& item : items_of(budget, g(0))) {
    const std::string& part = need_string(item, "join");
    budget.make(part.size() + v.string().size());
    out += (first ? "" : v.string()) + part;
    first = false;
  }
  return out;
}

template <bool kPrefix>
Value without(Budget&, const Value& v, const Given& g) {
  std::string_view text = v.string();
  const std::string& part = g.string(0);
  if (kPrefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!kPrefix && text.ends_with(part)) text.remove_suffix(part.size());
  return text;
}

template <Side kTextAt>
Value padded(Budget& budget, const Value& v, const Given& g) {
  const std::string fill = g.has(1) ? g.string(1) : " ";
  if (count_characters(fill) != 1) fail("a text is filled up with one character");
  return pad(v.string(), width_of(budget, g), fill, kTextAt);
}
Value zero_filled(Budget& budget, const Value& v, const Given& g) {
  const int64_t width = width_of(budget, g);
  const bool sign = v.string().starts_with('-') || v.string().starts_with('+');
  return v.string().substr(0, sign) + pad(v.string().substr(sign), width - sign, "0", Side::kRight);
}

template <Is kWhat>
Value all_of(Budget&, const Value& v, const Given&) {
  return all_are(v.string(), kWhat);
}
Value formatted(Budget& budget, const Value& v, const Given& g) { return brace_format(budget, v, g.all()); }

constexpr Method kStringMethods[] = {
    {"capitalize", "", cased<capitalize>},
    {"casefold", "", cased<lower>},
    {"center", "width fillchar", padded<Side::kBoth>},
    {"count", "sub start end", occurrences},
    {"endswith", "suffix start end", has_edge<true>},
    {"find", "sub start end", place<Side::kLeft, false>},
    {"format", "*", formatted},
    {"index", "sub start end", place<Side::kLeft, true>},
    {"isalnum", "", all_of<Is::kAlphanumeric>},
    {"isalpha", "", all_of<Is::kLetter>},
    {"isascii", "", all_of<Is::kAscii>},
    {"isdecimal", "", all_of<Is::kDigit>},
    {"isdigit", "", all_of<Is::kDigit>},
    {"islower", "", all_of<Is::kLower>},
    {"isnumeric", "", all_of<Is::kDigit>},
    {"isspace", "", all_of<Is::kSpace>},
    {"isupper", "", all_of<Is::kUpper>},
    {"join", "iterable", joined},
    {"ljust", "width fillchar", padded<Side::kLeft>},
    {"lower", "", cased<lower>},
    {"lstrip", "chars", stripped<Side::kLeft>},
    {"partition", "sep", partition<Side::kLeft>},
    {"removeprefix", "prefix", without<true>},
    {"removesuffix", "suffix", without<false>},
    {"replace", "old new count", replaced},
    {"rfind", "sub start end", place<Side::kRight, false>},
    {"rindex", "sub start end", place<Side::kRight, true>},
    {"rjust", "width fillchar", padded<Side::kRight>},
    {"rpartition", "sep", partition<Side::kRight>},
    {"rsplit", "sep maxsplit", parts<Side::kRight>},
    {"rstrip", "chars", stripped<Side::kRight>},
    {"split", "sep maxsplit", parts<Side::kLeft>},
    {"splitlines", "keepends", lines},
    {"startswith", "prefix start end", has_edge<false>},
    {"strip", "chars", stripped<Side::kBoth>},
    {"title", "", titled},
    {"upper", "", cased<upper>},
    {"zfill", "width", zero_filled},
};

// --- of dictionaries and lists ---

Value get(Budget&, const Value& v, const Given& g) {
  const Value* found = v.dict().find(g(0));
  return found != nullptr ? *found : g[1] == nullptr ? Value(nullptr) : *g[1];
}
template <bool kKeys, bool kValues>
Value view(Budget& budget, const Value& v, const Given&) {
  Items items;
  budget.make(v.dict().items().size() * 2 * sizeof(Value));
  for (const auto& [key, value] : v.dict().items())
    items.push_back(kKeys && kValues ? make_list({key, value}, Kind::kTuple) : kKeys ? key : value);
  return make_list(std::move(items), Kind::kView);
}
Value itself(Budget&, const Value& v, const Given&) { return v; }

Value count_in_list(Budget& budget, const Value& v, const Given& g) {
  return int64_t(std::count_if(v.list().items.begin(), v.list().items.end(),
                               [&](const Value& item) { return equal(budget, item, g(0)); }));
}
Value place_in_list(Budget& budget, const Value& v, const Given& g) {
  const Items& items = v.list().items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(budget, items[i], g(0))) return int64_t(i);
  fail("index: the list does not have this item");
}

constexpr Method kDictMethods[] = {
    {"copy", "", itself},
    {"get", "key default", get},
    {"items", "", view<true, true>},
    {"keys", "", view<true, false>},
    {"values", "", view<false, true>},
};
constexpr Method kListMethods[] = {
    {"copy", "", itself},
    {"count", "value", count_in_list},
    {"index", "value", place_in_list},
};

std::span<const Method> methods_of(const Value& owner) {
  if (owner.is_string()) return kStringMethods;
  if (owner.is_dict()) return kDictMethods;
  const bool list = owner.holds<List>() && (owner.list().kind == Kind::kList || owner.list().kind == Kind::kTuple);
  return list ? std::span<const Method>(kListMethods) : std::span<const Method>();
}

// loop.cycle(a, b), loop.changed(x)
Value method_of_loop(const std::shared_ptr<Loop>& loop, Budget& budget, const std::string& name) {
  if (name == "cycle")
    return make_function(
        name,
        [loop](const Arguments& a) {
          if (a.positional.empty()) fail("loop.cycle of nothing");
          return a.positional[loop->at % a.positional.size()];
        },
        loop->depth);
  if (name == "changed")
    return make_function(
        name,
        [loop, &budget](const Arguments& a) -> Value {
          const Value now = make_list(a.positional);
          const bool changed = !equal(budget, loop->last_seen, now);
          loop->last_seen = now;
          return changed;
        },
        loop->depth);
  return {};
}

}  // namespace

Value method_of(Budget& budget, const Value& owner, const std::string& name) {
  if (owner.holds<Loop>()) return method_of_loop(std::get<std::shared_ptr<Loop>>(owner.of), budget, name);
  for (const Method& m : methods_of(owner)) {
    if (m.name != name) continue;
    const auto call = [&budget, &m, owner](const Arguments& a) {
      if (owner.is_string()) {
        budget.read(owner.string().size());
        budget.make(owner.string().size());
      }
      Value result = m.call(budget, owner, Given(m.name, m.parameters, a));
      return owner.is_safe() ? safe(std::move(result)) : result;
    };
    return make_function(name, call, depth_of(owner));
  }
  return {};
}

bool changes_its_owner(const Value& owner, const std::string& name) {
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  constexpr std::string_view kList[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  if (owner.is_dict()) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  const bool list = owner.holds<List>() && owner.list().kind == Kind::kList;
  return list && std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
}

}  // namespace weft::chat
