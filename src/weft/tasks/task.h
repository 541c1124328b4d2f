// Benchmarks that models are compared by: what each asks, by the rules of the field's harness (lm-evaluation-harness).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/json.h"

namespace weft {

// choices: the choice with the highest log-probability is the answer. last_word: the continuation is the likeliest.
// number: an answer that is written, of which a number is compared.
enum class TaskKind : uint8_t { choices, last_word, number };

// One question.
struct TaskItem {
  std::vector<std::string> contexts;  // one before all choices, or one for each
  std::vector<std::string> choices;   // one behind all contexts, or one for each; with what separates them
  size_t gold = 0;                    // the right one
  std::string where = {};             // "piqa.jsonl: line 3"
  int64_t row = 0;                    // line or row of its file, from 1

  size_t size() const { return std::max(contexts.size(), choices.size()); }
  const std::string& context(size_t i) const { return contexts[contexts.size() == 1 ? 0 : i]; }
  const std::string& choice(size_t i) const { return choices[choices.size() == 1 ? 0 : i]; }
};

struct Task {
  std::string name;
  TaskKind kind;
  bool normalises;     // also reports acc_norm, by the bytes of the choices
  std::string shapes;  // the fields of a row, in each of the forms that are read
  // Throws FileError, beginning with the row's place, where a field is missing or wrong.
  TaskItem (*read)(const JsonFields& row);
};

// All tasks by name.
std::vector<Task> all_tasks();
// Throws ConfigError, which begins with the option and names the nearest one.
Task find_task(const std::string& option, const std::string& name);
// The item of a row. `where`: the row's place. Throws FileError.
struct TaskRow {
  const nlohmann::json& json;
  const std::string& where;
  int64_t number;  // from 1
};
TaskItem read_item(const Task& task, const TaskRow& row);

}  // namespace weft
