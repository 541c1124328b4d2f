#include "weft/history/run_rerun.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/is_there.h"
#include "weft/base/threads.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/history/written_at.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/records/metrics_log.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// --- whether it can be repeated ---

// What decided the run's results and is recorded nowhere; empty: nothing.
std::string why_not_repeatable(const RunFacts& run, const Recipe& recipe) {
  if (run.status == RunStatus::running) return "it runs now; wait until it has ended";
  if (run.recipe.contains("islands.count"))
    return "with [islands], its weights are averaged with those of other jobs, as these come";
  if (recipe.train.autotune) return "with train.autotune = true, it chose some of its settings by how long steps took";
  if (recipe.train.rebalance) return "with train.rebalance = true, its ranks shared the batch by how long steps took";
  if (has_layouts(recipe)) return "its phases have layouts of their own, which one `weft train` does not go through";
  std::set<int64_t> ranks;
  for (const RunAttempt& a : run.attempts)
    if (a.ranks > 0) ranks.insert(a.ranks);
  if (ranks.size() > 1)
    return fmt::format("its attempts had {} ranks, and it is not recorded which steps each trained",
                       fmt::join(ranks, " and "));
  if ((recipe.fleet.min_ranks > 0 || recipe.fleet.max_ranks > 0) && run.attempts.size() > 1)
    return "with [fleet], its layout followed the ranks that there were, and was not recorded for each step";
  return "";
}

std::string beginning_of(const RunFacts& run) {
  for (auto a = run.attempts.rbegin(); a != run.attempts.rend(); ++a)
    if (!a->from.empty()) return a->from;
  return "";
}

}  // namespace

RerunPlan plan_rerun(const RunFacts& run, std::optional<int64_t> last_step) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: cannot be trained again as it was: {}", run.path, why));
  };
  RerunPlan plan{.recipe = parse_recipe_file((fs::path(run.path) / "recipe.toml").string(), {}),
                 .from = beginning_of(run)};
  if (const std::string why = why_not_repeatable(run, plan.recipe); !why.empty()) refuse(why);
  const fs::path metrics = fs::path(run.path) / "metrics.jsonl";
  const Metrics recorded = is_there(metrics) ? read_metrics(metrics) : Metrics();
  if (recorded.steps.empty() || plan.recipe.train.train_iters == 0) refuse("it has recorded no step");
  if (!plan.from.empty() && !is_there(fs::path(plan.from) / "weft" / "state.json"))
    refuse(fmt::format("it began with the checkpoint {}, which is not there any more", plan.from));
  plan.first_step = plan.from.empty() ? 1 : read_progress(plan.from).step + 1;
  if (const int64_t first = recorded.steps.front().step; first != plan.first_step)
    refuse(
        fmt::format("its first recorded step is {}, and what it began with leads to step {}", first, plan.first_step));
  const int64_t done = std::min(run.step, plan.recipe.train.train_iters);
  plan.last_step = last_step.value_or(done);
  if (plan.last_step < plan.first_step || plan.last_step > done)
    throw ConfigError(
        fmt::format("--steps {}: {} has steps {} to {}", plan.last_step, run.path, plan.first_step, done));
  if (plan.last_step < plan.recipe.train.train_iters && !plan.recipe.phases.empty())
    refuse(fmt::format("its phases are laid out for {} steps, of which {} would be trained",
                       plan.recipe.train.train_iters, plan.last_step));
  return plan;
}

std::vector<std::string> rerun_settings(const RerunPlan& plan, const fs::path& folder) {
  const Recipe& r = plan.recipe;
  std::vector<std::string> settings{"run.dir=" + folder.string(),
                                    "run.supervise=false",
                                    "run.page=false",
                                    "run.page_port=0",
                                    "run.queue=\"\"",
                                    "run.priority=0"};
  if (plan.last_step < r.train.train_iters) {
    settings.push_back(fmt::format("train.train_iters={}", plan.last_step));
    if (r.optimizer.lr_decay_iters == 0)
      settings.push_back(fmt::format("optimizer.lr_decay_iters={}", r.train.train_iters));
  }
  // The save at the end must not remove the one before it, which may be the run's newest.
  if (r.checkpoint.keep_latest == 1) settings.emplace_back("checkpoint.keep_latest=2");
  return settings;
}

// --- why the bits may differ ---

