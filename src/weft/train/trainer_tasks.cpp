// What a Trainer scores in tasks as it goes, and what phases require of it.
#include <algorithm>
#include <bit>
#include <sstream>

#include "weft/comm/agree.h"
#include "weft/train/evaluate.h"
#include "weft/train/trainer.h"

namespace weft {

bool Trainer::tasks_due() const {
  return !tasks_.empty() && step_ > 0 &&
         (due(recipe_.eval.interval) || step_ == recipe_.train.train_iters || requires_results(whole_, step_));
}

// What is in metrics.jsonl already, of a run that goes on, is scored again only for a phase that asks for it.
void Trainer::score_tasks() {
  const bool is_told = saved_step_ == step_ && any_rank(leads() && has_step(metrics().tasks, step_));
  if (is_told && !requires_results(whole_, step_)) return;
  enter(RunSection::tasks);
  const auto scores = score_texts(tasks_.texts(),
                                  {.step_spec = rank_.plan.step,
                                   .memory = *machine_.memory,
                                   .ranks = *rank_.mesh.dense.all,
                                   .stages = *rank_.mesh.pp,
                                   .stopped = [this] { return stopped(); }},
                                  [this](const LoadMicroBatch& load) { return rank_.executor.evaluate(load); });
  if (!scores) return;
  RunTasks::Written written;
  if (writer_) {
    const auto stop = [this] {
      enter(RunSection::tasks);  // a sign of life
      return stopped();
    };
    auto answers = tasks_.write(*writer_, rank_.plan.step.writes, stop);
    if (!answers) return;
    written = std::move(*answers);
  }
  auto results = wait_judge(*scores, written);
  if (!results) return;
  results_ = std::move(*results);
  // Other questions than those of the record that is there may have been asked.
  if (leads() && !(is_told && is_recorded(*results_))) records_->tasks(*results_);
}

// Programs among the answers run once, on the rank that leads: a clock stops them, and they might end otherwise
// elsewhere. The others take its results, to the bit; or what went wrong: then none, and the run goes on, unless a
// phase requires them.
std::optional<TasksRecord> Trainer::wait_judge(const TextScores& scores, const RunTasks::Written& written) const {
  if (!tasks_.any_written()) return tasks_.record(step_, scores, written);
  std::string told;
  if (leads()) {
    try {
      told = "results";
      for (const auto& [name, value] : tasks_.record(step_, scores, written).results)
        told += fmt::format("\n{:016x}{}", std::bit_cast<uint64_t>(value), name);
    } catch (const std::exception& e) { told = fmt::format("error\n{}", e.what()); }
  }
  std::istringstream lines(first_text(*rank_.mesh.world, told));
  std::string line;
  std::getline(lines, line);
  if (line == "error") {
    const std::string what = lines.str().substr(line.size() + 1);
    if (requires_results(whole_, step_)) throw Error(what);
    if (leads()) records_->note(fmt::format("step {}: the answers of eval.tasks were not judged: {}", step_, what));
    return {};
  }
  TasksRecord record{.step = step_};
  while (std::getline(lines, line))
    record.results.emplace_back(line.substr(16), std::bit_cast<double>(std::stoull(line.substr(0, 16), nullptr, 16)));
  return record;
}

bool Trainer::is_recorded(const TasksRecord& record) const {
  const std::vector<TasksRecord> all = metrics().tasks;
  const auto last = std::find_if(all.rbegin(), all.rend(), [&](const TasksRecord& r) { return r.step == record.step; });
  return last != all.rend() && *last == record;
}

// Before the span that begins here.
void Trainer::require_results() {
  const TasksRecord none;
  const std::string unmet = unmet_requirements(whole_, step_, results_ && results_->step == step_ ? *results_ : none);
  if (unmet.empty()) return;
  save(true);
  if (leads()) records_->finish(recipe_.run.dir);
  throw UnmetError(fmt::format(
      "step {}: the [[phase]] with from_step = {} does not begin: {}. The run is saved; the same command goes on "
      "when the phase requires less, or begins later",
      step_, step_, unmet));
}

}  // namespace weft
