// What of runs can be deleted, and what stays because something depends on it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/history/run_facts.h"

namespace weft {

struct GcWish {
  std::vector<std::string> runs = {};  // paths of run folders; none: all
  // Of finished runs, so many of the newest checkpoints stay, beside the one with the least held-out loss; none: as
  // each recipe says (checkpoint.keep_latest, where 0 keeps all).
  std::optional<int64_t> keep = {};
  bool whole = false;  // the whole folders of `runs`, which must be named
};

struct Removable {
  std::string run;   // whose folder it is in
  std::string path;  // a folder
  std::string why;   // it is not needed
  int64_t bytes = 0;
  bool operator==(const Removable&) const = default;
};
struct KeptBack {
  std::string path, why;
  bool operator==(const KeptBack&) const = default;
};
struct GcPlan {
  std::vector<Removable> removable = {};
  std::vector<KeptBack> kept = {};      // what would have been removable, but for what depends on it
  std::vector<std::string> notes = {};  // runs that are left alone, and why
  int64_t bytes() const;                // of all that is removable
};

// How closely the newest checkpoint of a run is looked at, for which older ones may go: names, sizes and small files;
// or every byte, which is read.
enum class GcLook : uint8_t { names_and_sizes, every_byte };

// Looks at the disk and changes nothing. `all` are all runs that are known, as they are now. What another run reads
// stays, by whatever key of its recipe; so does what it may read, where its input cannot be found and has the same
// names (Dependents). So do the newest checkpoint that is whole, the best ones of checkpoint.keep_best, references of
// phases, every run that is running, unreadable or away, or may run on another host, whatever holds a run's folder that
// does not go with it, and what lies elsewhere through a link. Throws ConfigError where `whole` is asked for without
// runs.
GcPlan plan_gc(const std::vector<RunFacts>& all, const GcWish& wish, GcLook look = GcLook::names_and_sizes);

struct GcResult {
  int64_t bytes = 0;                    // of what is gone
  size_t num_removed = 0;               // of the plan
  std::vector<std::string> notes = {};  // what is still there, and why
};
inline constexpr size_t kMostGcRuns = 200;  // from whose folders one call removes: it has their locks at once

// Removes what `plan` says and what is still removable by a plan made anew of `all_now` at every byte, when this
// process owns the folders of all runs of the plan; what is in a folder that it cannot own stays. A folder loses its
// name before anything of it goes.
GcResult remove_planned(const GcPlan& plan, const GcWish& wish, const std::function<std::vector<RunFacts>()>& all_now);

}  // namespace weft
