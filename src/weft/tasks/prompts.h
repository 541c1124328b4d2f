// From questions to the token ids that a model scores.
#pragma once
#include <string>
#include <vector>

#include "weft/tasks/scored_text.h"
#include "weft/tasks/task_files.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {

// What the user calls what messages are about.
struct TaskOptions {
  std::string tasks = "--tasks", fewshot_from = "--fewshot-from", num_fewshot = "--num-fewshot",
              window = "--seq-length", max_tokens = "--max-tokens";
};

struct PromptSpec {
  const Tokenizer& tokenizer;
  int64_t num_fewshot = 0;  // solved examples before each question
  uint64_t seed = 0;        // of their choice
  int64_t window = 0;       // tokens that the model sees at once: longer texts lose their beginning
  TaskOptions options = {};
};

// The examples before item i of a set: questions of the pool, never that of the item, chosen by the seed and i alone.
// Throws ConfigError where there are too few. Or the set's preamble, if it has one.
std::string examples_before(const TaskSet& set, size_t i, const TaskSet& pool, const PromptSpec& spec);

// What the model scores of one set: for each item, its choices in order.
struct TaskTexts {
  std::vector<ScoredText> texts;
  std::vector<size_t> first;  // text of each item, and one behind the last
  int64_t truncated = 0;      // texts that lost their beginning
};
// As the harness does: the ids of context and choice together, without those of the context alone. Blanks at the end
// of a context go to the choice. Of an answer that is longer than the window, the last tokens are scored.
TaskTexts texts_to_score(const TaskSet& set, const TaskSet& pool, const PromptSpec& spec);

// What the model goes on with for each item; at most `most` tokens, the last ones.
struct AnswerPrompts {
  std::vector<std::vector<int32_t>> prompts;
  int64_t truncated = 0;
};
AnswerPrompts prompts_to_answer(const TaskSet& set, const TaskSet& pool, const PromptSpec& spec, int64_t most);

}  // namespace weft
