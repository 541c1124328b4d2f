// `weft runs rerun`: trains a run again in another folder, and says whether the bits are the same.
#include <algorithm>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/report.h"
#include "weft/apps/runs.h"
#include "weft/apps/sweep_children.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/base/is_there.h"
#include "weft/base/version.h"
#include "weft/data/sample_order.h"
#include "weft/history/program_id.h"
#include "weft/history/run_rerun.h"
#include "weft/plan/layout.h"
#include "weft/plan/run_plan.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/records/clock.h"
#include "weft/train/run_data.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class Reasons {
 public:
  // Says those that are new.
  void add(const std::vector<std::string>& reasons) {
    for (const std::string& reason : reasons)
      if (std::find(all_.begin(), all_.end(), reason) == all_.end()) {
        all_.push_back(reason);
        std::cerr << "the bits may differ, because " << reason << "\n";
      }
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

// The new run's folder: absolute, and not there.
fs::path folder_of_rerun(const RunsRerunOptions& o, const RunFacts& run) {
  fs::path folder = fs::absolute(o.out.empty() ? run.path + "-rerun" : o.out).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();
  if (is_name_taken(folder))
    throw ConfigError(fmt::format("{}: exists; name a folder that is not there with --out", folder.string()));
  return folder;
}

// Goes to where the run was started, from which its relative paths are seen.
void enter_folder_of(const RunFacts& run, Reasons& reasons) {
  for (auto a = run.attempts.rbegin(); a != run.attempts.rend(); ++a) {
    if (a->folder.empty()) continue;
    std::error_code error;
    fs::current_path(a->folder, error);
    if (error)
      reasons.add({fmt::format("{}, where the run was started, cannot be entered: relative paths are seen from {}",
                               a->folder, fs::current_path().string())});
    return;
  }
}

// What an attempt of now is, as far as it can be told without starting one: a GPU is named by the new run itself.
RunAttempt attempt_now(const Recipe& recipe) {
  return {.weft = kVersion,
          .program = id_of_this_program(),
          .host = name_of_host(),
          .machine = recipe.run.backend == BackendKind::cuda ? "" : machine_for(recipe).description};
}

// The training files as they are now. Reads all of them.
std::vector<RunSource> sources_now(const Recipe& recipe, int64_t vocab_size) {
  if (!reads_tokens(recipe.train.objective)) return open_row_data(recipe, vocab_size).sources;
  DataSpec spec = data_spec_of(recipe, vocab_size);
  spec.may_tokenize = false;
  const auto order = open_sample_order(spec);
  std::vector<RunSource> sources;
  for (size_t i = 0; i < spec.paths.size(); ++i)
    sources.push_back({.path = spec.paths[i], .contents = order->contents_of(i), .dataset = "", .version = ""});
  return sources;
}

void compare_data_before(const RunFacts& run, Recipe recipe, Reasons& reasons) {
  require_run_data(recipe);
  if (has_phases(recipe)) return;  // data.json is of the last one; compared once the new run has come there
  const int64_t vocab_size = prepare_run(recipe, 0).model.vocab_size;
  recipe.run.dir = run.path;  // where ids of its texts may lie
  try {
    reasons.add(data_reasons(run.data, sources_now(recipe, vocab_size)));
  } catch (const FileError& e) {
    std::cerr << "note: the training files are compared once the new run has read them: " << e.what() << "\n";
  }
}

std::vector<std::string> numerics_reasons(const Recipe& recipe) {
  if (recipe.train.numerics != NumericsChoice::nondeterministic) return {};
  return {"train.numerics = \"nondeterministic\" adds up in any order"};
}

// Returns the exit status of `weft train`, or of a request to stop.
int train_again(const RunFacts& run, const RerunPlan& plan, const fs::path& folder) {
  std::vector<std::string> command{fs::read_symlink("/proc/self/exe").string(), "train",
                                   (fs::path(run.path) / "recipe.toml").string()};
  if (!plan.from.empty()) command.insert(command.end(), {"--from", plan.from});
  for (std::string& setting : rerun_settings(plan, folder)) command.push_back(std::move(setting));
  const std::string log = folder.string() + ".log";
  std::cerr << fmt::format("trains steps {} to {} of {} again in {}; what it says is in {}\n", plan.first_step,
                           plan.last_step, run.path, folder.string(), log);
  create_folders(folder.parent_path());
  StopRequests requests;
  TrialEnd end{.status = kExitFailure, .error = {}};
  run_trials({{.command = command, .log = log}}, 1, requests, [&](size_t, const TrialEnd& e) { end = e; });
  if (requests.asked() && end.status != 0) {
    std::cerr << fmt::format("stopped; nothing was compared, and {} can be removed\n", folder.string());
    return requests.by_interrupt() ? kExitInterrupted : kExitPreempted;
  }
  if (end.status != 0)
    std::cerr << fmt::format("weft runs rerun: error: `weft train` ended with status {}{}{}; more is in {}\n",
                             end.status, end.error.empty() ? "" : ": ", end.error, log);
  return end.status;
}

std::string verdict_of(const ComparedBits& bits) {
  if (!bits.difference.empty())
    return fmt::format("other bits: {}{}", bits.difference, bits.damage.empty() ? "" : "; damaged: " + bits.damage);
  return fmt::format("the same bits: {} step{}, {}", bits.steps, bits.steps == 1 ? "" : "s",
                     bits.checkpoint_step == 0 ? "and no checkpoint that both have"
                                               : fmt::format("{} files of step-{}", bits.files, bits.checkpoint_step));
}

void print_verdict(const RunsRerunOptions& o, const Report& of, const ComparedBits& bits, const Reasons& reasons) {
  Report report = of;
  report["verdict"] = verdict_of(bits);
  if (!reasons.all().empty()) report["may_differ_because"] = reasons.all();
  if (!o.json) {
    std::cout << to_text(report);
    return;
  }
  report["same"] = bits.difference.empty();
  report["steps"] = bits.steps;
  report["checkpoint_step"] = bits.checkpoint_step;
  report["files"] = bits.files;
  std::cout << report.dump(1, ' ', false, Report::error_handler_t::replace) << "\n";
}

}  // namespace

int run_runs_rerun(const RunsRerunOptions& o) {
  const RunFacts run = run_to_compare(o, o.run);
  const RerunPlan plan = plan_rerun(run, o.steps);
  const fs::path folder = folder_of_rerun(o, run);
  Reasons reasons;
  enter_folder_of(run, reasons);
  reasons.add(attempt_reasons(run, attempt_now(plan.recipe)));
  reasons.add(numerics_reasons(plan.recipe));
  reasons.add(input_reasons(run));
  compare_data_before(run, plan.recipe, reasons);
  if (reasons.all().empty()) std::cerr << "nothing is known by which the bits would differ\n";
  if (const int status = train_again(run, plan, folder); status != kExitOk) return status;

  const RunFacts again = read_run_facts(folder);
  if (!again.attempts.empty()) reasons.add(attempt_reasons(run, again.attempts.back()));
  reasons.add(data_reasons(run.data, again.data));
  const ComparedBits bits = compare_bits(run.path, folder);
  print_verdict(o, {{"run", run.path}, {"rerun", folder.string()}}, bits, reasons);
  return bits.difference.empty() ? kExitOk : kExitFailure;
}

}  // namespace weft
