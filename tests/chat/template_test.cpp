#include "weft/chat/template.h"

#include <gtest/gtest.h>

#include <sstream>

#include "support.h"
#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft::chat {
namespace {

std::string render(std::string_view text, const std::string& variables = "{}") {
  return Template(text, "t").render(parse_value(variables, "variables").dict()).text;
}
// What the error says; empty: none.
std::string refusal(std::string_view text, const std::string& variables = "{}") {
  return testing::error_of<Error>([&] { render(text, variables); });
}

// Each line is a template and what Python's jinja2 3.1.6, set up as in transformers, renders or raises.
TEST(Template, DoesWhatJinjaDoes) {
  std::istringstream lines(testing::slurp(std::filesystem::path(testing::kSourceDir) / "tests/chat/jinja_cases.jsonl"));
  std::string line;
  std::getline(lines, line);
  const Value first = parse_value(line, "variables");
  int cases = 0;
  for (; std::getline(lines, line); ++cases) {
    const auto expected = nlohmann::json::parse(line);
    const std::string text = expected["template"];
    std::string got, error;
    try {
      got = Template(text, "t").render(first.dict().get("variables")->dict()).text;
    } catch (const Error& e) { error = e.what(); }
    EXPECT_EQ(error.empty(), expected.contains("output")) << text << "\n" << error;
    EXPECT_EQ(got, expected.value("output", "")) << text;
  }
  EXPECT_GT(cases, 180);
}

TEST(Template, SaysWhatItRefuses) {
  EXPECT_SAYS(refusal("a\n{% frob %}"), "t: line 2: the tag {% frob %}");
  EXPECT_SAYS(refusal("a\n\n{{ 1 | frob }}"), "t: line 3: the filter \"frob\"");
  EXPECT_SAYS(refusal("{{ 1 is frob }}"), "the test \"frob\"");
  EXPECT_SAYS(refusal("{{ [1] | batch(2) }}"), "the filter \"batch\" is not supported");
  EXPECT_SAYS(refusal("{% for x in y recursive %}{% endfor %}"), "recursive %} is not supported");
  EXPECT_SAYS(refusal("{{ 'a' + 1 }}"), "str + int has no meaning");
  EXPECT_SAYS(refusal("{{ x.y }}"), "'x' is undefined");
  EXPECT_SAYS(refusal("{{ {'a': 1}.b.c }}"), "'dict object' has no attribute 'b'");
  EXPECT_SAYS(refusal("{{ 'a'.encode() }}"), "'str object' has no attribute 'encode'");
  EXPECT_SAYS(refusal("{{ [1].append(2) }}"), "list.append would change a value");
  EXPECT_SAYS(refusal("{{ 'a' | trim(1, 2) }}"), "the filter trim takes at most 1");
  EXPECT_SAYS(refusal("{{ 'a' | trim(x=1) }}"), "has no argument \"x\"");
  EXPECT_SAYS(refusal("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"), "the macro m takes at most 1");
  EXPECT_SAYS(refusal("\n{{ raise_exception('no') }}"), "t: line 2: the template refuses the conversation: no");
  EXPECT_SAYS(refusal("{% if a"), "t: line 1");
  EXPECT_SAYS(refusal("{{ range(3) }}"), "cannot be printed");
  EXPECT_SAYS(refusal("{{ 9223372036854775807 + 1 }}"), "beyond 64 bits");
  EXPECT_SAYS(refusal("\xff"), "not UTF-8");
}

TEST(TemplateSlow, IsBoundedWhateverItSays) {
  const auto repeated = [](const std::string& part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  EXPECT_SAYS(refusal("{{ " + std::string(10000, '(') + "1" + std::string(10000, ')') + "}}"), "nested too deep");
  EXPECT_SAYS(refusal("{{ x" + repeated("|trim", 10000) + "}}"), "nested too deep");
  EXPECT_SAYS(refusal("{{ 1" + repeated("+1", 10000) + "}}"), "nested too deep");
  EXPECT_SAYS(refusal("{{ " + repeated("not ", 10000) + "1}}"), "nested too deep");
  EXPECT_SAYS(refusal(repeated("{% if 1 %}", 10000)), "nested too deep");
  EXPECT_SAYS(refusal("{% if 1 %}" + repeated("{% elif 1 %}", 10000)), "nested too deep");
  EXPECT_SAYS(refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "nested too deep");
  const std::string forever = "{% for a in range(100000) %}";
  EXPECT_SAYS(refusal(forever + "{% for b in range(1000) %}{% endfor %}{% endfor %}"), "the template");
  EXPECT_SAYS(refusal("{% set n = namespace(x='ab') %}" + forever + "{% set n.x = n.x ~ n.x %}{% endfor %}"),
              "too much");
  EXPECT_SAYS(refusal("{% set n = namespace(x=[1]) %}" + forever + "{% set n.x = n.x + n.x %}{% endfor %}"),
              "too much");
  EXPECT_SAYS(refusal("{% set n = namespace(x=[]) %}" + forever + "{% set n.x = [n.x] %}{% endfor %}"), "too deep");
  EXPECT_SAYS(
      refusal("{% set n = namespace(x=[]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}"),
      "the template");
  EXPECT_SAYS(
      refusal("{% set n = namespace(x=[]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x "
              "== [n.x[0], [n.x[0][0], n.x[0][1]]] }}"),
      "too many steps");
  for (const char* big :
       {"{{ 'a' * 99999999999 }}", "{{ 'a'.center(9999999999) }}", "{{ 'a'.ljust(9999999999) }}",
        "{{ '%999999999d' % 1 }}", "{{ '{:999999999}'.format(1) }}", "{{ [1] | tojson(indent=99999999) }}",
        "{{ 'a' | indent(99999999) }}", "{{ range(99999999999) }}", "{{ 2 ** 99999999999 }}"})
    EXPECT_NE(refusal(big), "") << big;
}

TEST(Template, ANamespaceMayHoldItself) {
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.x = n %}{% set n.y = [n] %}{% set n.f = n.y.index %}{{ n.x.x is "
                   "defined }}"),
            "True");
  EXPECT_EQ(
      render("{% set n = namespace() %}{% for i in [1] %}{% set n.l = loop %}{{ loop.changed(loop) }}{% endfor %}{% "
             "macro m() %}{% set n.m = m %}{% endmacro %}{{ m() }}{{ n.l.index }}"),
      "True1");
  EXPECT_SAYS(refusal("{% set n = namespace() %}{% set n.x = n %}{{ n }}"), "cannot be printed");
}

TEST(Template, AMacroOutlivesTheBlockThatDefinesIt) {
  EXPECT_EQ(
      render("{% set n = namespace() %}{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{% set n.m = m %}{% "
             "endfor %}{{ n.m() }}"),
      "2");
}

TEST(Template, TellsTheTime) {
  std::tm day{};
  day.tm_year = 124;
  day.tm_mon = 6;
  day.tm_mday = 26;
  Dict variables;
  variables.set("strftime_now", clock_function(day));
  EXPECT_EQ(Template("{{ strftime_now('%d %b %Y') }}", "t").render(variables).text, "26 Jul 2024");
}

TEST(TemplateGolden, RealTemplatesGiveTheTextsOfTheirOwnProgram) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers/chat_templates";
  const Value inputs = parse_value(testing::slurp(folder / "jinja_inputs.json"), "jinja_inputs.json");
  const auto input = [&](const char* what, const std::string& name) {
    return *inputs.dict().get(what)->dict().get(name);
  };
  std::istringstream lines(testing::slurp(folder / "jinja_golden.jsonl"));
  int right = 0, refused = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto golden = nlohmann::json::parse(line);
    const std::string name = golden["template"], conversation = golden["conversation"];
    Dict variables;
    variables.set("messages", input("conversations", conversation));
    variables.set("add_generation_prompt", golden["add_generation_prompt"].get<bool>());
    variables.set("bos_token", "<s>");
    variables.set("eos_token", "</s>");
    variables.set("strftime_now",
                  make_function("strftime_now", [](const Arguments&) -> Value { return "26 Jul 2024"; }));
    if (conversation.find("tool") != std::string::npos) variables.set("tools", *inputs.dict().get("tools"));
    std::string text, error;
    try {
      text = Template(input("templates", name).string(), name).render(variables).text;
    } catch (const Error& e) { error = e.what(); }
    EXPECT_EQ(error.empty(), golden.contains("output")) << name << " " << conversation << "\n" << error;
    EXPECT_EQ(text, golden.value("output", "")) << name << " " << conversation;
    (golden.contains("output") ? right : refused) += text == golden.value("output", "");
  }
  EXPECT_GE(right, 314);
  EXPECT_GE(refused, 36);
}

}  // namespace
}  // namespace weft::chat
