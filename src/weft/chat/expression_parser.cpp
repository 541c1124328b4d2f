#include "weft/chat/expression_parser.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "weft/base/json.h"

namespace weft::chat {
namespace {

constexpr int kDeepestParser = 150;  // levels of brackets and blocks
constexpr int kDeepestTree = 400;    // of operators, one after the other

}  // namespace

NodePtr ExpressionParser::expression() {
  const Deeper deeper(*this);
  auto value = disjunction();
  while (is_name("if")) {
    auto n = node(K::kIfElse);
    take();
    n = with(std::move(n), disjunction());
    n = with(std::move(n), std::move(value));
    n = with(std::move(n), take_name("else") ? expression() : nullptr);
    value = std::move(n);
  }
  return value;
}

template <class Operand>
NodePtr ExpressionParser::chain(K kind, std::initializer_list<const char*> operators, const Operand& operand) {
  auto left = operand();
  while (std::any_of(operators.begin(), operators.end(), [this](const char* s) { return is_sign(s) || is_name(s); })) {
    auto n = node(kind);
    n->name = take().text;
    n = with(std::move(n), std::move(left));
    left = with(std::move(n), operand());
  }
  return left;
}
NodePtr ExpressionParser::disjunction() {
  return chain(K::kOr, {"or"}, [this] { return conjunction(); });
}
NodePtr ExpressionParser::conjunction() {
  return chain(K::kAnd, {"and"}, [this] { return negation(); });
}
NodePtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Deeper deeper(*this);
  auto n = node(K::kNot);
  take();
  return with(std::move(n), negation());
}

NodePtr ExpressionParser::comparison() {
  auto first = sum();
  NodePtr n;
  while (true) {
    std::string op;
    for (const char* s : {"==", "!=", "<=", ">=", "<", ">"})
      if (is_sign(s)) op = s;
    if (is_name("in")) op = "in";
    if (is_name("not") && next().kind == Kind::kName && next().text == "in") op = "not in";
    if (op.empty()) break;
    if (!n) n = with(node(K::kCompare), std::move(first));
    take();
    if (op == "not in") take();
    n->names.push_back(op);
    n = with(std::move(n), sum());
  }
  return n ? std::move(n) : std::move(first);
}

NodePtr ExpressionParser::sum() {
  return chain(K::kBinary, {"+", "-"}, [this] { return join(); });
}
NodePtr ExpressionParser::join() {
  auto first = product();
  if (!is_sign("~")) return first;
  auto n = with(node(K::kJoin), std::move(first));
  while (take_sign("~")) n = with(std::move(n), product());
  return n;
}
NodePtr ExpressionParser::product() {
  return chain(K::kBinary, {"*", "/", "//", "%"}, [this] { return power(); });
}
NodePtr ExpressionParser::power() {
  return chain(K::kBinary, {"**"}, [this] { return unary(true); });
}

