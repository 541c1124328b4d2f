// Statements.
#include "weft/chat/renderer.h"

#include <algorithm>

#include "weft/chat/builtins.h"

namespace weft::chat {
namespace {

using K = Node::Kind;

ScopePtr inner(const ScopePtr& scope) { return std::make_shared<Scope>(Scope{{}, scope}); }

}  // namespace

Rendering Renderer::run(const Body& body) {
  Rendering out;
  block(body, globals_, out);
  out.lost_generated = lost_generated_;
  return out;
}

Renderer::~Renderer() {
  for (const auto& space : spaces_) space->names.clear();
}

Renderer::Flow Renderer::block(const Body& body, const ScopePtr& scope, Rendering& out) {
  const Deeper deeper(depth_);
  for (const auto& n : body) {
    budget_.step();
    line_ = n->line;
    const Flow flow = statement(*n, scope, out);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Renderer::Flow Renderer::statement(const Node& n, const ScopePtr& scope, Rendering& out) {
  switch (n.kind) {
    case K::kText:
      append(n.name, out);
      return Flow::kOn;
    case K::kPrint:
      out.text += to_text(budget_, value(*n.parts[0], scope));
      return Flow::kOn;
    case K::kIf:
      return block(truth(value(*n.parts[0], scope)) ? n.body : n.other, scope, out);
    case K::kFor:
      loop(n, scope, out);
      return Flow::kOn;
    case K::kSet:
      assign(*n.parts[0], value(*n.parts[1], scope), *scope, scope);
      return Flow::kOn;
    case K::kSetBlock: {
      std::string text = captured(n.body, scope);
      if (n.parts[1]) text = filtered(*n.parts[1], std::move(text), scope);
      assign(*n.parts[0], std::move(text), *scope, scope);
      return Flow::kOn;
    }
    case K::kMacro:
      scope->names[n.name] = macro(n, scope);
      return Flow::kOn;
    case K::kCallBlock:
      call_block(n, scope, out);
      return Flow::kOn;
    case K::kFilterBlock:
      append(filtered(*n.parts[0], captured(n.body, scope), scope), out);
      return Flow::kOn;
    case K::kWith: {
      const ScopePtr s = inner(scope);
      for (size_t i = 0; i + 1 < n.parts.size(); i += 2) assign(*n.parts[i], value(*n.parts[i + 1], scope), *s, scope);
      return block(n.body, s, out);
    }
    case K::kGeneration:
      return generation(n, scope, out);
    case K::kBreak:
      return Flow::kBreak;
    case K::kContinue:
      return Flow::kContinue;
    default:
      WEFT_CHECK(false, "an expression in place of a statement");
  }
  return Flow::kOn;
}

void Renderer::append(const std::string& text, Rendering& out) {
  budget_.make(text.size());
  out.text += text;
}
Renderer::Flow Renderer::generation(const Node& n, const ScopePtr& scope, Rendering& out) {
  const size_t begin = out.text.size();
  const Flow flow = block(n.body, inner(scope), out);
  out.generated.push_back({begin, out.text.size()});
  return flow;
}

std::string Renderer::captured(const Body& body, const ScopePtr& scope) {
  Rendering part;
  block(body, inner(scope), part);
  if (!part.generated.empty()) lost_generated_ = true;
  return std::move(part.text);
}

std::string Renderer::filtered(const Node& n, std::string text, const ScopePtr& scope) {
  if (n.kind == K::kText) return text;
  text = filtered(*n.parts[0], std::move(text), scope);
  const Arguments a = arguments(n, 1, scope);
  line_ = n.line;
  return to_text(budget_, apply_filter(budget_, n.name, std::move(text), a));
}

void Renderer::assign(const Node& target, Value v, Scope& scope, const ScopePtr& seen) {
  if (!target.parts.empty()) {
    const Items items = items_of(budget_, v);
    if (items.size() != target.parts.size())
      fail(fmt::format("{} values for {} names", items.size(), target.parts.size()));
    for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope, seen);
    return;
  }
  if (target.attribute.empty()) {
    scope.names[target.name] = std::move(v);
    return;
  }
  const Value owner = lookup(target.name, seen);
  if (!owner.holds<Namespace>()) fail(fmt::format("'{}' is no namespace, and cannot be changed", target.name));
  std::get<std::shared_ptr<Namespace>>(owner.of)->names.set(target.attribute, std::move(v));
}

// Whether the loop's own `if` takes the item.
bool Renderer::passes(const Node& n, const Value& item, const ScopePtr& scope) {
  if (!n.parts[2]) return true;
  const ScopePtr s = inner(scope);
  assign(*n.parts[0], item, *s, scope);
  return truth(value(*n.parts[2], s));
}

// Items are chosen one by one as the loop goes on; all at once where it asks `loop` how many there are.
void Renderer::loop(const Node& n, const ScopePtr& scope, Rendering& out) {
  const auto state = std::make_shared<Loop>();
  state->items = items_of(budget_, value(*n.parts[1], scope));
  if (n.sees_loop) std::erase_if(state->items, [&](const Value& item) { return !passes(n, item, scope); });
  for (const Value& v : state->items) state->depth = std::max(state->depth, depth_of(v) + 1);
  struct AtTheEnd {
    Loop& loop;
    ~AtTheEnd() {
      loop.last_seen = Value();  // changed() may have seen the loop itself
      if (loop.at > 0 && loop.at == loop.items.size()) --loop.at;
    }
  } at_the_end{*state};
  bool any = false;
  for (; state->at < state->items.size(); ++state->at) {
    const Value item = state->items[state->at];
    if (!n.sees_loop && !passes(n, item, scope)) continue;
    any = true;
    const ScopePtr s = inner(scope);
    s->names["loop"] = state;
    assign(*n.parts[0], item, *s, scope);
    if (block(n.body, s, out) == Flow::kBreak) return;
  }
  if (!any) block(n.other, inner(scope), out);
}

// --- macros ---

Value Renderer::macro(const Node& n, const ScopePtr& scope) {
  if (kept_.empty() || kept_.back() != scope) kept_.push_back(scope);
  return make_function(n.name,
                       [this, &n, s = scope.get()](const Arguments& a) -> Value { return call_macro(n, s, a); });
}

std::string Renderer::call_macro(const Node& n, Scope* scope, const Arguments& a) {
  const Deeper deeper(depth_);
  const ScopePtr s = inner(ScopePtr(scope, [](Scope*) {}));  // kept_ holds it
  bind_parameters(n, s, a);
  Rendering part;
  block(n.body, s, part);
  if (!part.generated.empty()) lost_generated_ = true;
  return std::move(part.text);
}

void Renderer::bind_parameters(const Node& n, const ScopePtr& s, const Arguments& a) {
  if (a.positional.size() > n.named.size() && !n.takes_more)
    fail(fmt::format("the macro {} takes at most {} arguments, got {}", n.name, n.named.size(), a.positional.size()));
  Value more_named = make_dict();
  for (const auto& [name, v] : a.named) {
    const auto at =
        std::find_if(n.named.begin(), n.named.end(), [&, &name = name](const auto& p) { return p.name == name; });
    const bool is_caller = name == "caller" && n.takes_caller;
    if (at != n.named.end() && size_t(at - n.named.begin()) < a.positional.size())
      fail(fmt::format("the macro {} was given \"{}\" twice", n.name, name));
    if (at != n.named.end() || is_caller)
      s->names[name] = v;
    else if (n.takes_more_named)
      more_named.dict().set(name, v);
    else
      fail(fmt::format("the macro {} has no argument \"{}\"", n.name, name));
  }
  for (size_t i = 0; i < n.named.size(); ++i) {
    const NamedNode& p = n.named[i];
    if (i < a.positional.size())
      s->names[p.name] = a.positional[i];
    else if (s->names.find(p.name) == s->names.end())
      s->names[p.name] = p.value ? value(*p.value, s) : undefined(fmt::format("'{}' was not given", p.name));
  }
  if (n.takes_caller)
    s->names.try_emplace("caller", undefined("there is no caller: the macro stands in no {% call %}"));
  if (n.takes_more_named) s->names["kwargs"] = more_named;
  if (!n.takes_more) return;
  const size_t taken = std::min(n.named.size(), a.positional.size());
  s->names["varargs"] =
      make_list(Items(a.positional.begin() + ptrdiff_t(taken), a.positional.end()), List::Kind::kTuple);
}

void Renderer::call_block(const Node& n, const ScopePtr& scope, Rendering& out) {
  const Node& call = *n.parts[0];
  Arguments a = arguments(call, 1, scope);
  a.named.emplace_back("caller", macro(*n.body[0], scope));
  append(to_text(budget_, called(call, scope, std::move(a))), out);
}

}  // namespace weft::chat
