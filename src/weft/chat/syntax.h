// What a chat template consists of: tokens, and a tree of them.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/chat/value.h"

namespace weft::chat {

struct Token {
  enum class Kind { kText, kName, kInteger, kFloat, kString, kSign, kTagBegin, kTagEnd, kPrintBegin, kPrintEnd, kEnd };
  Kind kind;
  std::string text;
  size_t line = 1;
};
// Blanks around tags are cut as trim_blocks and lstrip_blocks say. Throws FileError, beginning with `source`. The last
// token is kEnd.
std::vector<Token> tokens_of(std::string_view text, const std::string& source);

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

// f(a, name=b, *c, **d), and the parameters of a macro, whose values are the defaults.
struct NamedNode {
  std::string name;
  NodePtr value;  // empty: a parameter without a default
};

struct Node {
  enum class Kind {
    // expressions; `name` is an operator, attribute, filter or test, `parts` its operands
    kLiteral,
    kName,
    kList,
    kTuple,
    kDict,
    kNot,
    kSign,
    kBinary,   // + - * / // % **
    kJoin,     // ~
    kCompare,  // names: the operators between the parts
    kAnd,
    kOr,
    kIfElse,
    kAttribute,
    kIndex,
    kSlice,
    kCall,
    kFilter,
    kTest,
    kTarget,  // of an assignment: a name, or parts; name.attribute
    // statements; `body`, `other` are blocks
    kText,
    kPrint,
    kIf,
    kFor,
    kSet,
    kSetBlock,
    kMacro,
    kCallBlock,
    kFilterBlock,
    kWith,
    kGeneration,
    kBreak,
    kContinue
  };
  Kind kind;
  size_t line = 1;
  int depth = 1;  // of the tree below
  std::string name, attribute;
  Value literal{};
  std::vector<NodePtr> parts{};    // empty pointers: left out, as in x[:2]
  std::vector<NamedNode> named{};  // arguments by name; parameters of a macro
  NodePtr more, more_named;        // *args, **kwargs
  std::vector<std::string> names{};
  Body body{}, other{};
  bool sees_loop = false;                                                   // a for whose body speaks of `loop`
  bool takes_more = false, takes_more_named = false, takes_caller = false;  // a macro that asks for varargs, ...
};

// Throws FileError, beginning with `source`, and its line, for what is broken or unknown.
Body parse(const std::vector<Token>& tokens, const std::string& source);

}  // namespace weft::chat