NodePtr ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  NodePtr value;
  if (is_sign("-") || is_sign("+")) {
    value = node(K::kSign);
    value->name = take().text;
    value = with(std::move(value), unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filtered(std::move(value)) : std::move(value);
}

NodePtr ExpressionParser::filtered(NodePtr value) {
  while (true) {
    if (take_sign("|"))
      value = filter(std::move(value));
    else if (is_name("is"))
      value = test(std::move(value));
    else if (is_sign("("))
      value = call(std::move(value));
    else
      return value;
  }
}

NodePtr ExpressionParser::filter(NodePtr value) {
  auto n = node(K::kFilter);
  n->name = need(Kind::kName, "a filter");
  n = with(std::move(n), std::move(value));
  if (take_sign("(")) arguments(*n);
  return n;
}
NodePtr ExpressionParser::filters(NodePtr value) {
  value = filter(std::move(value));
  while (take_sign("|")) value = filter(std::move(value));
  return value;
}

NodePtr ExpressionParser::test(NodePtr value) {
  auto n = node(K::kTest);
  take();
  const bool negated = take_name("not");
  n->name = need(Kind::kName, "a test");
  n = with(std::move(n), std::move(value));
  const Kind kind = now().kind;
  const bool operand = kind == Kind::kString || kind == Kind::kInteger || kind == Kind::kFloat || is_sign("[") ||
                       is_sign("{") || (kind == Kind::kName && !is_name("else") && !is_name("or") && !is_name("and"));
  if (take_sign("(")) {
    arguments(*n);
  } else if (operand) {
    if (is_name("is")) fail("tests with \"is\" cannot follow each other");
    const bool word = is_name("if") || is_name("in") || is_name("not") || is_name("recursive");
    if (!word) n = with(std::move(n), postfix(primary()));
  }
  return negated ? with(node(K::kNot), std::move(n)) : std::move(n);
}

NodePtr ExpressionParser::postfix(NodePtr value) {
  while (true) {
    if (is_sign("."))
      value = attribute(std::move(value));
    else if (is_sign("["))
      value = subscript(std::move(value));
    else if (is_sign("("))
      value = call(std::move(value));
    else
      return value;
  }
}

NodePtr ExpressionParser::attribute(NodePtr value) {
  auto n = node(K::kAttribute);
  take();
  if (now().kind == Kind::kInteger) {
    n->kind = K::kIndex;
    n = with(std::move(n), std::move(value));
    return with(std::move(n), number());
  }
  n->name = need(Kind::kName, "an attribute");
  return with(std::move(n), std::move(value));
}

NodePtr ExpressionParser::subscript(NodePtr value) {
  auto n = with(node(K::kIndex), std::move(value));
  take();
  n = with(std::move(n), is_sign(":") ? nullptr : expression());
  for (int colons = 0; colons < 2 && take_sign(":"); ++colons) {
    n->kind = K::kSlice;
    n = with(std::move(n), is_sign(":") || is_sign("]") ? nullptr : expression());
  }
  if (is_sign(",")) fail("several indices in [ ] are not supported");
  need_sign("]");
  return n;
}

NodePtr ExpressionParser::call(NodePtr value) {
  auto n = with(node(K::kCall), std::move(value));
  take();
  arguments(*n);
  return n;
}

void ExpressionParser::arguments(Node& n) {
  const auto put = [&](NodePtr& place) {
    if (place) fail("broken arguments of a call");
    take();
    place = expression();
    deepen(n, place.get());
  };
  while (!take_sign(")")) {
    if (is_sign("*")) {
      put(n.more);
    } else if (is_sign("**")) {
      put(n.more_named);
    } else if (now().kind == Kind::kName && next().kind == Kind::kSign && next().text == "=") {
      std::string name = take().text;
      take();
      n.named.push_back({std::move(name), expression()});
      deepen(n, n.named.back().value.get());
    } else {
      if (!n.named.empty() || n.more || n.more_named) fail("an argument without a name behind one with a name");
      n.parts.push_back(expression());
      deepen(n, n.parts.back().get());
    }
    if (!is_sign(")")) need_sign(",");
  }
}

bool ExpressionParser::tuple_ends() const {
  return now().kind == Kind::kTagEnd || now().kind == Kind::kPrintEnd || is_sign(")") || is_name("in") ||
         is_name("recursive") || now().kind == Kind::kEnd;
}
NodePtr ExpressionParser::tuple(Ternary allowed) {
  if (tuple_ends()) fail("expected an expression, got " + in_quotes(now().text));
  auto first = ternary(allowed);
  if (!is_sign(",")) return first;
  auto n = with(node(K::kTuple), std::move(first));
  while (take_sign(",") && !tuple_ends()) n = with(std::move(n), ternary(allowed));
  return n;
}

NodePtr ExpressionParser::target() {
  const Deeper deeper(*this);
  auto first = one_target();
  if (!is_sign(",")) return first;
  auto n = with(node(K::kTarget), std::move(first));
  while (take_sign(",") && !tuple_ends() && !is_sign("=")) n = with(std::move(n), one_target());
  return n;
}
NodePtr ExpressionParser::one_target() {
  if (take_sign("(")) {
    auto n = target();
    need_sign(")");
    return n;
  }
  auto n = node(K::kTarget);
  n->name = need(Kind::kName, "a name");
  for (const char* word : {"true", "True", "false", "False", "none", "None", "loop"})
    if (n->name == word) fail(n->name + " cannot be assigned to");
  if (take_sign(".")) n->attribute = need(Kind::kName, "an attribute");
  return n;
}

NodePtr ExpressionParser::primary() {
  auto n = node(K::kLiteral);
  switch (now().kind) {
    case Kind::kName:
      return name_or_constant();
    case Kind::kInteger:
    case Kind::kFloat:
      return number();
    case Kind::kString: {
      std::string text;
      while (now().kind == Kind::kString) text += take().text;
      n->literal = std::move(text);
      return n;
    }
    default:
      break;
  }
  if (is_sign("[")) return list();
  if (is_sign("{")) return dict();
  if (!take_sign("(")) fail("expected a value, got " + in_quotes(now().text));
  if (take_sign(")")) {
    n->kind = K::kTuple;
    return n;
  }
  n = tuple();
  need_sign(")");
  return n;
}

NodePtr ExpressionParser::name_or_constant() {
  auto n = node(K::kLiteral);
  const std::string& name = take().text;
  if (name == "true" || name == "True")
    n->literal = true;
  else if (name == "false" || name == "False")
    n->literal = false;
  else if (name == "none" || name == "None")
    n->literal = nullptr;
  else {
    n->kind = K::kName;
    n->name = name;
    sees_varargs_ |= name == "varargs";
    sees_kwargs_ |= name == "kwargs";
    sees_caller_ |= name == "caller";
    sees_loop_ |= name == "loop";
  }
  return n;
}

NodePtr ExpressionParser::number() {
  auto n = node(K::kLiteral);
  std::string text = take().text;
  if (tokens_[at_ - 1].kind == Kind::kFloat) {
    n->literal = std::strtod(text.c_str(), nullptr);
    return n;
  }
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && isalpha(uint8_t(text[1])) != 0) {
    base = tolower(text[1]) == 'x' ? 16 : tolower(text[1]) == 'o' ? 8 : 2;
    text.erase(0, 2);
    std::erase(text, '_');
  }
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, base);
  if (errno != 0 || *end != 0 || text.empty()) fail(fmt::format("{} is no whole number of 64 bits", in_quotes(text)));
  n->literal = int64_t{value};
  return n;
}

