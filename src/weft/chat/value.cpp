#include "weft/chat/value.h"

#include <algorithm>
#include <cmath>

#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

constexpr size_t kSearchedOneByOne = 8;  // keys

// The text that stands for a key in the index; other keys than strings begin with a byte that no string has.
std::string index_key(const Value& key) {
  if (key.is_string()) return key.string();
  if (key.is_none()) return "\xffnone";
  if (key.is_whole()) return fmt::format("\xff{}", whole(key));
  if (key.is<double>()) {
    const double x = std::get<double>(key.of);
    if (x == std::floor(x) && std::abs(x) < 1e15) return fmt::format("\xff{}", int64_t(x));
    return fmt::format("\xff{}", x);
  }
  return "";
}
bool can_be_key(const Value& key) { return key.is_string() || key.is_none() || key.is_number(); }

void check_depth(int depth) {
  if (depth > kDeepest) fail("lists and dictionaries are nested too deep");
}

template <class T>
int order(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

bool equal_lists(Budget& budget, const List& a, const List& b) {
  if (a.kind == List::Kind::kGenerator || a.kind == List::Kind::kView) return &a == &b;
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!equal(budget, a.items[i], b.items[i])) return false;
  return true;
}

bool equal_dicts(Budget& budget, const Dict& a, const Dict& b) {
  if (a.items().size() != b.items().size()) return false;
  for (const auto& [key, value] : a.items()) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(budget, value, *other)) return false;
  }
  return true;
}

}  // namespace

Value undefined(std::string why) {
  Value v;
  v.of = Undefined{std::make_shared<const std::string>(std::move(why))};
  return v;
}

Value safe(Value v) {
  if (v.is_string()) std::get<Text>(v.of).safe = true;
  if (!v.holds<List>()) return v;
  Items items = v.list().items;
  for (Value& item : items) item = safe(item);
  return make_list(std::move(items), v.list().kind);
}

Value make_list(Items items, List::Kind kind) {
  int depth = 0;
  for (const Value& v : items) depth = std::max(depth, depth_of(v));
  check_depth(depth + 1);
  Value v;
  v.of = std::make_shared<List>(List{kind, std::move(items), depth + 1});
  return v;
}
Value make_dict() { return std::make_shared<Dict>(); }
Value make_function(std::string name, std::function<Value(const Arguments&)> call, int depth) {
  check_depth(depth + 1);
  return std::make_shared<Function>(Function{std::move(name), std::move(call), depth + 1});
}

const Value* Dict::get(std::string_view key) const {
  if (items_.size() > kSearchedOneByOne) {
    const auto at = index_.find(key);
    return at == index_.end() ? nullptr : &items_[at->second].second;
  }
  for (const auto& [name, value] : items_)
    if (name.is_string() && name.string() == key) return &value;
  return nullptr;
}
const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return get(key.string());
  if (!can_be_key(key)) return nullptr;
  const auto at = index_.find(index_key(key));
  return at == index_.end() ? nullptr : &items_[at->second].second;
}

void Dict::set(const Value& key, Value value) {
  if (!can_be_key(key)) fail(fmt::format("a value of type {} as a dictionary's key is not supported", kind_of(key)));
  check_depth(depth_of(value) + 1);
  depth_ = std::max(depth_, depth_of(value) + 1);
  const auto [at, is_new] = index_.try_emplace(index_key(key), items_.size());
  if (is_new)
    items_.emplace_back(key, std::move(value));
  else
    items_[at->second].second = std::move(value);
}

void Dict::clear() {
  items_.clear();
  index_.clear();
}

int depth_of(const Value& v) {
  if (v.holds<List>()) return v.list().depth;
  if (v.is_dict()) return v.dict().depth() + 1;
  if (v.holds<Function>()) return std::get<std::shared_ptr<Function>>(v.of)->depth;
  if (v.holds<Loop>()) return std::get<std::shared_ptr<Loop>>(v.of)->depth;
  return 0;
}

std::string_view kind_of(const Value& v) {
  constexpr const char* kNames[] = {"undefined", "NoneType", "bool",     "int",       "float",      "str",
                                    "list",      "dict",     "function", "Namespace", "LoopContext"};
  constexpr const char* kSequences[] = {"list", "tuple", "range", "dict_view", "generator", "tuple"};
  return v.holds<List>() ? kSequences[int(v.list().kind)] : kNames[v.of.index()];
}

