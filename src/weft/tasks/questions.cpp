#include "weft/tasks/questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "weft/base/error.h"
#include "weft/tasks/sandbox.h"

namespace weft {
namespace {

const TaskPlace* place_of(const std::vector<TaskPlace>& places, const std::string& task) {
  const auto at = std::find_if(places.begin(), places.end(), [&](const TaskPlace& p) { return p.task.name == task; });
  return at == places.end() ? nullptr : &*at;
}

// What comes before the questions of one task.
struct Examples {
  std::vector<TaskSet> pools;                    // of rows
  std::map<std::string, std::string> preambles;  // or texts, by the names of sets
};

Examples examples_of(const TaskPlace& place, const FoundTasks& found, const QuestionsSpec& spec) {
  const TaskPlace* given = place_of(found.examples, place.task.name);
  Examples examples;
  if (given != nullptr) examples.preambles = read_preambles(*given);
  if (spec.num_fewshot > 0 && examples.preambles.empty())
    examples.pools = read_task_sets(given == nullptr ? place : *given, 0);
  return examples;
}

Asked ask_set(TaskSet set, const Examples& examples, const QuestionsSpec& spec, const Tokenizer& tokenizer) {
  const auto named =
      std::find_if(examples.pools.begin(), examples.pools.end(), [&](const TaskSet& p) { return p.name == set.name; });
  const auto text = examples.preambles.find(set.name);
  const bool lacks = examples.preambles.empty() ? !examples.pools.empty() && named == examples.pools.end()
                                                : text == examples.preambles.end();
  if (lacks)
    throw ConfigError(fmt::format("{}: holds no {}; give each file of the task one of the same name",
                                  spec.options.fewshot_from, set.name));
  if (text != examples.preambles.end()) set.preamble = text->second;
  const PromptSpec prompts{tokenizer, spec.num_fewshot, spec.seed, spec.window, spec.options};
  Asked a{.set = std::move(set), .scored = {}, .open = {}};
  const TaskSet& pool = examples.pools.empty() ? a.set : *named;
  if (a.is_scored()) {
    a.scored = texts_to_score(a.set, pool, prompts);
    return a;
  }
  a.most_written = spec.most_written > 0 ? spec.most_written : a.set.task.most_tokens;
  if (a.most_written >= spec.window)
    throw ConfigError(
        fmt::format("{} {}: the model sees {} tokens at once, and a question of {} needs some; "
                    "ask for fewer, or raise {}",
                    spec.options.max_tokens, a.most_written, spec.window, a.set.task.name, spec.options.window));
  a.open = prompts_to_answer(a.set, pool, prompts, spec.window - a.most_written);
  return a;
}

}  // namespace

bool FoundTasks::any_written() const {
  return std::any_of(places.begin(), places.end(), [](const TaskPlace& p) { return p.task.kind == TaskKind::written; });
}

bool FoundTasks::asks(const std::string& task) const { return place_of(places, task) != nullptr; }

std::string require_python(const std::string& option) {
  const std::string python = find_python();
  if (python.empty())
    throw ConfigError(fmt::format("{} humaneval: needs python3, which runs what the model writes: install it", option));
  require_sandbox(python);
  return python;
}

FoundTasks find_tasks(const QuestionsSpec& spec) {
  FoundTasks found{find_task_files({spec.options.tasks, spec.tasks}, spec.folder),
                   find_task_files({spec.options.fewshot_from, spec.fewshot_from}, {})};
  for (const TaskPlace& e : found.examples)
    if (place_of(found.places, e.task.name) == nullptr || (spec.num_fewshot == 0 && read_preambles(e).empty()))
      throw ConfigError(fmt::format("{} {}: has no effect without {} {} and {}", spec.options.fewshot_from, e.task.name,
                                    spec.options.tasks, e.task.name, spec.options.num_fewshot));
  const bool all_texts = std::all_of(found.places.begin(), found.places.end(), [&](const TaskPlace& p) {
    const TaskPlace* examples = place_of(found.examples, p.task.name);
    return examples != nullptr && !read_preambles(*examples).empty();
  });
  if (spec.num_fewshot > 0 && all_texts)
    throw ConfigError(fmt::format("{} {}: has no effect: the texts of {} stand before the questions as they are",
                                  spec.options.num_fewshot, spec.num_fewshot, spec.options.fewshot_from));
  return found;
}

std::vector<Asked> ask(const FoundTasks& found, const QuestionsSpec& spec, const Tokenizer& tokenizer) {
  std::vector<Asked> asked;
  for (const TaskPlace& place : found.places) {
    const Examples examples = examples_of(place, found, spec);
    for (TaskSet& set : read_task_sets(place, spec.limit))
      asked.push_back(ask_set(std::move(set), examples, spec, tokenizer));
  }
  return asked;
}

std::vector<std::string> truncation_notes(const std::vector<Asked>& asked, const QuestionsSpec& spec) {
  std::vector<std::string> notes;
  for (const Asked& a : asked)
    if (a.truncated() > 0)
      notes.push_back(
          fmt::format("note: {}: {} texts are longer than the {} tokens that the model sees at once, and lose their "
                      "beginning ({})",
                      a.set.name, a.truncated(), spec.window, spec.options.window));
  return notes;
}

std::vector<ScoredText> all_texts(const std::vector<Asked>& asked) {
  std::vector<ScoredText> texts;
  for (const Asked& a : asked) texts.insert(texts.end(), a.scored.texts.begin(), a.scored.texts.end());
  return texts;
}

void share_out(const TextScores& scores, const std::vector<Asked>& asked, std::vector<SetAnswers>& answers) {
  size_t begin = 0;
  for (size_t s = 0; s < asked.size(); ++s) {
    const Asked& a = asked[s];
    answers[s].truncated = a.truncated();
    for (size_t i = 0; a.is_scored() && i < a.set.items.size(); ++i) {
      const size_t first = begin + a.scored.first[i], end = begin + a.scored.first[i + 1];
      answers[s].log_probs.emplace_back(scores.log_probs.begin() + int64_t(first),
                                        scores.log_probs.begin() + int64_t(end));
      if (a.set.task.kind == TaskKind::last_word) answers[s].likeliest.push_back(scores.likeliest[first]);
    }
    begin += a.scored.texts.size();
  }
}

}  // namespace weft
