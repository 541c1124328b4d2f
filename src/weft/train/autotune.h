// train.autotune: a run finds some of its settings itself, in its first steps. docs/layouts.md
//   Every step trains: a trial is a span of the run (run_phases.h), which the next one follows with the weights where
//   they lie. What was chosen is in RUN/autotune.json, and a run that goes on in the same layout takes it from there.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/recipe/autotune_settings.h"
#include "weft/train/room.h"
#include "weft/train/train_on_ranks.h"

namespace weft {

struct TuningTrial {
  TunedSettings settings = {};
  int64_t first_step = 0;             // counted from 0
  std::optional<double> step_s = {};  // none: it cannot run, or does not fit
  bool operator==(const TuningTrial&) const = default;
};
struct TuningRecord {
  std::map<std::string, std::string> of = {};  // the recipe's settings that decide over it: recipe_to_tune
  TunedSettings chosen = {};
  std::vector<TuningTrial> trials = {};
  bool operator==(const TuningRecord&) const = default;
};
// Settings by key, as recipes write them: of its layout, batch, precision and backend.
std::map<std::string, std::string> recipe_to_tune(const Recipe& recipe);
nlohmann::json to_json(const TuningRecord& record);
// Throws FileError that begins with `source`.
TuningRecord tuning_record_of(const std::string& text, const std::string& source);

// The recipe of a run with what its folder says that it has chosen for this layout; as it is where it has not. Throws
// FileError where the file is damaged.
Recipe as_tuned(const Recipe& recipe, const std::filesystem::path& run);

// The seconds of a step of a trial, of those of its steps: their median behind the first kUnsettledSteps.
double settled_seconds(std::vector<double> steps_s);

// What memory there is before any rank has taken its own. For ranks that are processes: what the recipe's own plan
// takes, as nobody knows what the others leave.
class RoomToTune {
 public:
  explicit RoomToTune(const RanksSetup& setup);
  // Whether weft runs this recipe, and its plan fits. Plans it.
  bool fits(const Recipe& recipe) const;

 private:
  Machine machine_;  // with the free memory of now
  HostMemory host_;
  std::optional<int64_t> most_bytes_ = {};  // of a rank, where ranks are processes
};

// As Trainer::run of the whole run, whose recipe has train.autotune. `room` must have been made before any rank began.
RunEnd train_autotuned(const RanksSetup& setup, const RoomToTune& room, const ProcessMesh& mesh, RankSigns& signs);

}  // namespace weft
