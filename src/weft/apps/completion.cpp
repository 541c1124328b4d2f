#include "weft/apps/completion.h"

#include <algorithm>
#include <iostream>
#include <string_view>

#include "weft/apps/commands.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using Argument = CommandLine::Argument;
using Command = CommandLine::Command;

// A positional argument of this name takes recipe settings.
constexpr std::string_view kSettings = "KEY=VALUE";

bool takes_settings(const Command& c) {
  return std::any_of(c.positionals.begin(), c.positionals.end(), [](const Argument& a) { return a.name == kSettings; });
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

// A word of a shell; all three take single quotes the same way but for a quote within.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
  return out + "'";
}

// What may stand behind KEY=: nothing where any text may (a file's name, perhaps).
std::vector<std::string> values_of(const KeyHelp& key) {
  if (!key.choices.empty()) return key.choices;
  if (key.type == "true or false") return {"true", "false"};
  return {};
}
// Whether a value may be the name of a file or folder.
bool may_be_path(const KeyHelp& key) { return key.type.find("text") != std::string::npos && key.choices.empty(); }

// --- bash ---

// "_weft_values NAME": the values of an option or recipe key, or "-" where it takes files.
std::string bash_values(const std::vector<KeyHelp>& keys) {
  std::string text = "_weft_values() {\n  case $1 in\n";
  for (const KeyHelp& key : keys) {
    if (may_be_path(key))
      text += fmt::format("    {}) echo - ;;\n", key.key);
    else if (const auto values = values_of(key); !values.empty())
      text += fmt::format("    {}) echo {} ;;\n", key.key, shell_quoted(joined(values)));
  }
  return text + "  esac\n}\n";
}

// Sets what the command takes: `options` (those followed by a word are also in `valued`), `positionals` (for each its
// choices, "settings" or "files"; the last one repeats).
std::string bash_command(const Command& c) {
  std::string options, valued, values, positionals;
  for (const Argument& o : c.options) {
    options += (options.empty() ? "" : " ") + o.name;
    if (!o.takes_value) continue;
    valued += o.name + " ";
    if (!o.choices.empty())
      values += fmt::format("        {}) values={} ;;\n", o.name, shell_quoted(joined(o.choices)));
  }
  for (const Argument& p : c.positionals) {
    positionals += " " + (p.name == kSettings ? "settings"
                          : p.choices.empty() ? "files"
                                              : shell_quoted(joined(p.choices)));
  }
  return fmt::format("    {})\n      options={} valued={} positionals=({})\n      case $name in\n{}      esac ;;\n",
                     c.name, shell_quoted(options), shell_quoted(valued),
                     positionals.empty() ? "" : positionals.substr(1), values);
}

// The shell takes '=' for a word of its own, unless COMP_WORDBREAKS was changed: both are understood.
constexpr const char* kBashHead = R"sh(# Completion of weft for bash: source <(weft completion bash)
_weft() {
  local cur=${COMP_WORDS[COMP_CWORD]} name= prefix= values=- options= valued= at=0 i word
  local -a positionals=()
  COMPREPLY=()
  if [[ $cur == '=' ]]; then
    name=${COMP_WORDS[COMP_CWORD-1]} cur=
  elif (( COMP_CWORD > 1 )) && [[ ${COMP_WORDS[COMP_CWORD-1]} == '=' ]]; then
    name=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $cur == *=* ]]; then
    name=${cur%%=*} prefix=${cur%%=*}= cur=${cur#*=}
  elif (( COMP_CWORD > 1 )) && [[ ${COMP_WORDS[COMP_CWORD-1]} == --* ]]; then
    name=${COMP_WORDS[COMP_CWORD-1]}
  fi
)sh";

