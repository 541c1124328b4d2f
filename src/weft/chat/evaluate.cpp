// Expressions, and the functions that every template has.

#include "weft/chat/arguments.h"
#include "weft/chat/builtins.h"
#include "weft/chat/operators.h"
#include "weft/chat/renderer.h"

namespace weft::chat {
namespace {

using K = Node::Kind;

constexpr int64_t kLongestRange = 100'000;  // as the library's sandbox has it

Value range(Budget& budget, const Arguments& a) {
  const Given g("range", "start stop step", a);
  const int64_t begin = g[1] == nullptr ? 0 : whole(g(0)), end = g[1] == nullptr ? whole(g(0)) : whole(g(1));
  const int64_t by = g.number(2, 1);
  if (by == 0) fail("range by 0");
  Items items;
  for (int64_t i = begin; by > 0 ? i < end : i > end;) {
    if (int64_t(items.size()) == kLongestRange) fail(fmt::format("range of more than {} numbers", kLongestRange));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  budget.make(items.size() * sizeof(Value));
  return make_list(std::move(items), List::Kind::kRange);
}

// dict(a=1), dict({...}), dict([(key, value)])
Value dictionary(Budget& budget, const Arguments& a) {
  Value made = make_dict();
  if (a.positional.size() > 1) fail("dict takes at most one argument without a name");
  if (!a.positional.empty() && a.positional[0].is_dict())
    for (const auto& [key, value] : a.positional[0].dict().items()) made.dict().set(key, value);
  else if (!a.positional.empty())
    for (const Value& pair : items_of(budget, a.positional[0])) {
      const Items parts = items_of(budget, pair);
      if (parts.size() != 2) fail("dict of a list expects pairs");
      made.dict().set(parts[0], parts[1]);
    }
  for (const auto& [name, value] : a.named) made.dict().set(name, value);
  budget.make(made.dict().items().size() * 4 * sizeof(Value));
  return made;
}

bool holds(Budget& budget, const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return equal(budget, a, b);
  if (op == "!=") return !equal(budget, a, b);
  if (op == "in") return contains(budget, b, a);
  if (op == "not in") return !contains(budget, b, a);
  const int order = compare(budget, a, b);
  return op == "<" ? order < 0 : op == ">" ? order > 0 : op == "<=" ? order <= 0 : order >= 0;
}

}  // namespace

Renderer::Renderer(const Dict& variables) {
  add_globals();
  for (const auto& [name, value] : variables.items()) globals_->names[name.string()] = value;
}

void Renderer::add_globals() {
  const auto add = [this](const char* name, std::function<Value(const Arguments&)> f) {
    globals_->names[name] = make_function(name, std::move(f));
  };
  add("raise_exception", [this](const Arguments& a) -> Value {
    fail("the template refuses the conversation: " + to_text(budget_, Given("raise_exception", "message", a)(0)));
  });
  add("range", [this](const Arguments& a) { return range(budget_, a); });
  add("dict", [this](const Arguments& a) { return dictionary(budget_, a); });
  add("namespace", [this](const Arguments& a) { return make_namespace(a); });
}

Value Renderer::make_namespace(const Arguments& a) {
  const Value names = dictionary(budget_, a);
  const auto space = std::make_shared<Namespace>();
  for (const auto& [name, value] : names.dict().items()) space->names.set(name, value);
  spaces_.push_back(space);
  return space;
}

Value Renderer::value(const Node& n, const ScopePtr& scope) {
  const Deeper deeper(depth_);
  budget_.step();
  switch (n.kind) {
    case K::kLiteral:
      return n.literal;
    case K::kName:
      return lookup(n.name, scope);
    case K::kList:
    case K::kTuple:
      return list(n, scope);
    case K::kDict:
      return dict(n, scope);
    case K::kCompare:
      return compared(n, scope);
    case K::kJoin:
      return joined(n, scope);
    case K::kSlice:
      return sliced(n, scope);
    case K::kCall:
      return called(n, scope, arguments(n, 1, scope));
    default:
      return operation(n, scope);
  }
}

Value Renderer::operation(const Node& n, const ScopePtr& scope) {
  Value first = value(*n.parts[0], scope);
  switch (n.kind) {
    case K::kAnd:
      return truth(first) ? value(*n.parts[1], scope) : first;
    case K::kOr:
      return truth(first) ? first : value(*n.parts[1], scope);
    case K::kIfElse:
      if (truth(first)) return value(*n.parts[1], scope);
      return n.parts[2] ? value(*n.parts[2], scope) : undefined("an \"if\" without \"else\" did not hold");
    case K::kNot:
      return !truth(first);
    case K::kSign:
      line_ = n.line;
      return signed_number(n.name, first);
    case K::kBinary: {
      const Value second = value(*n.parts[1], scope);
      line_ = n.line;
      return binary(budget_, n.name, first, second);
    }
    case K::kAttribute:
      line_ = n.line;
      return member_of(budget_, first, n.name);
    case K::kIndex: {
      const Value key = value(*n.parts[1], scope);
      line_ = n.line;
      return item_of(budget_, first, key);
    }
    case K::kFilter: {
      const Arguments a = arguments(n, 1, scope);
      line_ = n.line;
      return apply_filter(budget_, n.name, first, a);
    }
    case K::kTest: {
      const Arguments a = arguments(n, 1, scope);
      line_ = n.line;
      return apply_test(budget_, n.name, first, a);
    }
    default:
      WEFT_CHECK(false, "a statement in place of an expression");
  }
  return {};
}

Value Renderer::list(const Node& n, const ScopePtr& scope) {
  Items items;
  budget_.make(n.parts.size() * sizeof(Value));
  for (const auto& part : n.parts) items.push_back(value(*part, scope));
  return make_list(std::move(items), n.kind == K::kTuple ? List::Kind::kTuple : List::Kind::kList);
}

Value Renderer::dict(const Node& n, const ScopePtr& scope) {
  Value made = make_dict();
  budget_.make(n.parts.size() * 2 * sizeof(Value));
  for (size_t i = 0; i + 1 < n.parts.size(); i += 2) {
    const Value key = value(*n.parts[i], scope);
    made.dict().set(key, value(*n.parts[i + 1], scope));
  }
  return made;
}

// a < b < c: each operand once, up to the first that does not hold.
Value Renderer::compared(const Node& n, const ScopePtr& scope) {
  Value left = value(*n.parts[0], scope);
  for (size_t i = 0; i < n.names.size(); ++i) {
    Value right = value(*n.parts[i + 1], scope);
    line_ = n.line;
    if (!holds(budget_, n.names[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Renderer::joined(const Node& n, const ScopePtr& scope) {
  std::string text;
  for (const auto& part : n.parts) text += to_text(budget_, value(*part, scope));
  return text;
}

Value Renderer::sliced(const Node& n, const ScopePtr& scope) {
  const Value v = value(*n.parts[0], scope);
  Value bounds[3] = {nullptr, nullptr, nullptr};
  for (size_t i = 1; i < n.parts.size(); ++i)
    if (n.parts[i]) bounds[i - 1] = value(*n.parts[i], scope);
  line_ = n.line;
  return slice_of(budget_, v, bounds[0], bounds[1], bounds[2]);
}

Value Renderer::called(const Node& n, const ScopePtr& scope, Arguments a) {
  const Value f = value(*n.parts[0], scope);
  line_ = n.line;
  if (f.is_undefined()) fail(*std::get<Undefined>(f.of).why);
  if (!f.holds<Function>()) fail(fmt::format("a value of type {} cannot be called", kind_of(f)));
  return std::get<std::shared_ptr<Function>>(f.of)->call(a);
}

Value Renderer::lookup(const std::string& name, const ScopePtr& scope) const {
  for (const Scope* s = scope.get(); s != nullptr; s = s->around.get())
    if (const auto at = s->names.find(name); at != s->names.end()) return at->second;
  return undefined(fmt::format("'{}' is undefined", name));
}

Arguments Renderer::arguments(const Node& n, size_t from, const ScopePtr& scope) {
  Arguments a;
  for (size_t i = from; i < n.parts.size(); ++i) a.positional.push_back(value(*n.parts[i], scope));
  for (const auto& [name, part] : n.named) a.named.emplace_back(name, value(*part, scope));
  if (n.more)
    for (Value& v : items_of(budget_, value(*n.more, scope))) a.positional.push_back(std::move(v));
  if (n.more_named) {
    const Value more = value(*n.more_named, scope);
    if (!more.is_dict()) fail("** expects a dictionary");
    for (const auto& [name, v] : more.dict().items()) a.named.emplace_back(need_string(name, "**"), v);
  }
  return a;
}

}  // namespace weft::chat
