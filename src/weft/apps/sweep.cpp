// `weft sweep`.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "weft/apps/commands.h"
#include "weft/apps/sweep_children.h"
#include "weft/apps/sweep_draft.h"
#include "weft/apps/sweep_results.h"
#include "weft/apps/sweep_trials.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct SweepPlan {
  SweepWords words;
  Trials trials;
  Recipe recipe;  // with the settings of all trials
  fs::path folder, draft_model;
};

void check_sweep_keys(const SweepOptions& o, const SweepPlan& plan) {
  const auto refuse = [&](const std::string& key, const std::string& why, bool also_set) {
    const auto is_key = [&](const SweptKey& k) { return k.key == key; };
    const auto sets = [&](const std::string& s) { return s.starts_with(key + "="); };
    if (std::any_of(plan.words.swept.begin(), plan.words.swept.end(), is_key) ||
        (also_set && std::any_of(plan.words.settings.begin(), plan.words.settings.end(), sets)))
      throw ConfigError(fmt::format("{}: {}", key, why));
  };
  refuse("run.dir", "the sweep gives each trial its own; say where with --folder", true);
  if (plan.words.swept.empty())
    throw ConfigError("no key has several values: write them with commas, as optimizer.lr=1e-4,3e-4");
  if (o.halving) refuse("train.train_iters", "with --halving the rungs say it; give one value", false);
  if (!o.draft.empty()) refuse("model.path", "with --draft all trials are of one model; give one value", false);
  if (o.halving && plan.recipe.train.train_iters == 0)
    throw ConfigError("train.epochs: the rungs of --halving are in steps; give train.train_iters in its place");
  if (o.halving && o.least_steps >= plan.recipe.train.train_iters)
    throw ConfigError(fmt::format("--least-steps {}: with train.train_iters = {} there is but one rung; give fewer",
                                  o.least_steps, plan.recipe.train.train_iters));
  if (o.jobs > usable_cores())
    throw ConfigError(fmt::format("--jobs {}: this process may use {} cores; give at most as many jobs", o.jobs,
                                  usable_cores()));
}

// All trials' recipes, so that none is refused hours later.
void check_trials(const SweepOptions& o, const SweepPlan& plan) {
  for (size_t i = 0; i < plan.trials.size(); ++i) {
    std::vector<std::string> all = plan.words.settings;
    all.insert(all.end(), plan.trials[i].begin(), plan.trials[i].end());
    try {
      check_supported(parse_recipe_file(o.recipe, all));
    } catch (const ConfigError& e) {
      throw ConfigError(fmt::format("trial {} ({}): {}", i + 1, fmt::join(plan.trials[i], " "), e.what()));
    }
  }
}

SweepPlan plan_sweep(const SweepOptions& o) {
  SweepPlan plan{.words = parse_sweep_words(o.settings)};
  plan.recipe = parse_recipe_file(o.recipe, plan.words.settings);
  check_sweep_keys(o, plan);
  plan.trials = o.random > 0 ? random_trials(plan.words.swept, o.random, uint64_t(o.seed))
                             : grid_trials(plan.words.swept);
  check_trials(o, plan);
  plan.folder = o.folder.empty() ? plan.recipe.run.dir + "-sweep" : o.folder;
  return plan;
}

nlohmann::json identity_of(const SweepOptions& o, const SweepPlan& plan) {
  return {{"recipe", to_toml(plan.recipe)}, {"settings", o.settings}, {"trials", plan.trials},
          {"halving", o.halving},           {"eta", o.eta},           {"least_steps", o.least_steps},
          {"draft", o.draft},               {"confirm", o.confirm}};
}

class Sweep {
 public:
  Sweep(const SweepOptions& o, SweepPlan plan)
      : o_(o), plan_(std::move(plan)), state_(plan_.folder, identity_of(o, plan_)) {
    if (o.retry) state_.forget_failed();
    if (!o.draft.empty()) plan_.draft_model = make_draft(plan_.recipe, o.draft, plan_.folder / "draft-model");
  }

  int run() {
    std::vector<int64_t> all;
    for (size_t i = 0; i < plan_.trials.size(); ++i) all.push_back(int64_t(i) + 1);
    const int64_t steps = plan_.recipe.train.train_iters;
    std::vector<Rung> rungs{{.steps = steps, .trials = int64_t(all.size())}};
    if (o_.halving) rungs = halving_rungs(int64_t(all.size()), steps, o_.least_steps, o_.eta);
    if (o_.draft.empty()) {
      run_rungs("full", all, rungs);
    } else if (auto best = run_rungs("draft", all, rungs); !requests_.asked()) {
      best.resize(std::min(best.size(), size_t(o_.confirm)));
      run_rung("full", best, steps);
    }
    return report();
  }

