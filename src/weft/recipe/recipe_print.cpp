#include <algorithm>

#include "weft/base/error.h"
#include "weft/recipe/recipe_keys.h"

namespace weft {
namespace {

std::string print(const std::string& s) {
  std::string text = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\')
      text += fmt::format("\\{}", char(c));
    else if (c < 0x20 || c == 0x7f)
      text += fmt::format("\\u{:04X}", c);
    else
      text += char(c);
  }
  return text + "\"";
}
std::string print(int64_t v) { return std::to_string(v); }
std::string print(double v) {
  std::string text = fmt::format("{}", v);  // the shortest that reads back the same
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}
std::string print(bool v) { return v ? "true" : "false"; }
std::string print(const std::optional<double>& v) { return v ? print(*v) : ""; }
template <class T>
std::string print(const std::vector<T>& all) {
  std::string text = "[";
  for (const T& one : all) text += (text.size() > 1 ? ", " : "") + print(one);
  return text + "]";
}
std::string value_of(const RecipeKey& key) {
  return std::visit([](const auto* field) { return print(*field); }, key.field);
}

std::string type_of(const RecipeKey& key) {
  constexpr const char* kTypes[] = {"text",          "whole number",    "number", "true or false",
                                    "list of texts", "list of numbers", "number"};
  return kTypes[key.field.index()];
}

[[noreturn]] void refuse(const std::string& setting, const std::string& reason, const std::string& nearest) {
  throw ConfigError(fmt::format("{} cannot run: {}; the nearest that works: {}", setting, reason, nearest));
}

}  // namespace

std::string to_toml(const Recipe& recipe) {
  Recipe copy = recipe;
  std::string text, section;
  for (const RecipeKey& key : recipe_keys(copy)) {
    const size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    if (const std::string value = value_of(key); !value.empty())
      text += fmt::format("{} = {}\n", key.name.substr(dot + 1), value);
  }
  return text;
}

void check_supported(const Recipe& r) {
  const auto& p = r.parallel;
  const std::pair<const char*, int64_t> axes[] = {{"dp", p.dp}, {"tp", p.tp}, {"pp", p.pp}, {"cp", p.cp}, {"ep", p.ep}};
  for (const auto& [axis, ranks] : axes) {
    if (ranks > 1)
      refuse(fmt::format("parallel.{} = {}", axis, ranks), "this version runs one rank",
             fmt::format("parallel.{} = 1", axis));
  }
  if (r.run.ranks == "mpi") refuse("run.ranks = \"mpi\"", "this version runs one rank", "run.ranks = \"local\"");
  if (r.run.backend == "cuda")
    refuse("run.backend = \"cuda\"", "this version has no GPU kernels", "run.backend = \"cpu\"");
  if (r.train.precision == "fp16") {
    refuse("train.precision = \"fp16\"", "this version does not scale the loss",
           "train.precision = \"bf16\", which needs no scaling");
  }
  if (r.train.precision == "f64" && r.run.backend != "ref") {
    refuse("train.precision = \"f64\"", "only the reference backend computes in it",
           "run.backend = \"ref\", or train.precision = \"f32\"");
  }
  if (p.pipeline_schedule == "interleaved_1f1b" || p.pipeline_schedule == "zbv") {
    refuse(fmt::format("parallel.pipeline_schedule = \"{}\"", p.pipeline_schedule),
           "it needs several stages on a rank, and this version has one",
           "\"1f1b\", which is the same at parallel.pp = 1");
  }
}

std::vector<std::string> recipe_differences(const Recipe& there, const Recipe& here) {
  Recipe a = there, b = here;
  const auto old_keys = recipe_keys(a), new_keys = recipe_keys(b);
  std::vector<std::string> all;
  for (size_t i = 0; i < old_keys.size(); ++i) {
    const std::string x = value_of(old_keys[i]), y = value_of(new_keys[i]);
    if (x == y || old_keys[i].may_change) continue;
    all.push_back(
        fmt::format("{}: {} there, {} here", old_keys[i].name, x.empty() ? "not set" : x, y.empty() ? "not set" : y));
  }
  return all;
}

std::vector<KeyHelp> recipe_help() {
  Recipe fallbacks;
  std::vector<KeyHelp> all;
  for (const RecipeKey& key : recipe_keys(fallbacks))
    all.push_back({key.name, type_of(key), value_of(key), key.help, key.choices});
  return all;
}

}  // namespace weft
