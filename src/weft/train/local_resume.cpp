#include "weft/train/local_resume.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "weft/base/durable_file.h"
#include "weft/checkpoint/checkpoint_check.h"  // sum_over
#include "weft/checkpoint/disk_space.h"
#include "weft/checkpoint/local_share.h"
#include "weft/comm/agree.h"
#include "weft/records/events.h"
#include "weft/train/local_copies.h"
#include "weft/train/run_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// None where they are not to be believed.
std::vector<LocalShareName> shares_in(const fs::path& life) {
  std::vector<LocalShareName> shares;
  if (!distrust_of(life).empty()) return {};
  std::error_code error;
  for (fs::directory_iterator at(life, error), end; !error && at != end; at.increment(error))
    if (const auto name = local_share_name_of(at->path().filename().string())) shares.push_back(*name);
  return shares;
}

// The step of the last local copy that the run's events tell of; -1: of none since it went back, or has passed that one
// over.
int64_t last_copied(const fs::path& run) {
  int64_t step = -1;
  std::ifstream file(run / "events.jsonl");
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"local_") == std::string::npos && line.find("rolled_back") == std::string::npos) continue;
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    const auto is = [&](const char* key, const char* value) { return event.contains(key) && event[key] == value; };
    if (is("action", "rolled_back")) step = -1;
    if (!event.contains("step") || !event["step"].is_number_integer()) continue;
    const auto of = event["step"].get<int64_t>();
    if (is("event", "local_saved")) step = of;
    if (is("event", "local_passed_over") && of == step) step = -1;
  }
  return step;
}

// Looks for copies on the hosts of all ranks, and makes checkpoints of them. All of it is collective.
class LocalResume {
 public:
  LocalResume(const Recipe& recipe, Communicator& ranks, int num_threads)
      : recipe_(recipe), run_(recipe.run.dir), ranks_(ranks), num_threads_(num_threads) {
    const std::string life = first_text(ranks_, leads() ? local_life_of(run_) : "");
    if (life.empty()) return;
    life_ =
        local_folder_of(recipe.checkpoint.local_dir, first_text(ranks_, leads() ? local_name_of_run(run_) : ""), life);
    list_copies();
  }

  // Tells where the last copy that was whole is newer than this step, and no host has anything of it.
  void tell_lost(int64_t step) {
    if (life_.empty()) return;
    double last = leads() ? double(last_copied(run_)) : 0;
    ranks_.all_reduce({&last, DType::f64, {1}}).wait();
    const auto lost = int64_t(last);
    if (lost <= step || (!copies_.empty() && copies_.back().step >= lost)) return;
    tell("local_passed_over", lost, "no host of this run has any of it",
         fmt::format("WARNING: the local copy of step {} is lost: no host of this run has any of it", lost));
  }

  // Makes the checkpoint of the newest whole copy that is newer than this step. None: there is no such copy.
  std::optional<fs::path> make_newer_than(int64_t step) {
    while (!copies_.empty() && copies_.back().step > step) {
      const Copy copy = std::move(copies_.back());
      copies_.pop_back();
      try {
        require_all_shares(copy);
        const fs::path made = make(copy);
        const auto num_lost =
            std::count_if(copy.seen_by.begin(), copy.seen_by.end(), [](const Seen& seen) { return seen.own.empty(); });
        tell("local_taken", copy.step, "",
             fmt::format("{} was made of the local copy of step {}, which {} ranks have written{}",
                         made.filename().string(), copy.step, copy.seen_by.size(),
                         num_lost == 0 ? "" : fmt::format("; the shares of {} of them are a neighbour's", num_lost)));
        return made;
      } catch (const UnwrittenError& e) {  // older steps are no stand-in for what is there, and whole for all we know
        throw FileError(fmt::format(
            "{}; so the local copy of step {}, the newest state of the run, cannot be made a checkpoint. It stays. "
            "Mend that (a checkpoint needs room), and the same command goes on from it; to go on from an older state, "
            "without it, remove {} on each host",
            e.what(), copy.step, life_.string()));
      } catch (const FileError& e) {
        tell("local_passed_over", copy.step, e.what(),
             fmt::format("WARNING: the local copy of step {} is passed over: {}", copy.step, e.what()));
      }
    }
    return {};
  }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // The ranks of now whose host has a share: as the rank that wrote it left it there, and as a neighbour's.
  struct Seen {
    std::vector<int> own, of_neighbour;
  };
  struct Copy {
    int64_t step = 0;
    std::vector<Seen> seen_by;  // of each rank that wrote it
  };
  enum class Which : uint8_t { own, of_neighbour };
  bool leads() const { return ranks_.rank() == 0; }

