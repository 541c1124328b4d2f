#include "weft/chat/operators.h"

#include <algorithm>
#include <cmath>

#include "weft/chat/builtins.h"
#include "weft/chat/strings.h"

namespace weft::chat {
namespace {

[[noreturn]] void fail_types(const std::string& op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b})
    if (v->is_undefined()) fail(*std::get<Undefined>(v->of).why);
  fail(fmt::format("{} {} {} has no meaning", kind_of(a), op, kind_of(b)));
}

Value power_of_whole(int64_t base, int64_t exponent) {
  if (exponent < 0) return std::pow(double(base), double(exponent));
  int64_t result = 1;
  for (; exponent > 0 && base != 0 && base != 1; --exponent) {
    if (base == -1) return exponent % 2 == 0 ? result : -result;
    if (__builtin_mul_overflow(result, base, &result)) fail("a whole number beyond 64 bits");
  }
  return exponent > 0 && base == 0 ? int64_t{0} : result;
}

Value arithmetic_of_whole(const std::string& op, int64_t x, int64_t y) {
  int64_t r = 0;
  bool beyond = false;
  if (op == "**") return power_of_whole(x, y);
  if ((op == "//" || op == "%" || op == "/") && y == 0) fail("division by zero");
  if (op == "/") return double(x) / double(y);
  if (op == "+") beyond = __builtin_add_overflow(x, y, &r);
  if (op == "-") beyond = __builtin_sub_overflow(x, y, &r);
  if (op == "*") beyond = __builtin_mul_overflow(x, y, &r);
  if (op == "//" || op == "%") {
    if (y == -1) {  // the smallest by -1 is beyond 64 bits
      beyond = op == "//" && __builtin_sub_overflow(int64_t{0}, x, &r);
    } else {
      const bool down = x % y != 0 && ((x < 0) != (y < 0));
      r = op == "//" ? x / y - down : x % y + (down ? y : 0);
    }
  }
  if (beyond) fail("a whole number beyond 64 bits");
  return r;
}

Value arithmetic(const std::string& op, double x, double y) {
  if ((op == "//" || op == "%" || op == "/") && y == 0) fail("division by zero");
  if (op == "+") return x + y;
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  if (op == "/") return x / y;
  if (op == "//") return std::floor(x / y);
  if (op == "**") return std::pow(x, y);
  const double rest = std::fmod(x, y);
  return rest != 0 && ((rest < 0) != (y < 0)) ? rest + y : rest;
}

bool is_sequence(const Value& v) {
  return v.holds<List>() && (v.list().kind == List::Kind::kList || v.list().kind == List::Kind::kTuple);
}

Value repeated(Budget& budget, const Value& v, int64_t times) {
  const auto count = size_t(std::max<int64_t>(0, times));
  const size_t bytes = v.is_string() ? v.string().size() : v.list().items.size() * sizeof(Value);
  if (bytes > 0 && count > Budget::kMaxBytes / bytes) budget.make(Budget::kMaxBytes + 1);
  budget.make(bytes * count);
  if (bytes == 0) return v;
  if (v.is_string()) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += v.string();
    return v.is_safe() ? safe(std::move(text)) : text;
  }
  Items items;
  for (size_t i = 0; i < count; ++i) items.insert(items.end(), v.list().items.begin(), v.list().items.end());
  return make_list(std::move(items), v.list().kind);
}

Value joined(Budget& budget, const Value& a, const Value& b) {
  if (a.is_string()) {
    budget.make((a.string().size() + b.string().size()) * (a.is_safe() || b.is_safe() ? 5 : 1));
    if (!a.is_safe() && !b.is_safe()) return a.string() + b.string();
    return safe((a.is_safe() ? a.string() : escape_html(a.string())) +
                (b.is_safe() ? b.string() : escape_html(b.string())));
  }
  Items items = a.list().items;
  budget.make((items.size() + b.list().items.size()) * sizeof(Value));
  items.insert(items.end(), b.list().items.begin(), b.list().items.end());
  return make_list(std::move(items), a.list().kind);
}

Value member_of_loop(Budget& budget, const Loop& loop, const std::string& name) {
  const auto at = int64_t(loop.at), count = int64_t(loop.items.size());
  budget.step();
  if (name == "index") return at + 1;
  if (name == "index0") return at;
  if (name == "revindex") return count - at;
  if (name == "revindex0") return count - at - 1;
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == count;
  if (name == "length") return count;
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (name == "previtem") return at > 0 ? loop.items[size_t(at - 1)] : undefined("there is no previous item");
  if (name == "nextitem") return at + 1 < count ? loop.items[size_t(at + 1)] : undefined("there is no next item");
  return undefined(fmt::format("'loop' has no attribute '{}'", name));
}

Value missing(const Value& v, std::string_view what) {
  const std::string owner = v.is_none() ? "None" : fmt::format("'{} object'", kind_of(v));
  return undefined(fmt::format("{} has no attribute '{}'", owner, what));
}

}  // namespace

