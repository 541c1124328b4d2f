// What a model is asked in tasks, as token ids: made and judged once, before a device is touched.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "weft/tasks/prompts.h"
#include "weft/tasks/results.h"

namespace weft {

struct QuestionsSpec {
  std::vector<std::string> tasks = {}, fewshot_from = {};  // "piqa=FILE"
  std::filesystem::path folder = {};                       // of files without a name
  int64_t num_fewshot = 0, limit = 0;                      // examples before each; rows of each file, 0: all
  uint64_t seed = 0;                                       // of examples
  int64_t window = 0;                                      // tokens that the model sees at once
  int64_t most_written = 0;                                // tokens of an answer; 0: as its task says
  TaskOptions options = {};                                // as messages name these
};

// A set, with what the model is asked for it.
struct Asked {
  TaskSet set;
  TaskTexts scored;          // of all kinds but written
  AnswerPrompts open;        // of written
  int64_t most_written = 0;  // tokens of an answer, likewise

  bool is_written() const { return set.task.kind == TaskKind::written; }
  bool is_scored() const { return !is_written(); }
  int64_t truncated() const { return scored.truncated + open.truncated; }
};

// The files of the tasks, and those of their examples. Throws ConfigError, FileError.
struct FoundTasks {
  std::vector<TaskPlace> places, examples;
  bool any_written() const;
  bool asks(const std::string& task) const;
};
FoundTasks find_tasks(const QuestionsSpec& spec);
// Reads all of them. Throws ConfigError, FileError.
std::vector<Asked> ask(const FoundTasks& found, const QuestionsSpec& spec, const Tokenizer& tokenizer);
// The python3 that runs what a model writes for humaneval, apart: found, and tried. `option` names the task in
// messages. Throws ConfigError where there is none, Error where this system cannot hold it apart.
std::string require_python(const std::string& option);
// "note: ..." for each set of which texts lost their beginning.
std::vector<std::string> truncation_notes(const std::vector<Asked>& asked, const QuestionsSpec& spec);

// The texts of all sets, one behind the other, and back: what a model made of them, into the answers of each.
std::vector<ScoredText> all_texts(const std::vector<Asked>& asked);
void share_out(const TextScores& scores, const std::vector<Asked>& asked, std::vector<SetAnswers>& answers);

}  // namespace weft
