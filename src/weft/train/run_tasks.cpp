#include "weft/train/run_tasks.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "weft/base/error.h"
#include "weft/plan/run_plan.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/recipe/requirement.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/write_answers.h"

namespace weft {
namespace {

QuestionsSpec questions_of(const Recipe& r) {
  return {.tasks = r.eval.tasks,
          .fewshot_from = r.eval.fewshot_from,
          .num_fewshot = r.eval.num_fewshot,
          .limit = r.eval.limit,
          .seed = uint64_t(r.train.seed),
          .window = r.train.seq_length,
          .most_written = r.eval.max_tokens,
          .options = {"eval.tasks", "eval.fewshot_from", "eval.num_fewshot", "train.seq_length", "eval.max_tokens"}};
}

// What answers are judged with, tried before there are answers.
Judging judging_of(const Recipe::Eval& e, const FoundTasks& found) {
  Judging judging;
  if (e.max_tokens > 0 && !found.any_written())
    throw ConfigError(fmt::format("eval.max_tokens = {}: has no effect without a task whose answer is written (gsm8k)",
                                  e.max_tokens));
  if (found.asks("humaneval")) judging.python = require_python("eval.tasks");
  if (found.asks("toxicity") && e.bad_words.empty())
    throw ConfigError(
        "eval.tasks toxicity: eval.bad_words = \"FILE\" says which words are, one a line; a reward model judges "
        "answers in `weft eval RUN --tasks toxicity=FILE --judge FOLDER` alone");
  if (!found.asks("toxicity") && !e.bad_words.empty())
    throw ConfigError(fmt::format("eval.bad_words = \"{}\": has no effect without toxicity in eval.tasks; leave it out",
                                  e.bad_words));
  if (!e.bad_words.empty()) judging.bad_words = make_bad_words_rule({.file = e.bad_words});
  return judging;
}

const Recipe::Phase* phase_from(const Recipe& recipe, int64_t step) {
  const auto at = std::find_if(recipe.phases.begin(), recipe.phases.end(),
                               [&](const Recipe::Phase& p) { return p.from_step == step && !p.require.empty(); });
  return at == recipe.phases.end() ? nullptr : &*at;
}

const double* result_of(const TasksRecord& results, const std::string& name) {
  for (const auto& [result, value] : results.results)
    if (result == name) return &value;
  return nullptr;
}

}  // namespace

RunTasks::RunTasks(const Recipe& r, const ModelSpec& model) {
  if (r.eval.tasks.empty()) return;
  const QuestionsSpec spec = questions_of(r);
  const FoundTasks found = find_tasks(spec);
  judging_ = judging_of(r.eval, found);
  OpenedTokenizer reader = reader_of_run(r, model, "eval.tasks", "questions");
  if (!reader.note.empty()) notes_.push_back(std::move(reader.note));
  tokenizer_ = std::move(reader.tokenizer);
  asked_ = ask(found, spec, *tokenizer_);
  texts_ = all_texts(asked_);
  for (std::string& note : truncation_notes(asked_, spec)) notes_.push_back(std::move(note));
}

bool RunTasks::any_written() const {
  return std::any_of(asked_.begin(), asked_.end(), [](const Asked& a) { return a.is_written(); });
}

std::optional<RunTasks::Written> RunTasks::write(TextFeeder& model, int64_t texts_at_once,
                                                 const std::function<bool()>& stopped) const {
  Written written(asked_.size());
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (!asked_[i].is_written()) continue;
    auto answers =
        write_answers(model, asked_[i], {.tokenizer = *tokenizer_, .texts_at_once = texts_at_once, .stopped = stopped});
    if (!answers) return {};
    written[i] = std::move(*answers);
  }
  return written;
}

namespace {

using Results = std::vector<nlohmann::ordered_json>;

TasksRecord record_of(int64_t step, Results results) {
  const auto all = with_groups(std::move(results));
  TasksRecord record{.step = step};
  for (const char* part : {"groups", "results"})
    for (const auto& one : all[part]) {
      if (!one.value("group", "").empty()) continue;
      for (const auto& [metric, m] : one["metrics"].items()) {
        const std::string name = fmt::format("{}.{}", one["task"].get<std::string>(), metric);
        record.results.emplace_back(name, m["value"].get<double>());
        record.results.emplace_back(name + "_stderr", m["stderr"].get<double>());
      }
    }
  return record;
}

}  // namespace

TasksRecord RunTasks::record(int64_t step, const TextScores& scores, const Written& written) const {
  std::vector<SetAnswers> answers(asked_.size());
  share_out(scores, asked_, answers);
  Results results;
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (asked_[i].is_written()) answers[i].written = written[i];
    answers[i].judging = judging_;
    results.push_back(results_of(asked_[i].set, answers[i]));
  }
  return record_of(step, std::move(results));
}

// Of any answers; of those that are programs, which are run, a single one.
std::vector<std::string> RunTasks::result_names() const {
  std::vector<SetAnswers> answers(asked_.size());
  share_out({std::vector<double>(texts_.size(), -1.0), std::vector<bool>(texts_.size())}, asked_, answers);
  Results results;
  for (size_t i = 0; i < asked_.size(); ++i) {
    TaskSet set = asked_[i].set;
    if (set.task.passes) set.items.resize(1);
    if (asked_[i].is_written()) answers[i].written.resize(set.items.size());
    answers[i].judging = judging_;
    results.push_back(results_of(set, answers[i]));
  }
  std::vector<std::string> names;
  for (const auto& [result, value] : record_of(0, std::move(results)).results) names.push_back(result);
  return names;
}

std::vector<std::string> judge_run_tasks(const Recipe& recipe) {
  if (recipe.eval.tasks.empty()) return {};
  std::vector<std::string> notes;
  std::set<int64_t> judged;  // lengths of windows
  for (const PhaseSpan& span : phase_spans(recipe)) {
    if (!judged.insert(span.recipe.train.seq_length).second) continue;
    const RunTasks tasks(span.recipe, prepare_run(span.recipe, 0).model);
    notes.insert(notes.end(), tasks.notes().begin(), tasks.notes().end());
    const std::vector<std::string> names = tasks.result_names();
    for (const Recipe::Phase& phase : recipe.phases)
      for (const std::string& text : phase.require)
        if (const std::string name = parse_requirement(text)->result;
            std::find(names.begin(), names.end(), name) == names.end()) {
          std::string all;
          for (const std::string& result : names)
            if (!result.ends_with("_stderr")) all += (all.empty() ? "" : ", ") + result;
          throw ConfigError(
              fmt::format("the [[phase]] with from_step = {}: require = \"{}\": no task has that result; "
                          "there are {}",
                          phase.from_step, text, all));
        }
  }
  return notes;
}

bool requires_results(const Recipe& recipe, int64_t from_step) { return phase_from(recipe, from_step) != nullptr; }

std::string unmet_requirements(const Recipe& recipe, int64_t from_step, const TasksRecord& results) {
  const Recipe::Phase* phase = phase_from(recipe, from_step);
  if (phase == nullptr) return "";
  std::string unmet;
  for (const std::string& text : phase->require) {
    const Requirement needed = *parse_requirement(text);
    const double* value = result_of(results, needed.result);
    if (value != nullptr && needed.is_met(*value)) continue;
    unmet += fmt::format("{}{} is required, and {}", unmet.empty() ? "" : "; ", needed.to_string(),
                         value == nullptr ? "there is no such result" : fmt::format("it is {:.4f}", *value));
  }
  return unmet;
}

}  // namespace weft