constexpr const char* kBashTail = R"sh(  if [[ $name == --* && " $valued " == *" $name "* ]]; then
    _weft_reply "$values"
    return
  elif [[ -n $name && $name != --* ]]; then
    _weft_reply "$(_weft_values "$name")"
    return
  elif [[ $cur == -* ]]; then
    _weft_reply "$options"
    return
  fi
  for (( i = 2; i < COMP_CWORD; ++i )); do
    word=${COMP_WORDS[i]}
    if [[ " $valued " == *" $word "* ]]; then
      (( ++i ))
      if [[ ${COMP_WORDS[i]} == '=' ]]; then (( ++i )); fi
    elif [[ $word != -* ]]; then
      (( ++at ))
      if [[ ${COMP_WORDS[i+1]} == '=' ]]; then (( i += 2 )); fi
    fi
  done
  if (( at >= ${#positionals[@]} )); then (( at = ${#positionals[@]} - 1 )); fi
  if (( at < 0 )); then return; fi
  case ${positionals[at]} in
    files) _weft_reply - ;;
    settings)
      _weft_reply "$_weft_keys"
      compopt -o nospace 2>/dev/null ;;
    *) _weft_reply "${positionals[at]}" ;;
  esac
}
# $1: the candidates; "-": names of files. Uses cur and prefix.
_weft_reply() {
  local candidate
  if [[ $1 == - ]]; then compopt -o filenames 2>/dev/null; fi
  while IFS= read -r candidate; do
    if [[ -n $candidate ]]; then COMPREPLY+=("$prefix$candidate"); fi
  done < <(if [[ $1 == - ]]; then compgen -f -- "$cur"; else compgen -W "$1" -- "$cur"; fi)
}
complete -F _weft weft
)sh";

std::string bash_script(const CommandLine& line, const std::vector<KeyHelp>& keys) {
  std::vector<std::string> names, settings;
  for (const Command& c : line.commands) names.push_back(c.name);
  for (const KeyHelp& key : keys) settings.push_back(key.key + "=");
  std::string text = kBashHead;
  text += fmt::format("  if (( COMP_CWORD == 1 )); then\n    _weft_reply {}\n    return\n  fi\n",
                      shell_quoted(joined(names) + " --help --version"));
  text += "  case ${COMP_WORDS[1]} in\n";
  for (const Command& c : line.commands) text += bash_command(c);
  return text + "  esac\n" + kBashTail + bash_values(keys) +
         fmt::format("_weft_keys={}\n", shell_quoted(joined(settings)));
}

// --- zsh ---

// In "[...]" and between ':' of _arguments.
std::string zsh_escaped(const std::string& text) {
  std::string out;
  for (char c : text) out += (c == '[' || c == ']' || c == ':' || c == '\\' ? "\\" : "") + std::string(1, c);
  return out;
}

std::string zsh_values(const Argument& a) {
  if (a.name == kSettings) return "_weft_settings";
  return a.choices.empty() ? "_files" : fmt::format("({})", joined(a.choices));
}

std::string zsh_command(const Command& c) {
  std::string text = fmt::format("    {})\n      _arguments", c.name);
  for (const Argument& o : c.options) {
    const std::string value = o.takes_value ? fmt::format(":{}:{}", o.name.substr(2), zsh_values(o)) : "";
    text += fmt::format(" \\\n        {}", shell_quoted(fmt::format("{}{}[{}]{}", o.name, o.takes_value ? "=" : "",
                                                                    zsh_escaped(o.help), value)));
  }
  for (size_t i = 0; i < c.positionals.size(); ++i) {
    const Argument& p = c.positionals[i];
    const std::string place = p.repeats ? "*" : std::to_string(i + 1);
    text += fmt::format(" \\\n        {}",
                        shell_quoted(fmt::format("{}:{}:{}", place, zsh_escaped(p.name), zsh_values(p))));
  }
  return text + " ;;\n";
}