Value binary(Budget& budget, const std::string& op, const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return arithmetic_of_whole(op, whole(a), whole(b));
  if (a.is_number() && b.is_number()) return arithmetic(op, number(a), number(b));
  if (op == "+" && a.is_string() && b.is_string()) return joined(budget, a, b);
  if (op == "+" && is_sequence(a) && is_sequence(b) && a.list().kind == b.list().kind) return joined(budget, a, b);
  if (op == "*" && (a.is_string() || is_sequence(a)) && b.is_whole()) return repeated(budget, a, whole(b));
  if (op == "*" && (b.is_string() || is_sequence(b)) && a.is_whole()) return repeated(budget, b, whole(a));
  if (op == "%" && a.is_string()) return percent_format(budget, a, b);
  fail_types(op, a, b);
}

Value signed_number(const std::string& op, const Value& v) {
  if (v.is<double>()) return op == "-" ? -number(v) : number(v);
  return op == "-" ? arithmetic_of_whole("-", 0, whole(v)) : Value(whole(v));
}

Value member_of(Budget& budget, const Value& v, const std::string& name) {
  if (v.is_undefined()) fail(*std::get<Undefined>(v.of).why);
  const Value method = method_of(budget, v, name);
  if (!method.is_undefined()) return method;
  if (changes_its_owner(v, name))
    return undefined(fmt::format("{}.{} would change a value, which templates must not", kind_of(v), name));
  if (v.is_dict()) {
    const Value* found = v.dict().get(name);
    if (found != nullptr) return *found;
  }
  if (v.holds<Namespace>()) {
    const Value* found = std::get<std::shared_ptr<Namespace>>(v.of)->names.get(name);
    if (found != nullptr) return *found;
  }
  if (v.holds<Loop>()) return member_of_loop(budget, *std::get<std::shared_ptr<Loop>>(v.of), name);
  return missing(v, name);
}

Value item_of(Budget& budget, const Value& v, const Value& key) {
  if (v.is_undefined()) fail(*std::get<Undefined>(v.of).why);
  if (v.is_dict()) {
    const Value* found = v.dict().find(key);
    if (found != nullptr) return *found;
  } else if (key.is_whole() && (v.is_string() || v.holds<List>())) {
    int64_t at = whole(key);
    if (v.is_string()) {
      budget.read(v.string().size());
      const auto one = at == -1 ? between(v.string(), -1, INT64_MAX) : between(v.string(), at, at + 1);
      if (!one.empty()) return one;
    } else if (v.list().kind != List::Kind::kGenerator && v.list().kind != List::Kind::kView) {
      const auto size = int64_t(v.list().items.size());
      if (at < 0) at += size;
      if (at >= 0 && at < size) return v.list().items[size_t(at)];
    }
    return undefined(fmt::format("'{} object' has no element {}", kind_of(v), whole(key)));
  }
  if (key.is_string()) return member_of(budget, v, key.string());
  return missing(v, to_repr(budget, key));
}

Value attribute_of(Budget& budget, const Value& v, const Value& path) {
  if (!path.is_string()) return item_of(budget, v, path);
  Value at = v;
  for (const std::string& part : split(path.string(), ".", -1, Side::kLeft)) {
    const bool place = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string::npos;
    at = item_of(budget, at, place ? Value(int64_t(std::stoll(part))) : Value(part));
  }
  return at;
}

Value slice_of(Budget& budget, const Value& v, const Value& from, const Value& to, const Value& by) {
  const bool list = v.holds<List>() && v.list().kind != List::Kind::kGenerator && v.list().kind != List::Kind::kView;
  if (v.is_undefined()) fail(*std::get<Undefined>(v.of).why);
  if (!list && !v.is_string()) fail(fmt::format("a value of type {} has no slices", kind_of(v)));
  const int64_t step = by.is_none() ? 1 : whole(by);
  if (step == 0) fail("a slice by 0");
  if (v.is_string() && step == 1) {
    budget.read(v.string().size());
    budget.make(v.string().size());
    const Value part = between(v.string(), from.is_none() ? 0 : whole(from), to.is_none() ? INT64_MAX : whole(to));
    return v.is_safe() ? safe(part) : part;
  }
  const Items items = items_of(budget, v);
  const auto size = int64_t(items.size());
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](const Value& at, int64_t fallback) {
    if (at.is_none()) return fallback;
    return std::clamp(whole(at) < 0 ? whole(at) + size : whole(at), low, high);
  };
  const int64_t begin = bound(from, step > 0 ? low : high), end = bound(to, step > 0 ? high : low);
  Items part;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    part.push_back(items[size_t(i)]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget.make(part.size() * sizeof(Value));
  if (list)
    return make_list(std::move(part), v.list().kind == List::Kind::kTuple ? List::Kind::kTuple : List::Kind::kList);
  std::string text;
  for (const Value& c : part) text += c.string();
  return v.is_safe() ? safe(std::move(text)) : text;
}

}  // namespace weft::chat
