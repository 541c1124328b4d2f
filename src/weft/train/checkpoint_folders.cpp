#include "weft/train/checkpoint_folders.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "weft/base/error.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/comm/agree.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/phase_heads.h"

#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kDamaged = ".damaged";

int64_t step_in(std::string_view name) {
  int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char *first = name.data() + kPrefix.size(), *last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last ? step : -1;
}

fs::path folder_of(const fs::path& run) { return run / "checkpoints"; }

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    all.push_back(at->path());
  std::sort(all.begin(), all.end());
  return all;
}

// Checkpoints that were set aside, by their step.
std::vector<std::pair<int64_t, fs::path>> damaged_of(const fs::path& run) {
  std::vector<std::pair<int64_t, fs::path>> all;
  for (const fs::path& entry : entries_of(folder_of(run)))
    if (entry.extension() == kDamaged && step_in(entry.stem().string()) >= 0)
      all.emplace_back(step_in(entry.stem().string()), entry);
  return all;
}

// Finishes removals that were cut short, also of damaged checkpoints (step-N.damaged.removing).
void clean_up(const fs::path& run, const BeforeChange& before) {
  for (const fs::path& entry : entries_of(folder_of(run))) {
    const fs::path whole = entry.stem();
    if (step_in((whole.extension() == kDamaged ? whole.stem() : whole).string()) >= 0) clean_left_behind(entry, before);
  }
}

// Half a checkpoint, of a weft that removed it under its name.
void remove_halves(const fs::path& run, const BeforeChange& before) {
  std::error_code ignored;
  const std::vector<fs::path> all = checkpoint_folders(run);
  for (size_t i = 0; i + 1 < all.size(); ++i)
    if (!fs::exists(all[i] / "weft" / "state.json", ignored)) remove_folder(all[i], before);
}

bool stays_at_any_age(const KeptCheckpoints& kept, const fs::path& one) {
  return std::find(kept.whatever_age.begin(), kept.whatever_age.end(), one) != kept.whatever_age.end();
}

// Tries checkpoints from the newest on, in the order that the first rank sees; all ranks use its names.
class Search {
 public:
  Search(fs::path run, Communicator& ranks) : run_(std::move(run)), ranks_(ranks) {
    if (ranks.rank() == 0) left_ = checkpoint_folders(run_);
  }

  FoundCheckpoint find(CheckpointPart part, int num_threads) {
    while (const auto path = next()) {
      CheckOutcome checked = check_checkpoint(*path, part, ranks_, num_threads);
      if (checked.damage.empty() && checked.has_manifest && checked.step != step_of(*path))
        checked.damage = fmt::format("{}: was saved as that of step {}", path->string(), checked.step);
      if (checked.damage.empty()) return found(*path, checked.has_manifest);
      damaged_.push_back({*path, checked.damage});
    }
    refuse_if_none_is_whole();
    return {};
  }
  struct Damaged {
    fs::path path;
    std::string why;
  };
  const std::vector<Damaged>& damaged() const { return damaged_; }

 private:
  std::optional<fs::path> next() {
    const std::string name = first_text(ranks_, left_.empty() ? "" : left_.back().filename().string());
    if (name.empty()) return {};
    if (!left_.empty()) left_.pop_back();
    return folder_of(run_) / name;
  }

  FoundCheckpoint found(const fs::path& path, bool has_manifest) const {
    FoundCheckpoint result{.path = path, .notes = {}};
    for (const Damaged& one : damaged_)
      result.notes.push_back(fmt::format("WARNING: a damaged checkpoint is passed over, {} is taken: {}",
                                         path.filename().string(), one.why));
    if (!has_manifest)
      result.notes.push_back(
          fmt::format("note: {} is of format 1, without hashes: it cannot be checked for damage", path.string()));
    return result;
  }