std::string zsh_settings(const std::vector<KeyHelp>& keys) {
  std::string text = "_weft_settings() {\n  if compset -P '*='; then\n    case ${IPREFIX%=} in\n";
  for (const KeyHelp& key : keys) {
    if (may_be_path(key))
      text += fmt::format("      *{}) _files ;;\n", key.key);
    else if (const auto values = values_of(key); !values.empty())
      text += fmt::format("      *{}) compadd -- {} ;;\n", key.key, joined(values));
  }
  text += "    esac\n    return\n  fi\n  local -a keys=(\n";
  for (const KeyHelp& key : keys) text += fmt::format("    {}\n", shell_quoted(key.key + ":" + key.help));
  return text + "  )\n  _describe setting keys -S =\n}\n";
}

std::string zsh_script(const CommandLine& line, const std::vector<KeyHelp>& keys) {
  std::string text = "#compdef weft\n# Completion of weft for zsh: source <(weft completion zsh)\n" +
                     zsh_settings(keys) + "_weft() {\n  if (( CURRENT == 2 )); then\n    local -a commands=(\n";
  for (const Command& c : line.commands) text += fmt::format("      {}\n", shell_quoted(c.name + ":" + c.help));
  text +=
      "    )\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( --CURRENT ))\n  case $command in\n";
  for (const Command& c : line.commands) text += zsh_command(c);
  return text + "  esac\n}\ncompdef _weft weft\n";
}

// --- fish ---

std::string fish_option(const std::string& condition, const Argument& o) {
  std::string text =
      fmt::format("complete -c weft -n {} -l {} -d {}", condition, o.name.substr(2), fish_quoted(o.help));
  if (!o.choices.empty())
    text += fmt::format(" -x -a {}", fish_quoted(joined(o.choices)));
  else if (o.takes_value)
    text += " -r";
  return text + "\n";
}

// Settings with few values are offered whole, and no files for them; the others up to their '='.
std::string fish_settings(const std::vector<KeyHelp>& keys) {
  std::string settings, chosen;
  for (const KeyHelp& key : keys) {
    auto values = values_of(key);
    if (!values.empty()) chosen += (chosen.empty() ? "" : "|") + key.key;
    if (values.empty()) values.emplace_back();
    for (const auto& value : values) {
      settings +=
          fmt::format("  printf '%s\\t%s\\n' {} {}\n", fish_quoted(key.key + "=" + value), fish_quoted(key.help));
    }
  }
  return fmt::format(
      "function __weft_settings\n{}end\n"
      "function __weft_has_choices\n  string match -rq {} -- (commandline -ct)\nend\n"
      "complete -c weft -f -n __weft_has_choices\n",
      settings, fish_quoted("^(" + chosen + ")="));
}

std::string fish_script(const CommandLine& line, const std::vector<KeyHelp>& keys) {
  std::string text = "# Completion of weft for fish: weft completion fish | source\n" + fish_settings(keys);
  for (const Command& c : line.commands)
    text += fmt::format("complete -c weft -f -n __fish_use_subcommand -a {} -d {}\n", c.name, fish_quoted(c.help));
  for (const Command& c : line.commands) {
    const std::string condition = fish_quoted("__fish_seen_subcommand_from " + c.name);
    for (const Argument& o : c.options) text += fish_option(condition, o);
    for (const Argument& p : c.positionals) {
      if (!p.choices.empty())
        text += fmt::format("complete -c weft -f -n {} -a {}\n", condition, fish_quoted(joined(p.choices)));
    }
    if (takes_settings(c)) text += fmt::format("complete -c weft -n {} -a '(__weft_settings)'\n", condition);
  }
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell, const CommandLine& line, const std::vector<KeyHelp>& keys) {
  if (shell == "bash") return bash_script(line, keys);
  if (shell == "zsh") return zsh_script(line, keys);
  if (shell == "fish") return fish_script(line, keys);
  throw ConfigError(fmt::format("completion for {}: there are bash, zsh and fish", shell));
}

int run_completion(const CompletionOptions& options, const CommandLine& line) {
  std::cout << completion_script(options.shell, line, recipe_help());
  return kExitOk;
}

}  // namespace weft