std::vector<std::string> attempt_reasons(const RunFacts& run, const RunAttempt& now) {
  std::vector<std::string> reasons;
  if (run.attempts.empty()) reasons.emplace_back("its attempts, with build, machine and host, were not recorded");
  const auto compare = [&](const char* what, const std::string& here, const auto& of) {
    std::vector<std::string> others;
    for (const RunAttempt& a : run.attempts)
      if (const std::string there = of(a);
          there != here && std::find(others.begin(), others.end(), there) == others.end())
        others.push_back(there);
    if (!here.empty() && !others.empty())
      reasons.push_back(fmt::format("the {} was {}, and is {} now", what, fmt::join(others, ", then "), here));
  };
  const auto build = [](const RunAttempt& a) { return a.program.empty() ? "" : a.weft + ", build " + a.program; };
  const auto known = [](const std::string& text) { return text.empty() ? "not recorded" : text; };
  compare("program", build(now), [&](const RunAttempt& a) { return known(build(a)); });
  compare("machine", now.machine, [&](const RunAttempt& a) { return known(a.machine); });
  compare("host", now.host, [&](const RunAttempt& a) { return known(a.host); });
  return reasons;
}

std::vector<std::string> data_reasons(const std::vector<RunSource>& then, const std::vector<RunSource>& now) {
  if (then.empty()) return {"what its training files held was not recorded"};
  if (then.size() != now.size())
    return {fmt::format("there were {} training files, and are {} now", then.size(), now.size())};
  std::vector<std::string> reasons;
  for (size_t i = 0; i < then.size(); ++i)
    if (then[i].contents != now[i].contents)
      reasons.push_back(fmt::format("{} no longer holds what it held then", now[i].path));
  return reasons;
}

namespace {

// When something in or below `path` was last written to, seconds since 1970; 0: nothing is there.
double last_written(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return written_at(path);
  double last = 0;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) last = std::max(last, written_at(at->path()));
  }
  return last;
}

// The run has kept hashes of the files in these roles (data_reasons).
bool is_hashed(const std::string& role) {
  constexpr std::string_view kHashed[] = {"data.json", "data.train", "data.pairs", "data.rollouts", "data.examples"};
  return std::find(std::begin(kHashed), std::end(kHashed), role) != std::end(kHashed);
}

}  // namespace

std::vector<std::string> input_reasons(const RunFacts& run) {
  std::vector<std::string> reasons;
  for (const RunInput& input : run.inputs)
    if (run.began_s > 0 && !is_hashed(input.role) && last_written(input.path) > run.began_s)
      reasons.push_back(fmt::format("{} ({}) was written to after the run had begun", input.path, input.role));
  return reasons;
}

// --- whether they do ---

