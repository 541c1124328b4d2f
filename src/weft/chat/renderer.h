// Runs a template's tree. One of them renders once.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/chat/syntax.h"
#include "weft/chat/template.h"

namespace weft::chat {

// The names defined in a block; names of enclosing blocks are visible too.
struct Scope {
  std::map<std::string, Value, std::less<>> names;
  std::shared_ptr<Scope> around;
};
using ScopePtr = std::shared_ptr<Scope>;

class Renderer {
 public:
  // The tree must outlive it.
  explicit Renderer(const Dict& variables);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  // Throws Error without the place; line() is where.
  Rendering run(const Body& body);
  size_t line() const { return line_; }

 private:
  enum class Flow { kOn, kBreak, kContinue };

  // Text as it comes, and which of it stands in {% generation %}.
  Flow block(const Body& body, const ScopePtr& scope, Rendering& out);
  Flow statement(const Node& n, const ScopePtr& scope, Rendering& out);
  void append(const std::string& text, Rendering& out);
  Flow generation(const Node& n, const ScopePtr& scope, Rendering& out);
  // The text of a block that is not printed where it stands.
  std::string captured(const Body& body, const ScopePtr& scope);
  std::string filtered(const Node& filters, std::string text, const ScopePtr& scope);
  void assign(const Node& target, Value v, Scope& scope, const ScopePtr& seen);
  void loop(const Node& n, const ScopePtr& scope, Rendering& out);
  bool passes(const Node& n, const Value& item, const ScopePtr& scope);
  Value macro(const Node& n, const ScopePtr& scope);
  std::string call_macro(const Node& n, Scope* scope, const Arguments& a);
  void bind_parameters(const Node& n, const ScopePtr& inner, const Arguments& a);
  void call_block(const Node& n, const ScopePtr& scope, Rendering& out);

  Value value(const Node& n, const ScopePtr& scope);
  Value operation(const Node& n, const ScopePtr& scope);
  Value list(const Node& n, const ScopePtr& scope);
  Value dict(const Node& n, const ScopePtr& scope);
  Value compared(const Node& n, const ScopePtr& scope);
  Value joined(const Node& n, const ScopePtr& scope);
  Value sliced(const Node& n, const ScopePtr& scope);
  Value called(const Node& n, const ScopePtr& scope, Arguments a);
  Value lookup(const std::string& name, const ScopePtr& scope) const;
  Arguments arguments(const Node& n, size_t from, const ScopePtr& scope);

  Value make_namespace(const Arguments& a);
  void add_globals();

  // Macros in loops in macros, and their expressions: one level deeper while it lives. Throws Error if that is too
  // deep.
  struct Deeper {
    explicit Deeper(int& depth) : depth_(depth) {
      if (depth_ + 1 > kDeepestRendering) fail("nested too deep: do macros call each other without end?");
      ++depth_;
    }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    static constexpr int kDeepestRendering = 1000;
    int& depth_;
  };

  Budget budget_;
  ScopePtr globals_ = std::make_shared<Scope>();
  std::vector<ScopePtr> kept_;                      // in which macros were defined: a macro may outlive its block
  std::vector<std::shared_ptr<Namespace>> spaces_;  // the only values that may hold themselves: emptied at the end
  bool lost_generated_ = false;
  size_t line_ = 1;
  int depth_ = 0;
};

}  // namespace weft::chat