bool truth(const Value& v) {
  if (v.is_undefined() || v.is_none()) return false;
  if (v.is_number()) return number(v) != 0;
  if (v.is_string()) return !v.string().empty();
  if (v.holds<List>()) return v.list().kind == List::Kind::kGenerator || !v.list().items.empty();
  return !v.is_dict() || !v.dict().items().empty();
}

int64_t whole(const Value& v) {
  if (v.is<bool>()) return std::get<bool>(v.of) ? 1 : 0;
  if (v.is<int64_t>()) return std::get<int64_t>(v.of);
  if (v.is_undefined()) fail(*std::get<Undefined>(v.of).why);
  fail(fmt::format("expected a whole number, got a value of type {}", kind_of(v)));
}
double number(const Value& v) { return v.is<double>() ? std::get<double>(v.of) : double(whole(v)); }

const std::string& need_string(const Value& v, std::string_view what) {
  if (v.is_undefined()) fail(*std::get<Undefined>(v.of).why);
  if (!v.is_string()) fail(fmt::format("{}: expected a str, got a value of type {}", what, kind_of(v)));
  return v.string();
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (a.is_whole() && b.is_whole()) return whole(a) == whole(b);
  if (a.is_number() && b.is_number()) return number(a) == number(b);
  if (a.of.index() != b.of.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_string()) {
    budget.read(std::min(a.string().size(), b.string().size()));
    return a.string() == b.string();
  }
  if (a.holds<List>()) return equal_lists(budget, a.list(), b.list());
  if (a.is_dict()) return equal_dicts(budget, a.dict(), b.dict());
  if (a.holds<Function>())
    return std::get<std::shared_ptr<Function>>(a.of) == std::get<std::shared_ptr<Function>>(b.of);
  if (a.holds<Namespace>())
    return std::get<std::shared_ptr<Namespace>>(a.of) == std::get<std::shared_ptr<Namespace>>(b.of);
  return std::get<std::shared_ptr<Loop>>(a.of) == std::get<std::shared_ptr<Loop>>(b.of);
}

int compare(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  for (const Value* v : {&a, &b})
    if (v->is_undefined()) fail(*std::get<Undefined>(v->of).why);
  if (a.is_whole() && b.is_whole()) return order(whole(a), whole(b));
  if (a.is_number() && b.is_number()) return order(number(a), number(b));
  if (a.is_string() && b.is_string()) {
    budget.read(std::min(a.string().size(), b.string().size()));
    return order(a.string(), b.string());
  }
  if (!a.holds<List>() || !b.holds<List>() || a.list().kind != b.list().kind || a.list().kind == List::Kind::kGenerator)
    fail(fmt::format("values of types {} and {} have no order", kind_of(a), kind_of(b)));
  const Items &x = a.list().items, &y = b.list().items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!equal(budget, x[i], y[i])) return compare(budget, x[i], y[i]);
  return order(x.size(), y.size());
}

bool contains(Budget& budget, const Value& where, const Value& what) {
  if (where.is_string()) {
    const std::string& part = need_string(what, "in a str");
    budget.read(where.string().size());
    return where.string().find(part) != std::string::npos;
  }
  if (where.is_dict()) return where.dict().find(what) != nullptr;
  for (const Value& v : items_of(budget, where))
    if (equal(budget, v, what)) return true;
  return false;
}

Items items_of(Budget& budget, const Value& v) {
  if (v.is_undefined()) return {};
  Items items;
  if (v.holds<List>()) {
    budget.make(v.list().items.size() * sizeof(Value));
    if (v.list().kind != List::Kind::kGenerator) return v.list().items;
    items.swap(v.list().items);
  } else if (v.is_dict()) {
    budget.make(v.dict().items().size() * sizeof(Value));
    for (const auto& item : v.dict().items()) items.push_back(item.first);
  } else if (v.is_string()) {
    const std::string& text = v.string();
    budget.make(text.size() * 64);
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = first_character(std::string_view(text).substr(at)).bytes;
      items.emplace_back(text.substr(at, bytes));
      at += bytes;
    }
  } else {
    fail(fmt::format("a value of type {} has no items", kind_of(v)));
  }
  return items;
}

}  // namespace weft::chat
