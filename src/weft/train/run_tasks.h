// The tasks that a run scores as it goes: [eval] of its recipe.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/recipe/recipe.h"
#include "weft/records/metrics_log.h"
#include "weft/tasks/questions.h"
#include "weft/train/text_feeder.h"

namespace weft {

// The questions of one run, or of one span of its steps: they fit into its train.seq_length. Immutable.
class RunTasks {
 public:
  // Reads all questions; none where the recipe names no tasks. Throws ConfigError, FileError: what answers are judged
  // with is not there, and as find_tasks and ask.
  RunTasks(const Recipe& recipe, const ModelSpec& model);
  bool empty() const { return asked_.empty(); }
  bool any_written() const;
  // What a model scores.
  const std::vector<ScoredText>& texts() const { return texts_; }
  // What it writes: of each set its answers, none where these are not written. None at all where it was stopped
  // (AnswersRequest). Collective. Blocks.
  using Written = std::vector<std::vector<std::string>>;
  std::optional<Written> write(TextFeeder& model, int64_t texts_at_once, const std::function<bool()>& stopped) const;
  // What the model made of both, as metrics.jsonl has it: of each set that is no part of a group, and each group.
  // Answers are judged here, and programs among them run.
  TasksRecord record(int64_t step, const TextScores& scores, const Written& written) const;
  // The names of these results.
  std::vector<std::string> result_names() const;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::vector<Asked> asked_;
  std::vector<ScoredText> texts_;
  Judging judging_;
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
