// How the command line is put together.
#pragma once
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

// `weft data ...`
std::vector<Command> add_data(CLI::App& weft);

}  // namespace weft
