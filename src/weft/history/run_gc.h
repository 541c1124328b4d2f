// What of runs can be deleted, and what stays because something depends on it.
#pragma once
#include <cstdint>
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

// Looks at the disk and changes nothing. `all` are all runs that are known: what another run reads stays, by whatever
// key of its recipe. So do the newest checkpoint that is whole, the best ones of checkpoint.keep_best, references of
// phases, and every run that is running, unreadable or away. Throws ConfigError where `whole` is asked for without
// runs.
GcPlan plan_gc(const std::vector<RunFacts>& all, const GcWish& wish);

struct GcResult {
  int64_t bytes = 0;                    // of what is gone
  size_t num_removed = 0;               // of the plan
  std::vector<std::string> notes = {};  // what is still there, and why
};
// Removes what `plan` says and what is still removable now that this process owns the run's folder, by a plan made
// anew. A folder loses its name before anything of it goes.
GcResult remove_planned(const GcPlan& plan, const std::vector<RunFacts>& all, const GcWish& wish);

}  // namespace weft