 private:
  // The trials of the last rung that have not failed, the best first.
  std::vector<int64_t> run_rungs(const std::string& stage, std::vector<int64_t> trials, const std::vector<Rung>& rungs) {
    for (const Rung& rung : rungs) {
      trials.resize(std::min(trials.size(), size_t(rung.trials)));
      trials = run_rung(stage, trials, rung.steps);
      if (requests_.asked()) break;
    }
    return trials;
  }

  std::vector<int64_t> run_rung(const std::string& stage, const std::vector<int64_t>& trials, int64_t steps) {
    std::vector<int64_t> left;
    std::vector<TrialProcess> processes;
    for (const int64_t trial : trials) {
      if (state_.find(stage, trial, steps) != nullptr) continue;
      left.push_back(trial);
      create_folders(folder_of(stage));
      processes.push_back({.command = command_of(stage, trial, steps), .log = run_of(stage, trial).string() + ".log"});
    }
    run_trials(processes, std::min<int64_t>(o_.jobs, std::max<int64_t>(1, int64_t(left.size()))), requests_,
               [&](size_t i, const TrialEnd& end) { note_end({.stage = stage, .trial = left[i], .steps = steps}, end); });
    std::vector<TrialResult> results;
    for (const int64_t trial : trials)
      if (const TrialResult* r = state_.find(stage, trial, steps); r != nullptr && r->failed.empty())
        results.push_back(*r);
    sort_by_metric(results);
    std::vector<int64_t> best;
    for (const TrialResult& r : results) best.push_back(r.trial);
    return best;
  }

  void note_end(TrialResult result, const TrialEnd& end) {
    const bool stopped = end.status == kExitPreempted || end.status == kExitInterrupted;
    if (requests_.asked() && end.status != 0 && (stopped || end.status > 128)) return;  // it goes on next time
    if (end.status == 0)
      result = result_of_run(run_of(result.stage, result.trial), result);
    else
      result.failed = fmt::format("exit status {}{}{}", end.status, end.error.empty() ? "" : ": ", end.error);
    state_.add(result);
    std::cerr << fmt::format("weft sweep: {} trial {} ({}) at step {}: {}\n", result.stage, result.trial,
                             fmt::join(plan_.trials[size_t(result.trial - 1)], " "), result.steps,
                             !result.failed.empty() ? "failed: " + result.failed
                             : result.held_out      ? fmt::format("held-out loss {:.4f}", *result.held_out)
                                                    : fmt::format("train loss {:.4f}", *result.train));
  }

  fs::path folder_of(const std::string& stage) const { return stage == "draft" ? plan_.folder / stage : plan_.folder; }
  fs::path run_of(const std::string& stage, int64_t trial) const {
    return folder_of(stage) / fmt::format("trial-{}", trial);
  }

  std::vector<std::string> command_of(const std::string& stage, int64_t trial, int64_t steps) const {
    std::vector<std::string> words{fs::read_symlink("/proc/self/exe").string(), "train", o_.recipe};
    words.insert(words.end(), plan_.words.settings.begin(), plan_.words.settings.end());
    const auto& own = plan_.trials[size_t(trial - 1)];
    words.insert(words.end(), own.begin(), own.end());
    words.push_back("run.dir=" + run_of(stage, trial).string());
    if (stage == "draft") words.push_back("model.path=" + plan_.draft_model.string());
    if (!o_.halving) return words;
    words.push_back(fmt::format("train.train_iters={}", steps));
    // A rung is the beginning of the whole run: its learning rate must not come to its end at the rung's.
    const auto sets_end = [](const std::string& s) { return s.starts_with("optimizer.lr_decay_iters="); };
    if (plan_.recipe.optimizer.lr_decay_iters == 0 && std::none_of(own.begin(), own.end(), sets_end))
      words.push_back(fmt::format("optimizer.lr_decay_iters={}", plan_.recipe.train.train_iters));
    return words;
  }

  int report() {
    SweepTable table{.settings = plan_.trials, .results = state_.results()};
    for (const SweptKey& key : plan_.words.swept) {
      table.keys.push_back(key.key);
      table.log.push_back(key.range.has_value());
    }
    const std::string text = sweep_table_text(table);
    std::cout << text;
    write_file_durably(plan_.folder / "sweep.txt", text);
    write_file_durably(plan_.folder / "sweep.svg", sweep_svg(table, "sweep of " + o_.recipe));
    if (requests_.asked()) return requests_.by_interrupt() ? kExitInterrupted : kExitPreempted;
    const std::string last = "full";
    if (std::none_of(table.results.begin(), table.results.end(),
                     [&](const TrialResult& r) { return r.stage == last && r.failed.empty(); }))
      throw Error(fmt::format("every trial failed; {} has what each printed, and --retry runs them again",
                              (plan_.folder / "trial-N.log").string()));
    return kExitOk;
  }

  const SweepOptions& o_;
  SweepPlan plan_;
  SweepState state_;
  StopRequests requests_;
};

}  // namespace

int run_sweep(const SweepOptions& options) { return Sweep(options, plan_sweep(options)).run(); }

}  // namespace weft
