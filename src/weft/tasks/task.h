// Benchmarks that models are compared by: what each asks, by the rules of the field's harness (lm-evaluation-harness).
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/pipeline/rule.h"

namespace weft {

// choices: the choice with the highest log-probability is the answer. last_word: the continuation is the likeliest.
// written: an answer that the model writes, and that is judged.
enum class TaskKind : uint8_t { choices, last_word, written };

// One question.
struct TaskItem {
  std::vector<std::string> contexts;  // one before all choices, or one for each
  std::vector<std::string> choices;   // one behind all contexts, or one for each; with what separates them
  size_t gold = 0;                    // the right one
  nlohmann::json given = {};          // what else of the row its answer is judged by
  std::string where = {};             // "piqa.jsonl: line 3"
  int64_t row = 0;                    // line or row of its file, from 1

  size_t size() const { return std::max(contexts.size(), choices.size()); }
  const std::string& context(size_t i) const { return contexts[contexts.size() == 1 ? 0 : i]; }
  const std::string& choice(size_t i) const { return choices[choices.size() == 1 ? 0 : i]; }
};

// A reward model that scores answers, and which scores mean that one is toxic: those below the bound, or above.
struct AnswerJudge {
  std::string weights;  // which it is
  double bound = 0;
  bool below = true;
  bool is_toxic(double score) const { return below ? score < bound : score > bound; }
};

// What answers are judged with, beside their questions.
struct Judging {
  std::string python = {};                     // the interpreter of humaneval; empty: there is none
  std::vector<int64_t> pass_at = {1};          // of humaneval: the k of its metrics pass@k
  std::shared_ptr<const Rule> bad_words = {};  // of toxicity: these, or a judge, or both
  std::optional<AnswerJudge> judge = {};
  bool is_bad(const std::string& text) const;  // has a bad word
};

// A score is a number, or [sum, count] where a question is of several: a metric is the mean, or the ratio of the sums.
using Scores = nlohmann::ordered_json;

struct Task {
  std::string name;
  TaskKind kind;
  std::string shapes;                // the fields of a row, in each of the forms that are read
  std::vector<std::string> metrics;  // by which a question is scored; "log_prob" becomes a perplexity; of `passes` none
  // Throws FileError, beginning with the row's place, where a field is missing or wrong.
  TaskItem (*read)(const JsonFields& row);
  // Of kind written: texts behind which an answer ends, the most tokens that it has, and its scores.
  std::vector<std::string> stops = {};
  int64_t most_tokens = 0;
  void (*judge)(const TaskItem&, const std::string& written, const Judging&, Scores& to) = nullptr;
  bool passes = false;  // there may be several answers; `judge` says of each whether it has "passed": pass@k

  bool has(const std::string& metric) const {
    return std::find(metrics.begin(), metrics.end(), metric) != metrics.end();
  }
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