NodePtr ExpressionParser::list() {
  auto n = node(K::kList);
  take();
  while (!take_sign("]")) {
    n = with(std::move(n), expression());
    if (!is_sign("]")) need_sign(",");
  }
  return n;
}
NodePtr ExpressionParser::dict() {
  auto n = node(K::kDict);
  take();
  while (!take_sign("}")) {
    n = with(std::move(n), expression());
    need_sign(":");
    n = with(std::move(n), expression());
    if (!is_sign("}")) need_sign(",");
  }
  return n;
}

// --- tokens ---

bool ExpressionParser::take_sign(std::string_view s) {
  const bool is = is_sign(s);
  if (is) take();
  return is;
}
bool ExpressionParser::take_name(std::string_view s) {
  const bool is = is_name(s);
  if (is) take();
  return is;
}
void ExpressionParser::need_sign(std::string_view s) {
  if (!take_sign(s)) fail(fmt::format("expected {}, got {}", s, in_quotes(now().text)));
}
std::string ExpressionParser::need(Kind kind, std::string_view what) {
  if (now().kind != kind) fail(fmt::format("expected {}, got {}", what, in_quotes(now().text)));
  return take().text;
}

NodePtr ExpressionParser::node(K kind) const {
  auto n = std::make_unique<Node>();
  n->kind = kind;
  n->line = now().line;
  return n;
}
NodePtr ExpressionParser::with(NodePtr n, NodePtr part) {
  deepen(*n, part.get());
  n->parts.push_back(std::move(part));
  return n;
}
void ExpressionParser::deepen(Node& n, const Node* part) const {
  if (part == nullptr) return;
  n.depth = std::max(n.depth, part->depth + 1);
  if (n.depth > kDeepestTree) fail("nested too deep");
}
void ExpressionParser::fail(const std::string& what) const {
  throw FileError(fmt::format("{}: line {}: {}", source_, now().line, what));
}

ExpressionParser::Deeper::Deeper(ExpressionParser& p) : parser(p) {
  if (parser.depth_ + 1 > kDeepestParser) parser.fail("nested too deep");
  ++parser.depth_;
}

}  // namespace weft::chat