  // The same on all ranks.
  void list_copies() {
    std::string mine, distrust = distrust_of(life_);
    if (!distrust.empty()) distrust = fmt::format("on the host of rank {}, {}", ranks_.rank(), distrust);
    distrust = first_text(ranks_, distrust);
    if (!distrust.empty())
      tell("local_passed_over", -1, distrust, fmt::format("WARNING: local copies are passed over: {}", distrust));
    for (const LocalShareName& share : shares_in(life_)) mine += to_string(share) + "\n";
    std::map<std::pair<int64_t, int>, Copy> found;  // by step, and number of ranks that wrote it
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      std::istringstream lines(first_text(ranks_, ranks_.rank() == rank ? mine : ""));
      for (std::string line; std::getline(lines, line);) {
        const auto share = local_share_name_of(line);
        if (!share) continue;
        Copy& copy = found[{share->step, share->ranks}];
        copy.step = share->step;
        copy.seen_by.resize(size_t(share->ranks));
        Seen& seen = copy.seen_by[size_t(share->rank)];
        (share->of_neighbour ? seen.of_neighbour : seen.own).push_back(rank);
      }
    }
    for (auto& [key, copy] : found) copies_.push_back(std::move(copy));
  }

  static void require_all_shares(const Copy& copy) {
    constexpr size_t kNamed = 8;
    std::vector<size_t> missing;
    for (size_t rank = 0; rank < copy.seen_by.size(); ++rank)
      if (copy.seen_by[rank].own.empty() && copy.seen_by[rank].of_neighbour.empty()) missing.push_back(rank);
    if (missing.empty()) return;
    std::string names;
    for (size_t i = 0; i < std::min(kNamed, missing.size()); ++i)
      names += fmt::format("{}{}", i == 0 ? "" : ", ", missing[i]);
    throw FileError(fmt::format("{} ranks wrote it, and the shares of {} of them are on no host of this run: rank {}{}",
                                copy.seen_by.size(), missing.size(), names, missing.size() > kNamed ? ", ..." : ""));
  }

  fs::path share_of(const Copy& copy, size_t rank, Which which) const {
    return life_ / to_string(LocalShareName{.step = copy.step,
                                            .rank = int(rank),
                                            .ranks = int(copy.seen_by.size()),
                                            .of_neighbour = which == Which::of_neighbour});
  }
  // One of the ranks that see a share reads it; where several do, they share out the work.
  bool reads(const Copy& copy, size_t rank, Which which) const {
    const std::vector<int>& who = which == Which::own ? copy.seen_by[rank].own : copy.seen_by[rank].of_neighbour;
    return !who.empty() && who[rank % who.size()] == ranks_.rank();
  }
  static bool has_both(const Seen& seen) { return !seen.own.empty() && !seen.of_neighbour.empty(); }
  static Which first_of(const Seen& seen) { return seen.own.empty() ? Which::of_neighbour : Which::own; }

  // What comes from rank 0 beside its numbers is judged with the whole: where it is not good, a neighbour's is tried.
  fs::path make(const Copy& copy) {
    const Which first = first_of(copy.seen_by[0]);
    if (!has_both(copy.seen_by[0])) return make(copy, first);
    try {
      return make(copy, first);
    } catch (const UnwrittenError&) { throw; } catch (const FileError& e) {
      tell_of_neighbour(copy, e.what());
    }
    return make(copy, Which::of_neighbour);
  }

  void tell_of_neighbour(const Copy& copy, const std::string& why) {
    tell("local_neighbour", copy.step, why,
         fmt::format("WARNING: of the local copy of step {}, what another host holds is read instead: {}", copy.step,
                     why));
  }

  // Each share from where its rank left it, or else from a host that holds it too.
  void add_shares(const Copy& copy, const fs::path& here) {
    const size_t num_shares = copy.seen_by.size();
    std::vector<uint64_t> failed(num_shares);  // of those that another host holds
    std::string why;
    const auto add = [&](size_t rank, Which which, bool is_last) {
      if (!reads(copy, rank, which)) return;
      try {
        add_share_to(share_of(copy, rank, which), here);
      } catch (const UnwrittenError&) { throw; } catch (const FileError& e) {
        if (is_last) throw;
        failed[rank] = 1;
        why = e.what();
      }
    };
    agree_to_write([&] {
      for (size_t rank = 0; rank < num_shares; ++rank)
        add(rank, first_of(copy.seen_by[rank]), !has_both(copy.seen_by[rank]));
    });
    sum_over(ranks_, failed);
    if (const std::string text = first_text(ranks_, why); !text.empty()) tell_of_neighbour(copy, text);
    agree_to_write([&] {
      for (size_t rank = 0; rank < num_shares; ++rank)
        if (failed[rank] > 0) add(rank, Which::of_neighbour, true);
    });
  }

  fs::path make(const Copy& copy, Which files) {
    const fs::path to = run_ / "checkpoints" / fmt::format("step-{}", copy.step);
    const fs::path here = DurableFolder::building_name(to);
    std::unique_ptr<DurableFolder> folder;  // of the rank that leads
    lead_in_writing([&] {
      create_folders(to.parent_path());
      folder = std::make_unique<DurableFolder>(to);
    });
    agree_to_write([&] {
      if (reads(copy, 0, files)) begin_checkpoint_of(share_of(copy, 0, files), here);
    });
    add_shares(copy, here);
    drop_from_memory(here);
    const CheckOutcome checked = check_checkpoint(here, CheckpointPart::all, ranks_, num_threads_);
    if (!checked.damage.empty()) throw FileError(checked.damage);
    if (checked.step != copy.step) throw FileError(fmt::format("its manifest is that of step {}", checked.step));
    refuse_other_recipe(copy, here);
    lead_in_writing([&] { folder->commit(); });
    return to;
  }

  // As agree, and an UnwrittenError of one rank is one on all.
  void agree_to_write(const std::function<void()>& f) {
    std::string why;
    agree(ranks_, [&] {
      try {
        f();
      } catch (const UnwrittenError& e) { why = e.what(); }
    });
    why = first_text(ranks_, why);
    if (!why.empty()) throw UnwrittenError(why);
  }
  // The same, of what the rank that leads does and only writes.
  void lead_in_writing(const std::function<void()>& f) {
    agree_to_write([&] {
      try {
        if (leads()) f();
      } catch (const FileError& e) { throw UnwrittenError(e.what()); }
    });
  }

  void refuse_other_recipe(const Copy& copy, const fs::path& here) {
    std::string refusal;
    agree(ranks_, [&] {
      if (!leads()) return;
      try {
        refuse_another_recipe(recipe_, here / "weft" / "recipe.toml",
                              fmt::format("the local copy of step {} is of another recipe; to go on from an older "
                                          "checkpoint without it, remove {} on each host",
                                          copy.step, life_.string()),
                              copy.step, Islands());
      } catch (const ConfigError& e) { refusal = e.what(); }
    });
    refusal = first_text(ranks_, refusal);
    if (!refusal.empty()) throw ConfigError(refusal);
  }

  void tell(const std::string& event, int64_t step, const std::string& reason, std::string note) {
    notes_.push_back(std::move(note));
    if (!leads()) return;
    nlohmann::json more = nlohmann::json::object();
    if (step >= 0) more["step"] = step;
    if (!reason.empty()) more["reason"] = reason;
    try {
      append_event(run_, event, std::move(more));
    } catch (const FileError&) {  // the note says it
    }
  }

  const Recipe& recipe_;
  const fs::path run_;
  Communicator& ranks_;
  const int num_threads_;
  fs::path life_;
  std::vector<Copy> copies_;  // not tried yet, oldest first
  std::vector<std::string> notes_;
};

