// How the command line is put together.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace weft {

// One command: its options are parsed into a value that `run` holds.
struct Command {
  CLI::App* app;
  std::function<int()> run;
  std::string group = "";  // "data" of `weft data encode`

  bool is_nested() const { return !group.empty(); }
  std::string first_word() const { return is_nested() ? group : app->get_name(); }
  std::string name() const { return is_nested() ? group + " " + app->get_name() : app->get_name(); }
  bool is_named_by(int argc, char** argv) const {
    if (argc < 2 || first_word() != argv[1]) return false;
    return !is_nested() || (argc > 2 && app->get_name() == argv[2]);
  }
};

// An option whose help shows its default: one of a few values; a number from `low` to `high`.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& name, T& value, const std::string& help,
                        const std::vector<std::string>& choices) {
  return app.add_option(name, value, help)->capture_default_str()->check(CLI::IsMember(choices));
}
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& value, const std::string& help, int64_t low,
                        int64_t high) {
  return app.add_option(name, value, help)->capture_default_str()->check(CLI::Range(low, high));
}

// CLI::Range takes NaN for a number within it.
inline CLI::Validator number_in(double low, double high) {
  return CLI::Validator(
      [=](std::string& text) {
        double x = 0;
        const bool good = CLI::detail::lexical_cast(text, x) && x >= low && x <= high;
        return good ? std::string() : fmt::format("{} is not a number in [{}, {}]", text, low, high);
      },
      fmt::format("FLOAT in [{}, {}]", low, high));
}

inline void recipe_arguments(CLI::App& app, std::string& recipe, std::vector<std::string>& overrides) {
  app.add_option("recipe", recipe, "Recipe file (TOML)")->type_name("RECIPE");
  app.add_option("overrides", overrides, "Settings that replace the recipe's, as train.seed=7")->type_name("KEY=VALUE");
}

// `weft plan` and what stands below it
std::vector<Command> add_plan(CLI::App& weft);
// `weft supervise`
Command add_supervise(CLI::App& weft);
// `weft sweep`
Command add_sweep(CLI::App& weft);
// `weft islands`
Command add_islands(CLI::App& weft);
// `weft launch`
Command add_launch(CLI::App& weft);
// `weft report`, `weft new`, `weft doctor`, `weft runs ...`
std::vector<Command> add_runs(CLI::App& weft);
// `weft log ...`, `weft card`
std::vector<Command> add_governance(CLI::App& weft);
// --policy
void policy_option(CLI::App& app, std::vector<std::string>& files);
// `weft data ...`
std::vector<Command> add_data(CLI::App& weft);

}  // namespace weft