  void refuse_if_none_is_whole() {
    std::string why, aside;
    for (const Damaged& one : damaged_) why += "\n  " + one.why;
    if (ranks_.rank() == 0)
      for (const auto& [step, path] : damaged_of(run_)) aside += path.filename().string() + " ";
    aside = first_text(ranks_, aside);
    if (!aside.empty()) why += "\n  set aside as damaged before: " + aside;
    if (!why.empty())
      throw NoCheckpointError(
          fmt::format("{}: none of its checkpoints is whole:{}\nNothing was changed. Restore one of them, or, to begin "
                      "again from the first step, move {} away",
                      run_.string(), why, folder_of(run_).string()));
  }

  const fs::path run_;
  Communicator& ranks_;
  std::vector<fs::path> left_;  // on the first rank
  std::vector<Damaged> damaged_;
};

}  // namespace

int64_t step_of(const fs::path& folder) { return step_in(folder.filename().string()); }

std::vector<fs::path> checkpoint_folders(const fs::path& run) {
  std::vector<fs::path> found;
  for (const fs::path& entry : entries_of(folder_of(run)))
    if (std::error_code ignored; step_of(entry) >= 0 && fs::is_directory(entry, ignored)) found.push_back(entry);
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) { return step_of(a) < step_of(b); });
  return found;
}

int64_t steps_of_newest(const fs::path& run) {
  const std::vector<fs::path> all = checkpoint_folders(run);
  return all.empty() ? 0 : step_of(all.back());
}

FoundCheckpoint find_checkpoint(const fs::path& run, CheckpointPart part, Communicator& ranks, int num_threads) {
  return Search(run, ranks).find(part, num_threads);
}

FoundCheckpoint find_checkpoint_to_resume(const fs::path& run, Communicator& ranks, int num_threads) {
  const bool leads = ranks.rank() == 0;
  if (leads) clean_up(run, {});
  Search search(run, ranks);
  FoundCheckpoint found = search.find(CheckpointPart::all, num_threads);
  if (!leads || !found.path) return found;
  std::error_code ignored;  // where it keeps its name, the save of that step takes its place
  for (const auto& [path, why] : search.damaged()) {
    const fs::path aside = path.string() + std::string(kDamaged);
    fs::remove_all(aside, ignored);
    fs::rename(path, aside, ignored);
    if (!ignored) found.notes.push_back(fmt::format("note: {} is {} now", path.string(), aside.filename().string()));
  }
  remove_halves(run, {});
  return found;
}

std::vector<fs::path> surplus_of(const std::vector<fs::path>& all, const KeptCheckpoints& kept) {
  if (kept.latest <= 0 || all.size() <= size_t(kept.latest)) return {};
  std::vector<fs::path> surplus(all.begin(), all.end() - std::ptrdiff_t(kept.latest));
  std::erase_if(surplus, [&](const fs::path& one) { return stays_at_any_age(kept, one); });
  return surplus;
}

void prune_checkpoints(const fs::path& run, const KeptCheckpoints& kept, const BeforeChange& before) {
  clean_up(run, before);
  remove_halves(run, before);
  const std::vector<fs::path> all = checkpoint_folders(run);
  for (const fs::path& path : surplus_of(all, kept)) remove_folder(path, before);
  for (const auto& [step, path] : damaged_of(run))
    if (!all.empty() && step <= step_of(all.back())) remove_folder(path, before);
}

namespace {

// What may be removed to free space, in this order; `newest` is the newest whole checkpoint.
std::vector<fs::path> may_go_of(const fs::path& run, const KeptCheckpoints& kept, const fs::path& newest) {
  std::vector<fs::path> go, older = checkpoint_folders(run);
  for (const auto& [step, path] : damaged_of(run)) go.push_back(path);
  const auto at = std::find(older.begin(), older.end(), newest);
  if (at == older.end()) return {};  // somebody has moved it away
  const auto damaged = at + 1;
  std::copy_if(damaged, older.end(), std::back_inserter(go),
               [&](const fs::path& one) { return !stays_at_any_age(kept, one); });
  older.erase(damaged, older.end());
  for (const fs::path& path : surplus_of(older, {.latest = 1, .whatever_age = kept.whatever_age})) go.push_back(path);
  return go;
}

bool is_short(const fs::path& run, int64_t bytes) { return free_bytes_at(run).value_or(bytes) < bytes; }

// Whether that makes room.
bool suffices(const fs::path& run, const std::vector<fs::path>& may_go, int64_t bytes) {
  for (const fs::path& path : may_go) bytes -= bytes_below(path);
  return !may_go.empty() && !is_short(run, bytes);
}

bool is_worth_a_check(const fs::path& run, const KeptCheckpoints& kept, int64_t bytes) {
  if (kept.latest == 0 || !is_short(run, bytes)) return false;
  const std::vector<fs::path> all = checkpoint_folders(run);
  return std::any_of(all.begin(), all.end(),
                     [&](const fs::path& newest) { return suffices(run, may_go_of(run, kept, newest), bytes); });
}

}  // namespace

