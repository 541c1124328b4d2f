#include <algorithm>

#include "weft/base/error.h"
#include "weft/chat/expression_parser.h"

namespace weft::chat {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() { return block({}); }

 private:
  using Ends = std::initializer_list<std::string_view>;

  // Up to a tag of one of these names, which is left to be read. None: up to the end.
  Body block(Ends ends) {
    const Deeper deeper(*this);
    Body body;
    for (; now().kind != Kind::kEnd; body.push_back(part())) {
      if (now().kind != Kind::kTagBegin) continue;
      if (std::find(ends.begin(), ends.end(), next().text) != ends.end()) return body;
    }
    if (ends.size() > 0) fail(fmt::format("expected {{% {} %}}", ends.begin()[ends.size() - 1]));
    return body;
  }
  NodePtr part() {
    if (now().kind == Kind::kText) {
      auto n = node(K::kText);
      n->name = take().text;
      return n;
    }
    if (now().kind == Kind::kPrintBegin) {
      take();
      auto n = with(node(K::kPrint), tuple());
      need(Kind::kPrintEnd, "}}");
      return n;
    }
    take();
    return statement();
  }

  NodePtr statement() {
    auto n = node(K::kBreak);
    const std::string word = need(Kind::kName, "a tag's name");
    if (word == "if") return if_statement(std::move(n));
    if (word == "for") return for_statement(std::move(n));
    if (word == "set") return set_statement(std::move(n));
    if (word == "macro") return macro(std::move(n));
    if (word == "call") return call_block(std::move(n));
    if (word == "filter") return filter_block(std::move(n));
    if (word == "with") return with_block(std::move(n));
    if (word == "generation") {
      n->kind = K::kGeneration;
      return bodied(std::move(n), "endgeneration");
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(fmt::format("{{% {} %}} stands in no loop", word));
      if (word == "continue") n->kind = K::kContinue;
      need(Kind::kTagEnd, "%}");
      return n;
    }
    fail(
        fmt::format("the tag {{% {} %}} is not supported: weft knows if, for, set, macro, call, filter, with, raw, "
                    "generation, break, continue",
                    word));
  }

  // The rest of the tag, the block, and the tag that ends it.
  NodePtr bodied(NodePtr n, std::string_view end) {
    need(Kind::kTagEnd, "%}");
    n->body = block({end});
    close();
    return n;
  }
  std::string close() {
    need(Kind::kTagBegin, "{%");
    const std::string word = take().text;
    need(Kind::kTagEnd, "%}");
    return word;
  }

  NodePtr if_statement(NodePtr n) {
    n->kind = K::kIf;
    n = with(std::move(n), tuple(Ternary::kNot));
    need(Kind::kTagEnd, "%}");
    n->body = block({"elif", "else", "endif"});
    if (next().text == "elif") {
      const Deeper deeper(*this);
      take();
      auto other = node(K::kIf);
      take();
      n->other.push_back(if_statement(std::move(other)));
      return n;
    }
    if (close() == "else") {
      n->other = block({"endif"});
      close();
    }
    return n;
  }

  NodePtr for_statement(NodePtr n) {
    n->kind = K::kFor;
    n = with(std::move(n), target());
    if (!take_name("in")) fail("expected in");
    n = with(std::move(n), tuple(Ternary::kNot));
    n = with(std::move(n), take_name("if") ? expression() : nullptr);
    if (is_name("recursive")) fail("{% for ... recursive %} is not supported");
    need(Kind::kTagEnd, "%}");
    const bool outer = std::exchange(sees_loop_, false);
    ++loops_;
    n->body = block({"else", "endfor"});
    --loops_;
    n->sees_loop = sees_loop_;
    sees_loop_ |= outer;
    if (close() == "else") {
      n->other = block({"endfor"});
      close();
    }
    return n;
  }

  NodePtr set_statement(NodePtr n) {
    n->kind = K::kSet;
    n = with(std::move(n), target());
    if (take_sign("=")) {
      n = with(std::move(n), tuple());
      need(Kind::kTagEnd, "%}");
      return n;
    }
    n->kind = K::kSetBlock;
    n = with(std::move(n), take_sign("|") ? filters(node(K::kText)) : nullptr);
    return bodied(std::move(n), "endset");
  }

  NodePtr filter_block(NodePtr n) {
    n->kind = K::kFilterBlock;
    n = with(std::move(n), filters(node(K::kText)));
    return bodied(std::move(n), "endfilter");
  }

  NodePtr with_block(NodePtr n) {
    n->kind = K::kWith;
    while (now().kind != Kind::kTagEnd) {
      n = with(std::move(n), target());
      need_sign("=");
      n = with(std::move(n), expression());
      if (now().kind != Kind::kTagEnd) need_sign(",");
    }
    return bodied(std::move(n), "endwith");
  }

  NodePtr macro(NodePtr n) {
    n->kind = K::kMacro;
    n->name = need(Kind::kName, "a macro's name");
    need_sign("(");
    parameters(*n);
    return function_body(std::move(n), "endmacro");
  }
  // The body is a macro, `caller`, that the call in parts[0] is given.
  NodePtr call_block(NodePtr n) {
    n->kind = K::kCallBlock;
    n->name = "caller";
    auto f = node(K::kMacro);
    f->name = "caller";
    if (take_sign("(")) parameters(*f);
    n = with(std::move(n), expression());
    if (n->parts[0]->kind != K::kCall) fail("{% call %} expects a call");
    f = function_body(std::move(f), "endcall");
    n->body.push_back(std::move(f));
    return n;
  }
  void parameters(Node& n) {
    while (!take_sign(")")) {
      std::string name = need(Kind::kName, "a parameter");
      n.named.push_back({std::move(name), take_sign("=") ? expression() : nullptr});
      deepen(n, n.named.back().value.get());
      if (!is_sign(")")) need_sign(",");
    }
  }
  NodePtr function_body(NodePtr n, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const bool varargs = std::exchange(sees_varargs_, false), kwargs = std::exchange(sees_kwargs_, false),
               caller = std::exchange(sees_caller_, false);
    n = bodied(std::move(n), end);
    n->takes_more = std::exchange(sees_varargs_, varargs);
    n->takes_more_named = std::exchange(sees_kwargs_, kwargs);
    n->takes_caller = std::exchange(sees_caller_, caller || (end == "endcall" && sees_caller_));
    loops_ = loops;
    return n;
  }

  int loops_ = 0;  // around this place
};

}  // namespace

Body parse(const std::vector<Token>& tokens, const std::string& source) { return Parser(tokens, source).run(); }

}  // namespace weft::chat
