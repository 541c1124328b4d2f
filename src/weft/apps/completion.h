// Completion scripts for shells, made from the command line itself.
#pragma once
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// What a person may type after `weft`.
struct CommandLine {
  struct Argument {
    std::string name;  // "--json"; of a positional one, what stands for it: "RECIPE", "KEY=VALUE"
    std::string help = {};
    bool takes_value = false;               // of an option: a word follows it
    bool repeats = false;                   // of a positional argument
    std::vector<std::string> choices = {};  // the only values, where there are only some
  };
  struct Command {
    std::string name, help;
    std::vector<Argument> options = {}, positionals = {};
  };
  std::vector<Command> commands;
};

// What a shell ("bash", "zsh", "fish") reads to complete commands, options, their values, recipe keys where a
// positional argument is called KEY=VALUE, and file names.
std::string completion_script(const std::string& shell, const CommandLine& line, const std::vector<KeyHelp>& keys);

}  // namespace weft
