// `weft sweep`.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "weft/apps/commands.h"
#include "weft/apps/run_queue.h"
#include "weft/apps/sweep_children.h"
#include "weft/apps/sweep_draft.h"
#include "weft/apps/sweep_results.h"
#include "weft/apps/sweep_trials.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/history/run_facts.h"
#include "weft/models/hf_config.h"
#include "weft/recipe/recipe.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct SweepPlan {
  SweepWords words = {};
  Trials trials = {};
  Recipe recipe = {};  // with the settings of all trials
  fs::path folder = {};
  nlohmann::json draft = {};     // the config.json of the draft
  std::vector<Rung> rungs = {};  // without halving one, whose steps are the recipe's

  fs::path folder_of(const std::string& stage) const { return stage == "draft" ? folder / stage : folder; }
  fs::path run_of(const std::string& stage, int64_t trial) const {
    return folder_of(stage) / fmt::format("trial-{}", trial);
  }
};

// Beside the recipe, of a trial (from 1 on) that trains so many steps.
std::vector<std::string> settings_of(const SweepPlan& plan, const std::string& stage, int64_t trial, int64_t steps) {
  std::vector<std::string> words = plan.words.settings;
  const auto& own = plan.trials[size_t(trial - 1)];
  words.insert(words.end(), own.begin(), own.end());
  words.push_back("run.dir=" + plan.run_of(stage, trial).string());
  if (stage == "draft") words.push_back("model.path=" + (plan.folder / "draft-model").string());
  if (plan.rungs.size() == 1) return words;
  words.push_back(fmt::format("train.train_iters={}", steps));
  // A rung is the beginning of the whole run: its learning rate must not come to its end at the rung's.
  const auto sets_end = [](const std::string& s) { return s.starts_with("optimizer.lr_decay_iters="); };
  if (plan.recipe.optimizer.lr_decay_iters == 0 && std::none_of(own.begin(), own.end(), sets_end))
    words.push_back(fmt::format("optimizer.lr_decay_iters={}", plan.recipe.train.train_iters));
  return words;
}

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
    throw ConfigError(
        fmt::format("--jobs {}: this process may use {} cores; give at most as many jobs", o.jobs, usable_cores()));
}

// All trials' recipes, so that none is refused hours later.
void check_trials(const SweepOptions& o, const SweepPlan& plan) {
  for (size_t i = 0; i < plan.trials.size(); ++i) {
    try {
      for (const Rung& rung : plan.rungs) {
        const Recipe recipe = parse_recipe_file(o.recipe, settings_of(plan, "full", int64_t(i) + 1, rung.steps));
        check_supported(recipe);
        check_queue_keys(recipe, recipe.run.supervise);
        if (has_layouts(recipe) && !recipe.run.supervise)
          throw ConfigError(
              "its phases have layouts of their own, between which `weft train` ends; the nearest that works: "
              "run.supervise=true");
      }
    } catch (const ConfigError& e) {
      throw ConfigError(fmt::format("trial {} ({}): {}", i + 1, fmt::join(plan.trials[i], " "), e.what()));
    }
  }
}

SweepPlan plan_sweep(const SweepOptions& o) {
  SweepPlan plan{.words = parse_sweep_words(o.settings)};
  plan.recipe = parse_recipe_file(o.recipe, plan.words.settings);
  check_sweep_keys(o, plan);
  plan.trials =
      o.random > 0 ? random_trials(plan.words.swept, o.random, uint64_t(o.seed)) : grid_trials(plan.words.swept);
  const auto num_trials = int64_t(plan.trials.size());
  plan.rungs = {{.steps = plan.recipe.train.train_iters, .trials = num_trials}};
  if (o.halving) plan.rungs = halving_rungs(num_trials, plan.recipe.train.train_iters, o.least_steps, o.eta);
  const fs::path run = plan.recipe.run.dir;
  plan.folder = !o.folder.empty() ? o.folder : (run.has_filename() ? run : run.parent_path()).string() + "-sweep";
  check_trials(o, plan);
  if (!o.draft.empty()) {
    plan.draft = draft_config(plan.recipe, o.draft);
    try {
      parse_hf_config(plan.draft, fmt::format("--draft {}: config.json", fmt::join(o.draft, " ")));
    } catch (const FileError& e) { throw ConfigError(e.what()); }  // the option is wrong, and not a file
  }
  return plan;
}

// What must be the same for a sweep to go on: not how many go side by side.
nlohmann::json identity_of(const SweepOptions& o, const SweepPlan& plan) {
  std::vector<std::string> lines;  // so that a difference is told by its line
  std::istringstream recipe(to_toml(plan.recipe));
  for (std::string line; std::getline(recipe, line);) lines.push_back(line);
  nlohmann::json identity = nlohmann::json::object();
  identity["recipe"] = lines;
  identity["trials"] = plan.trials;
  identity["halving"] = o.halving;
  identity["eta"] = o.eta;
  identity["least_steps"] = o.least_steps;
  identity["draft"] = o.draft;
  identity["confirm"] = o.confirm;
  return identity;
}

