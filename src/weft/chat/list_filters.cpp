// Filters of lists.
#include <algorithm>

#include "weft/chat/arguments.h"
#include "weft/chat/builtins.h"
#include "weft/chat/operators.h"
#include "weft/chat/strings.h"

namespace weft::chat {
namespace {

using Kind = List::Kind;

Arguments without_first(const Arguments& a, size_t count) {
  Arguments rest{{}, a.named};
  if (a.positional.size() > count) rest.positional.assign(a.positional.begin() + ptrdiff_t(count), a.positional.end());
  return rest;
}

// The key for sorting and comparing values: an attribute of them, or strings without regard to case.
struct Key {
  Budget& budget;
  bool case_sensitive;
  const Value* attribute;

  Value operator()(const Value& v) const {
    const Value key = attribute == nullptr ? v : attribute_of(budget, v, *attribute);
    return key.is_string() && !case_sensitive ? Value(lower(key.string())) : key;
  }
};
const Value* given_or_none(const Given& g, size_t place) { return g.has(place) ? g[place] : nullptr; }

Items sorted_by(Budget& budget, const Items& items, const Items& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? compare(budget, keys[b], keys[a]) < 0 : compare(budget, keys[a], keys[b]) < 0;
  });
  Items out;
  for (size_t i : order) out.push_back(items[i]);
  return out;
}

// By several attributes, "a,b", the first is the weightiest: sorted by it last.
Value sorted(Budget& budget, const Value& v, const Given& g) {
  Items items = items_of(budget, v);
  Items attributes{g.has(2) ? g(2) : Value(nullptr)};
  if (g.has(2) && g(2).is_string()) {
    attributes.clear();
    for (const auto& name : split(g(2).string(), ",", -1, Side::kLeft)) attributes.emplace_back(name);
  }
  std::reverse(attributes.begin(), attributes.end());
  for (const Value& attribute : attributes) {
    const Key key{budget, g.flag(1, false), attribute.is_none() ? nullptr : &attribute};
    Items keys;
    for (const Value& item : items) keys.push_back(key(item));
    items = sorted_by(budget, items, keys, g.flag(0, false));
  }
  return make_list(std::move(items));
}

Value pair(const Value& a, const Value& b) { return make_list({a, b}, Kind::kTuple); }

Items pairs_of(const Value& v) {
  if (v.is_undefined()) return {};
  if (!v.is_dict()) fail(fmt::format("items of a value of type {}", kind_of(v)));
  Items out;
  for (const auto& [key, value] : v.dict().items()) out.push_back(pair(key, value));
  return out;
}
Value pairs(Budget& budget, const Value& v, const Given&) {
  Items out = pairs_of(v);
  budget.make(out.size() * 4 * sizeof(Value));
  return make_list(std::move(out), Kind::kGenerator);
}
Value sorted_pairs(Budget& budget, const Value& v, const Given& g) {
  const std::string by = g.has(1) ? g.string(1) : "key";
  if (by != "key" && by != "value") fail("dictsort: by \"key\" or \"value\"");
  if (!v.is_dict()) fail(fmt::format("dictsort of a value of type {}", kind_of(v)));
  const Items items = pairs_of(v);
  const Key key{budget, g.flag(0, false), nullptr};
  Items keys;
  for (const auto& item : v.dict().items()) keys.push_back(key(by == "key" ? item.first : item.second));
  return make_list(sorted_by(budget, items, keys, g.flag(2, false)));
}

Value unique(Budget& budget, const Value& v, const Given& g) {
  const Key key{budget, g.flag(0, false), given_or_none(g, 1)};
  Items out, seen;
  for (const Value& item : items_of(budget, v)) {
    Value k = key(item);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return equal(budget, s, k); })) continue;
    seen.push_back(std::move(k));
    out.push_back(item);
  }
  return make_list(std::move(out), Kind::kGenerator);
}

template <bool kLargest>
Value extreme(Budget& budget, const Value& v, const Given& g) {
  const Key key{budget, g.flag(0, false), given_or_none(g, 1)};
  const Items items = items_of(budget, v);
  if (items.empty()) return undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = key(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value k = key(items[i]);
    const int c = compare(budget, k, best_key);
    if (kLargest ? c <= 0 : c >= 0) continue;
    best = i;
    best_key = std::move(k);
  }
  return items[best];
}