namespace {

using Numbers = std::vector<std::pair<std::string, double>>;

Numbers numbers_of(const StepRecord& r) {
  Numbers all{{"loss", r.loss},
              {"grad_norm", r.grad_norm},
              {"lr", r.lr},
              {"aux_loss", r.aux_loss},
              {"z_loss", r.z_loss},
              {"mtp_loss", r.mtp_loss},
              {"loss_scale", r.loss_scale}};
  all.insert(all.end(), r.terms.begin(), r.terms.end());
  return all;
}
Numbers numbers_of(const EvalRecord& r) {
  Numbers all{{"held-out loss", r.loss}};
  all.insert(all.end(), r.terms.begin(), r.terms.end());
  return all;
}
Numbers numbers_of(const TasksRecord& r) { return r.results; }

// A record reads back as the bits that were written, but for what NaN carried.
bool are_same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

std::string difference_of(const Numbers& then, const Numbers& now) {
  if (then.size() != now.size()) return fmt::format("there were {} numbers, and are {} now", then.size(), now.size());
  for (size_t i = 0; i < then.size(); ++i) {
    const auto& [name, a] = then[i];
    const double b = now[i].second;
    if (name != now[i].first) return fmt::format("there was {}, and is {} now", name, now[i].first);
    if (are_same_bits(a, b)) continue;
    return fmt::format(
        "{} was {}, and is {}{}", name, a, b,
        std::isfinite(b - a) ? fmt::format(" ({:.3g} {})", std::abs(b - a), b < a ? "less" : "more") : "");
  }
  return "";
}

// Compares the records of steps that both have; returns how many are the same, before the first difference.
template <class Record>
int64_t compare_records(const std::vector<Record>& then, const std::vector<Record>& now, std::string& difference) {
  int64_t same = 0;
  for (size_t i = 0, j = 0; difference.empty() && i < then.size() && j < now.size();) {
    if (then[i].step != now[j].step) {
      then[i].step < now[j].step ? ++i : ++j;
      continue;
    }
    difference = difference_of(numbers_of(then[i]), numbers_of(now[j]));
    if (difference.empty())
      ++same;
    else
      difference = fmt::format("step {}: {}", then[i].step, difference);
    ++i, ++j;
  }
  return same;
}

// How many numbers of two tensors of one type and shape differ, and by how much.
std::string numbers_text(const FileMatrix& then, const FileMatrix& now) {
  int64_t differ = 0;
  double most = 0;
  std::vector<double> a(size_t(then.cols)), b(size_t(then.cols));
  for (int64_t row = 0; row < then.rows; ++row) {
    for (const auto& [from, to] : {std::pair(&then, &a), std::pair(&now, &b)})
      read_matrix(*from, {.row = row, .col = 0},
                  {.data = to->data(), .dtype = DType::f64, .rows = 1, .cols = then.cols, .row_stride = then.cols});
    for (size_t i = 0; i < a.size(); ++i) {
      differ += !are_same_bits(a[i], b[i]);
      if (const double by = std::abs(b[i] - a[i]); std::isfinite(by)) most = std::max(most, by);
    }
  }
  return fmt::format("{} of {} numbers differ, by {:.3g} at most", differ, then.rows * then.cols, most);
}

// The first tensor that differs, by name.
std::string tensor_difference(const fs::path& then, const fs::path& now) {
  const SafetensorsFolder a = SafetensorsFolder::of_file(then), b = SafetensorsFolder::of_file(now);
  for (const SafetensorsFolder::Tensor& t : a.tensors()) {
    const SafetensorsFolder::Tensor* u = b.find(t.name());
    if (u == nullptr) return fmt::format("there is no tensor {} any more", t.name());
    if (t.entry->dtype != u->entry->dtype || t.entry->shape != u->entry->shape)
      return fmt::format("tensor {} has another type or shape", t.name());
    const auto x = a.bytes(t), y = b.bytes(*u);
    if (std::equal(x.begin(), x.end(), y.begin(), y.end())) continue;
    return fmt::format("tensor {}: {}", t.name(),
                       is_convertible(t.entry->dtype) ? numbers_text(a.matrix(t), b.matrix(*u)) : "its codes differ");
  }
  return a.tensors().size() == b.tensors().size() ? "the tensors are the same, and what stands before them is not"
                                                  : "there are tensors that were not there";
}

// Paths below the checkpoint.
std::set<fs::path> tensor_files(const fs::path& checkpoint) {
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors") files.insert(entry.path().lexically_relative(checkpoint));
  return files;
}

// What of it is not what was saved; empty: nothing, or that cannot be told.
std::string damage_of(const fs::path& checkpoint) {
  try {
    if (!is_there(checkpoint / kManifestFile)) return "";
    const CheckpointCheck check(checkpoint, CheckpointPart::all);
    check.judge(check.sums_of_share(0, 1, usable_cores()));
    return "";
  } catch (const FileError& e) { return e.what(); }
}

void compare_checkpoints(const fs::path& then, const fs::path& now, ComparedBits& bits) {
  const std::set<fs::path> files = tensor_files(then);
  if (files != tensor_files(now)) bits.difference = fmt::format("step {}: its files have other names", step_of(then));
  for (const fs::path& file : files) {
    if (!bits.difference.empty()) break;
    if (hash_of_file(then / file) == hash_of_file(now / file)) {
      ++bits.files;
      continue;
    }
    std::string where;
    try {
      where = tensor_difference(then / file, now / file);
    } catch (const FileError& e) { where = e.what(); }
    bits.difference = fmt::format("{}: {}", (then.filename() / file).string(), where);
  }
  if (bits.difference.empty()) return;
  bits.damage = damage_of(then);
  if (bits.damage.empty()) bits.damage = damage_of(now);
}

}  // namespace

ComparedBits compare_bits(const fs::path& run, const fs::path& again) {
  const Metrics then = read_metrics(run / "metrics.jsonl"), now = read_metrics(again / "metrics.jsonl");
  ComparedBits bits;
  bits.steps = compare_records(then.steps, now.steps, bits.difference);
  if (bits.steps == 0 && bits.difference.empty())
    throw FileError(fmt::format("{}: has recorded no step that {} has too", again.string(), run.string()));
  compare_records(then.evals, now.evals, bits.difference);
  compare_records(then.tasks, now.tasks, bits.difference);
  if (!bits.difference.empty()) return bits;
  for (const fs::path& checkpoint : checkpoint_folders(run))  // oldest first
    if (is_there(again / "checkpoints" / checkpoint.filename())) bits.checkpoint_step = step_of(checkpoint);
  if (bits.checkpoint_step == 0) return bits;
  const fs::path name = fs::path("checkpoints") / fmt::format("step-{}", bits.checkpoint_step);
  compare_checkpoints(run / name, again / name, bits);
  return bits;
}

}  // namespace weft
