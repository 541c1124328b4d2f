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

namespace weft {
namespace {

QuestionsSpec questions_of(const Recipe& r) {
  return {.tasks = r.eval.tasks,
          .fewshot_from = r.eval.fewshot_from,
          .num_fewshot = r.eval.num_fewshot,
          .limit = r.eval.limit,
          .seed = uint64_t(r.train.seed),
          .window = r.train.seq_length,
          .options = {"eval.tasks", "eval.fewshot_from", "eval.num_fewshot", "train.seq_length"}};
}

void refuse_written(const FoundTasks& found) {
  for (const TaskPlace& place : found.places)
    if (place.task.kind == TaskKind::written)
      throw ConfigError(
          fmt::format("eval.tasks {0} cannot run: its answers are written, which takes the memory of another program; "
                      "the nearest that works: `weft eval RUN --tasks {0}={1}` of the run's checkpoints",
                      place.task.name, place.path.string()));
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
  refuse_written(found);
  const ModelTokenizer name = tokenizer_of_model(r.model.path, r, "auto");
  if (!name.note.empty())
    notes_.push_back(
        fmt::format("note: eval.tasks: {} holds no tokenizer: questions are read as bytes, which is a "
                    "guess; data.tokenizer names another",
                    r.model.path));
  const auto tokenizer = open_tokenizer(name.name, r.model.path, model.vocab_size);
  asked_ = ask(found, spec, *tokenizer);
  texts_ = all_texts(asked_);
  for (std::string& note : truncation_notes(asked_, spec)) notes_.push_back(std::move(note));
}

TasksRecord RunTasks::record(int64_t step, const TextScores& scores) const {
  std::vector<SetAnswers> answers(asked_.size());
  share_out(scores, asked_, answers);
  std::vector<nlohmann::ordered_json> results;
  for (size_t i = 0; i < asked_.size(); ++i) results.push_back(results_of(asked_[i].set, answers[i]));
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

std::vector<std::string> judge_run_tasks(const Recipe& recipe) {
  if (recipe.eval.tasks.empty()) return {};
  std::vector<std::string> notes;
  std::set<int64_t> judged;  // lengths of windows
  for (const PhaseSpan& span : phase_spans(recipe)) {
    if (!judged.insert(span.recipe.train.seq_length).second) continue;
    const RunTasks tasks(span.recipe, prepare_run(span.recipe, 0).model);
    notes.insert(notes.end(), tasks.notes().begin(), tasks.notes().end());
    const TextScores any{std::vector<double>(tasks.texts().size(), -1.0), std::vector<bool>(tasks.texts().size())};
    const TasksRecord results = tasks.record(0, any);
    for (const Recipe::Phase& phase : recipe.phases)
      for (const std::string& text : phase.require)
        if (const std::string name = parse_requirement(text)->result; result_of(results, name) == nullptr) {
          std::string all;
          for (const auto& [result, value] : results.results)
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