Value sum(Budget& budget, const Value& v, const Given& g) {
  Value total = g[1] == nullptr ? Value(0) : *g[1];
  for (const Value& item : items_of(budget, v))
    total = binary(budget, "+", total, g.has(0) ? attribute_of(budget, item, g(0)) : item);
  return total;
}

Value mapped(Budget& budget, const Value& v, const Given& g) {
  const Arguments& a = g.all();
  const Value *attribute = nullptr, *fallback = nullptr;
  for (const auto& [name, value] : a.named) {
    if (name == "attribute") attribute = &value;
    if (name == "default") fallback = &value;
  }
  const bool by_attribute = a.positional.empty() && attribute != nullptr;
  Items out;
  if (!truth(v)) return make_list({}, Kind::kGenerator);  // none, for one
  for (const Value& item : items_of(budget, v)) {
    if (by_attribute) {
      Value found = attribute_of(budget, item, *attribute);
      out.push_back(found.is_undefined() && fallback != nullptr ? *fallback : found);
    } else {
      out.push_back(apply_filter(budget, need_string(g(0), "map"), item, without_first(a, 1)));
    }
  }
  return make_list(std::move(out), Kind::kGenerator);
}

template <bool kKeeps, bool kByAttribute>
Value selected(Budget& budget, const Value& v, const Given& g) {
  const size_t test = kByAttribute ? 1 : 0;
  const Arguments rest = without_first(g.all(), test + 1);
  Items out;
  if (!truth(v)) return make_list({}, Kind::kGenerator);
  for (const Value& item : items_of(budget, v)) {
    const Value subject = kByAttribute ? attribute_of(budget, item, g(0)) : item;
    const bool passes =
        g[test] == nullptr ? truth(subject) : apply_test(budget, need_string(g(test), "the test"), subject, rest);
    if (passes == kKeeps) out.push_back(item);
  }
  return make_list(std::move(out), Kind::kGenerator);
}

Value reversed(Budget& budget, const Value& v, const Given&) {
  Items items = items_of(budget, v);
  std::reverse(items.begin(), items.end());
  if (!v.is_string()) return make_list(std::move(items), Kind::kGenerator);
  std::string text;
  for (const Value& c : items) text += c.string();
  return text;
}

Value first(Budget& budget, const Value& v, const Given&) {
  Items items = items_of(budget, v);
  if (items.empty()) return undefined("No first item, sequence was empty.");
  const Value found = items[0];
  if (v.holds<List>() && v.list().kind == Kind::kGenerator) {  // which goes on behind it
    items.erase(items.begin());
    v.list().items = std::move(items);
  }
  return found;
}
Value last(Budget& budget, const Value& v, const Given&) {
  if (v.holds<List>() && v.list().kind == Kind::kGenerator) fail("last of a generator: make it a list with | list");
  const Items items = items_of(budget, v);
  return items.empty() ? undefined("No last item, sequence was empty.") : items.back();
}
Value listed(Budget& budget, const Value& v, const Given&) {
  Items items = items_of(budget, v);
  budget.make(items.size() * sizeof(Value));
  return make_list(std::move(items));
}

constexpr Filter kListFilters[] = {
    {"dictsort", "case_sensitive by reverse", sorted_pairs},
    {"first", "", first},
    {"items", "", pairs},
    {"last", "", last},
    {"list", "", listed},
    {"map", "*", mapped},
    {"max", "case_sensitive attribute", extreme<true>},
    {"min", "case_sensitive attribute", extreme<false>},
    {"reject", "*", selected<false, false>},
    {"rejectattr", "*", selected<false, true>},
    {"reverse", "", reversed},
    {"select", "*", selected<true, false>},
    {"selectattr", "*", selected<true, true>},
    {"sort", "reverse case_sensitive attribute", sorted},
    {"sum", "attribute start", sum},
    {"unique", "case_sensitive attribute", unique},
};

}  // namespace

std::span<const Filter> list_filters() { return kListFilters; }

}  // namespace weft::chat
