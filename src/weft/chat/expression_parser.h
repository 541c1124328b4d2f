// Reads the expressions of a template: Jinja's own grammar and precedences.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "weft/chat/syntax.h"

namespace weft::chat {

class ExpressionParser {
 public:
  ExpressionParser(const std::vector<Token>& tokens, const std::string& source) : tokens_(tokens), source_(source) {}

 protected:
  using Kind = Token::Kind;
  using K = Node::Kind;

  enum class Ternary { kAllowed, kNot };  // a if b else c
  NodePtr expression();
  // Expressions with commas between them are a tuple.
  NodePtr tuple(Ternary ternary = Ternary::kAllowed);
  // What is assigned to: a name, names with commas, (nested), or name.attribute.
  NodePtr target();
  // The filter whose name stands here, and those behind it, of `value`.
  NodePtr filters(NodePtr value);
  // Behind "(", up to and with ")".
  void arguments(Node& n);

  // The tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_sign(std::string_view s) const { return now().kind == Kind::kSign && now().text == s; }
  bool is_name(std::string_view s) const { return now().kind == Kind::kName && now().text == s; }
  bool take_sign(std::string_view s);
  bool take_name(std::string_view s);
  void need_sign(std::string_view s);
  std::string need(Kind kind, std::string_view what);

  NodePtr node(K kind) const;
  // Gives the node its operands: every tree is bounded here.
  NodePtr with(NodePtr n, NodePtr part);
  void deepen(Node& n, const Node* part) const;
  [[noreturn]] void fail(const std::string& what) const;

  // While it lives, the parser is one level deeper; too deep throws.
  struct Deeper {
    explicit Deeper(ExpressionParser& p);
    ~Deeper() { --parser.depth_; }
    ExpressionParser& parser;
  };

  bool sees_varargs_ = false, sees_kwargs_ = false, sees_caller_ = false, sees_loop_ = false;

 private:
  NodePtr ternary(Ternary t) { return t == Ternary::kAllowed ? expression() : disjunction(); }
  NodePtr disjunction();
  NodePtr conjunction();
  NodePtr negation();
  NodePtr comparison();
  NodePtr sum();
  NodePtr join();
  NodePtr product();
  NodePtr power();
  NodePtr unary(bool with_filters);
  NodePtr filtered(NodePtr value);
  NodePtr filter(NodePtr value);
  NodePtr test(NodePtr value);
  NodePtr postfix(NodePtr value);
  NodePtr attribute(NodePtr value);
  NodePtr subscript(NodePtr value);
  NodePtr call(NodePtr value);
  NodePtr primary();
  NodePtr name_or_constant();
  NodePtr number();
  NodePtr list();
  NodePtr dict();
  NodePtr one_target();
  bool tuple_ends() const;
  template <class Operand>
  NodePtr chain(K kind, std::initializer_list<const char*> operators, const Operand& operand);

  const std::vector<Token>& tokens_;
  const std::string& source_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace weft::chat
