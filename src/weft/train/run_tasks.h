// The tasks that a run scores as it goes: [eval] of its recipe.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/recipe/recipe.h"
#include "weft/records/metrics_log.h"
#include "weft/tasks/questions.h"

namespace weft {

// The questions of one run, or of one span of its steps: they fit into its train.seq_length. Immutable.
class RunTasks {
 public:
  // Reads all questions; none where the recipe names no tasks. Throws ConfigError, FileError: a task whose answers are
  // written, a result that a phase requires and no task has, and as find_tasks and ask.
  RunTasks(const Recipe& recipe, const ModelSpec& model);
  bool empty() const { return asked_.empty(); }
  const std::vector<ScoredText>& texts() const { return texts_; }
  // What the model made of texts(), as metrics.jsonl has it: of each set that is no part of a group, and each group.
  TasksRecord record(int64_t step, const TextScores& scores) const;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::vector<Asked> asked_;
  std::vector<ScoredText> texts_;
  std::vector<std::string> notes_;
};

// The questions of all phases, read once before the run begins: what is wrong with them is said then. Also that phases
// require results that there are. Returns notes.
std::vector<std::string> judge_run_tasks(const Recipe& recipe);

// What a phase requires that begins at this step, and these results do not give: "piqa.acc is 0.51, ...". Empty: all is
// there.
std::string unmet_requirements(const Recipe& recipe, int64_t from_step, const TasksRecord& results);
bool requires_results(const Recipe& recipe, int64_t from_step);

}  // namespace weft