// The trials of a sweep that was killed end a moment after it.
void wait_for_owner(const fs::path& run) {
  for (int look = 0; look < 100 && is_run_folder(run); ++look) {
    if (read_run_facts(run).status != RunStatus::running) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

class Sweep {
 public:
  Sweep(const SweepOptions& o, SweepPlan plan)
      : o_(o), plan_(std::move(plan)), state_(plan_.folder, identity_of(o, plan_)) {
    if (o.retry) state_.forget_failed();
    if (!o.draft.empty()) write_draft(plan_.recipe, plan_.draft, plan_.folder / "draft-model");
  }

  int run() {
    std::vector<int64_t> all;
    for (size_t i = 0; i < plan_.trials.size(); ++i) all.push_back(int64_t(i) + 1);
    if (o_.draft.empty()) {
      run_rungs("full", all);
    } else if (auto best = run_rungs("draft", all); !requests_.asked()) {
      best.resize(std::min(best.size(), size_t(o_.confirm)));
      run_rung("full", best, plan_.rungs.size() - 1);
    }
    return report();
  }

 private:
  // The trials of the last rung that have not failed, the best first.
  std::vector<int64_t> run_rungs(const std::string& stage, std::vector<int64_t> trials) {
    for (size_t rung = 0; rung < plan_.rungs.size(); ++rung) {
      trials.resize(std::min(trials.size(), size_t(plan_.rungs[rung].trials)));
      trials = run_rung(stage, trials, rung);
      if (requests_.asked()) break;
    }
    return trials;
  }

  std::vector<int64_t> run_rung(const std::string& stage, const std::vector<int64_t>& trials, size_t rung) {
    std::vector<int64_t> left;
    std::vector<TrialProcess> processes;
    for (const int64_t trial : trials) {
      if (state_.find(stage, trial, int64_t(rung)) != nullptr) continue;
      left.push_back(trial);
      create_folders(plan_.folder_of(stage));
      wait_for_owner(plan_.run_of(stage, trial));
      processes.push_back({.command = command_of(stage, trial, plan_.rungs[rung].steps),
                           .log = plan_.run_of(stage, trial).string() + ".log"});
    }
    run_trials(processes, std::min<int64_t>(o_.jobs, std::max<int64_t>(1, int64_t(left.size()))), requests_,
               [&](size_t i, const TrialEnd& end) {
                 note_end({.stage = stage, .trial = left[i], .rung = int64_t(rung)}, end);
               });
    std::vector<TrialResult> results;
    for (const int64_t trial : trials)
      if (const TrialResult* r = state_.find(stage, trial, int64_t(rung)); r != nullptr && r->failed.empty())
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
      result = result_of_run(plan_.run_of(result.stage, result.trial), result);
    else
      result.failed = fmt::format("exit status {}{}{}", end.status, end.error.empty() ? "" : ": ", end.error);
    state_.add(result);
    std::cerr << fmt::format("weft sweep: {} trial {} ({}): {}\n", result.stage, result.trial,
                             fmt::join(plan_.trials[size_t(result.trial - 1)], " "),
                             !result.failed.empty() ? "failed: " + result.failed
                             : result.held_out      ? fmt::format("held-out loss {:.4f}", *result.held_out)
                                                    : fmt::format("train loss {:.4f}", *result.train));
  }

  std::vector<std::string> command_of(const std::string& stage, int64_t trial, int64_t steps) const {
    std::vector<std::string> words{program_, "train", o_.recipe};
    const std::vector<std::string> settings = settings_of(plan_, stage, trial, steps);
    words.insert(words.end(), settings.begin(), settings.end());
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
    const auto last = int64_t(plan_.rungs.size()) - 1;
    if (std::none_of(table.results.begin(), table.results.end(),
                     [&](const TrialResult& r) { return r.stage == "full" && r.rung == last && r.failed.empty(); }))
      throw Error(
          fmt::format("every trial that came so far failed; {} has what each printed, and --retry runs them again",
                      (plan_.folder / "trial-N.log").string()));
    return kExitOk;
  }

  const SweepOptions& o_;
  SweepPlan plan_;
  SweepState state_;
  StopRequests requests_;
  // Read once: the link of a program that was replaced meanwhile names no file.
  const std::string program_ = fs::read_symlink("/proc/self/exe").string();
};

}  // namespace

int run_sweep(const SweepOptions& options) { return Sweep(options, plan_sweep(options)).run(); }

}  // namespace weft