// What saves that were cut off have left is in the way of no copy, which needs its room.
void clean_up_for_copies(const fs::path& run) {
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator at(run / "checkpoints", error), end; !error && at != end; at.increment(error))
    if (step_of(at->path().stem()) >= 0) left.push_back(at->path());
  for (const fs::path& one : left) clean_left_behind(one);
}

// By its name: whether it is whole has not been seen. The same on all ranks; -1: there is none.
int64_t newest_named(const fs::path& run, Communicator& ranks) {
  double step = -1;
  if (ranks.rank() == 0)
    if (const auto all = checkpoint_folders(run); !all.empty()) step = double(step_of(all.back()));
  if (ranks.rank() != 0) step = 0;
  ranks.all_reduce({&step, DType::f64, {1}}).wait();
  return int64_t(step);
}

}  // namespace

FoundCheckpoint find_state_to_resume(const Recipe& recipe, Communicator& ranks, int num_threads) {
  const fs::path run = recipe.run.dir;
  if (recipe.checkpoint.local_dir.empty()) return find_checkpoint_to_resume(run, ranks, num_threads);
  if (ranks.rank() == 0) clean_up_for_copies(run);
  LocalResume local(recipe, ranks, num_threads);
  const int64_t newest = newest_named(run, ranks);
  local.tell_lost(newest);
  if (const auto made = local.make_newer_than(newest)) return {.path = made, .notes = local.notes()};
  FoundCheckpoint found;
  try {
    found = find_checkpoint_to_resume(run, ranks, num_threads);
    if (found.path && step_of(*found.path) < newest && local.make_newer_than(step_of(*found.path))) {
      std::vector<std::string> before = std::move(found.notes);
      found = find_checkpoint_to_resume(run, ranks, num_threads);
      found.notes.insert(found.notes.begin(), before.begin(), before.end());
    }
  } catch (const NoCheckpointError&) {
    if (!local.make_newer_than(-1)) throw;
    found = find_checkpoint_to_resume(run, ranks, num_threads);
  }
  found.notes.insert(found.notes.begin(), local.notes().begin(), local.notes().end());
  return found;
}

std::vector<LocalCopyHere> local_copies_here(const fs::path& run, const std::string& local_dir) {
  const std::string life = local_life_of(run);
  if (local_dir.empty() || life.empty()) return {};
  const fs::path folder = local_folder_of(local_dir, local_name_of_run(run), life);
  std::map<std::pair<int64_t, int>, LocalCopyHere> found;
  for (const LocalShareName& share : shares_in(folder)) {
    LocalCopyHere& copy = found[{share.step, share.ranks}];
    copy.step = share.step;
    copy.ranks = share.ranks;
    (share.of_neighbour ? copy.of_neighbours : copy.here).push_back(share.rank);
    copy.bytes += bytes_below(folder / to_string(share));
  }
  std::vector<LocalCopyHere> all;
  for (auto& [key, copy] : found) {
    for (std::vector<int>* ranks : {&copy.here, &copy.of_neighbours}) std::sort(ranks->begin(), ranks->end());
    all.push_back(std::move(copy));
  }
  return all;
}

}  // namespace weft