std::vector<std::string> make_room(const fs::path& run, const KeptCheckpoints& kept, int64_t bytes, Communicator& ranks,
                                   int num_threads) {
  const bool leads = ranks.rank() == 0;
  bool check = false;
  agree(ranks, [&] {
    if (!leads) return;
    clean_up(run, {});
    for (const fs::path& path : surplus_of(checkpoint_folders(run), kept)) remove_folder(path);
    check = is_worth_a_check(run, kept, bytes);
  });
  if (first_text(ranks, check ? "check" : "").empty()) return {};
  FoundCheckpoint found = find_checkpoint(run, CheckpointPart::all, ranks, num_threads);
  agree(ranks, [&] {
    if (!leads) return;
    const std::vector<fs::path> may_go = may_go_of(run, kept, *found.path);
    if (!suffices(run, may_go, bytes)) return;
    for (const fs::path& path : may_go) {
      if (!is_short(run, bytes)) break;
      remove_folder(path);
      found.notes.push_back(fmt::format("removed {} first: the disk is short of room for another", path.string()));
    }
  });
  return leads ? found.notes : std::vector<std::string>();
}

std::vector<ScoredCheckpoint> best_checkpoints(const std::filesystem::path& run, int64_t most) {
  std::vector<ScoredCheckpoint> all;
  if (most == 0) return all;
  for (const auto& path : all_checkpoints(run)) {
    try {
      if (const auto held_out = read_progress(path).held_out) all.push_back({path, *held_out});
    } catch (const FileError&) {  // a damaged one is not the best
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.held_out.loss < b.held_out.loss; });
  if (int64_t(all.size()) > most) all.erase(all.begin() + std::ptrdiff_t(most), all.end());
  return all;
}

namespace {

// Where the newest checkpoint is of a step at which the run was stopped: the one to which a spike would take it back.
std::optional<fs::path> last_to_go_back_to(const Recipe& recipe) {
  if (recipe.train.on_spike != SpikeAction::rollback) return {};
  const std::vector<fs::path> all = checkpoint_folders(recipe.run.dir);
  const auto last =
      std::find_if(all.rbegin(), all.rend(), [&](const fs::path& one) { return is_regular(recipe, step_of(one)); });
  if (last == all.rend() || last == all.rbegin()) return {};
  return *last;
}

}  // namespace

bool is_regular(const Recipe& recipe, int64_t step) {
  const int64_t every = recipe.checkpoint.save_interval;
  return every > 0 && step > 0 && step % every == 0;
}

KeptCheckpoints kept_checkpoints(const Recipe& recipe) {
  KeptCheckpoints kept{.latest = recipe.checkpoint.keep_latest, .whatever_age = {}};
  for (const ScoredCheckpoint& best : best_checkpoints(recipe.run.dir, recipe.checkpoint.keep_best))
    kept.whatever_age.push_back(best.path);
  if (const auto back = last_to_go_back_to(recipe)) kept.whatever_age.push_back(*back);
  if (!has_phases(recipe)) return kept;
  for (const PhaseSpan& span : phase_spans(recipe))
    if (span.own_reference > 0) kept.whatever_age.emplace_back(span.recipe.objective.reference);
  for (const fs::path& last : last_of_dropped_heads(recipe)) kept.whatever_age.push_back(last);
  return kept;
}

}  // namespace weft
