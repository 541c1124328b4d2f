// What stands behind `is`.

#include "weft/chat/arguments.h"
#include "weft/chat/builtins.h"
#include "weft/chat/strings.h"

namespace weft::chat {
namespace {

struct Test {
  const char* name;
  const char* parameters;
  bool (*holds)(Budget& budget, const Value& value, const Given& given);
};

bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_dict() || v.holds<List>() || v.holds<Loop>();
}
bool is_sequence(const Value& v) {
  using Kind = List::Kind;
  if (v.holds<List>()) return v.list().kind != Kind::kGenerator && v.list().kind != Kind::kView;
  return v.is_undefined() || v.is_string() || v.is_dict();
}
bool is_same(const Value& a, const Value& b) {
  Budget budget;
  if (a.of.index() != b.of.index()) return false;
  if (a.holds<List>()) return &a.list() == &b.list();
  if (a.is_dict()) return &a.dict() == &b.dict();
  return equal(budget, a, b);
}
int64_t rest(const Value& v, int64_t by) {
  if (by == 0) fail("division by zero");
  return by == -1 ? 0 : whole(v) % by;
}

constexpr Test kTests[] = {
    {"defined", "", [](Budget&, const Value& v, const Given&) { return !v.is_undefined(); }},
    {"undefined", "", [](Budget&, const Value& v, const Given&) { return v.is_undefined(); }},
    {"none", "", [](Budget&, const Value& v, const Given&) { return v.is_none(); }},
    {"string", "", [](Budget&, const Value& v, const Given&) { return v.is_string(); }},
    {"mapping", "", [](Budget&, const Value& v, const Given&) { return v.is_dict(); }},
    {"iterable", "", [](Budget&, const Value& v, const Given&) { return is_iterable(v); }},
    {"sequence", "", [](Budget&, const Value& v, const Given&) { return is_sequence(v); }},
    {"number", "", [](Budget&, const Value& v, const Given&) { return v.is_number(); }},
    {"integer", "", [](Budget&, const Value& v, const Given&) { return v.is<int64_t>(); }},
    {"float", "", [](Budget&, const Value& v, const Given&) { return v.is<double>(); }},
    {"boolean", "", [](Budget&, const Value& v, const Given&) { return v.is<bool>(); }},
    {"true", "", [](Budget&, const Value& v, const Given&) { return v.is<bool>() && truth(v); }},
    {"false", "", [](Budget&, const Value& v, const Given&) { return v.is<bool>() && !truth(v); }},
    {"callable", "", [](Budget&, const Value& v, const Given&) { return v.is_undefined() || v.holds<Function>(); }},
    {"odd", "", [](Budget&, const Value& v, const Given&) { return rest(v, 2) != 0; }},
    {"even", "", [](Budget&, const Value& v, const Given&) { return rest(v, 2) == 0; }},
    {"divisibleby", "num", [](Budget&, const Value& v, const Given& g) { return rest(v, whole(g(0))) == 0; }},
    {"sameas", "other", [](Budget&, const Value& v, const Given& g) { return is_same(v, g(0)); }},
    {"in", "seq", [](Budget& b, const Value& v, const Given& g) { return contains(b, g(0), v); }},
    {"eq", "other", [](Budget& b, const Value& v, const Given& g) { return equal(b, v, g(0)); }},
    {"ne", "other", [](Budget& b, const Value& v, const Given& g) { return !equal(b, v, g(0)); }},
    {"lt", "other", [](Budget& b, const Value& v, const Given& g) { return compare(b, v, g(0)) < 0; }},
    {"le", "other", [](Budget& b, const Value& v, const Given& g) { return compare(b, v, g(0)) <= 0; }},
    {"gt", "other", [](Budget& b, const Value& v, const Given& g) { return compare(b, v, g(0)) > 0; }},
    {"ge", "other", [](Budget& b, const Value& v, const Given& g) { return compare(b, v, g(0)) >= 0; }},
    {"lower", "", [](Budget& b, const Value& v, const Given&) { return all_are(to_text(b, v), Is::kLower); }},
    {"upper", "", [](Budget& b, const Value& v, const Given&) { return all_are(to_text(b, v), Is::kUpper); }},
};

// Other names of the same tests.
constexpr const char* kAlso[][2] = {{"==", "eq"}, {"equalto", "eq"},     {"!=", "ne"},
                                    {"<", "lt"},  {"lessthan", "lt"},    {"<=", "le"},
                                    {">", "gt"},  {"greaterthan", "gt"}, {">=", "ge"}};

}  // namespace

bool apply_test(Budget& budget, const std::string& name, const Value& value, const Arguments& arguments) {
  budget.step();
  std::string_view known = name;
  for (const auto& [other, same] : kAlso)
    if (name == other) known = same;
  for (const Test& t : kTests)
    if (t.name == known) return t.holds(budget, value, Given("the test " + name, t.parameters, arguments));
  fail(fmt::format("the test \"{}\" is not supported", name));
}

}  // namespace weft::chat
