#include "weft/train/autotune.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "weft/base/durable_file.h"
#include "weft/base/json.h"
#include "weft/comm/agree.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/local_resume.h"
#include "weft/train/rank_plan.h"
#include "weft/train/run_phases.h"
#include "weft/train/train_phases.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTuningFile = "autotune.json";
constexpr int64_t kTuningFormat = 1;
constexpr std::array kDecideToo{"train.seq_length",
                                "train.global_batch_size",
                                "train.micro_batch_size",
                                "train.precision",
                                "train.numerics",
                                "train.eval_iters",
                                "run.backend",
                                "run.threads"};

nlohmann::json json_of(const TunedSettings& s) {
  return {{"train.micro_batch_size", s.micro_batch_size},
          {"parallel.pipeline_schedule", name_of(s.pipeline_schedule)},
          {"parallel.cp_comm_type", name_of(s.cp_comm_type)}};
}

TunedSettings tuned_settings_in(const JsonFields& fields) {
  TunedSettings s{.micro_batch_size = fields.integer("train.micro_batch_size", {.min = 1, .max = 1 << 16})};
  const auto schedule = choice_named<ScheduleKind>(fields.string("parallel.pipeline_schedule"));
  if (!schedule) fields.fail("parallel.pipeline_schedule", "a schedule");
  const auto kind = choice_named<CpCommType>(fields.string("parallel.cp_comm_type"));
  if (!kind) fields.fail("parallel.cp_comm_type", "a kind of cp");
  s.pipeline_schedule = *schedule;
  s.cp_comm_type = *kind;
  return s;
}

// Throws FileError where a run of the recipe cannot have come to what its file says.
void require_choosable(const Recipe& recipe, const TuningRecord& record, const std::string& file) {
  if (!may_be_chosen(recipe, record.chosen) || !conflicts(with_settings(recipe, record.chosen)).empty())
    throw FileError(fmt::format("{}: chosen: {}, which no run of this recipe tries; remove the file, and it tries anew",
                                file, settings_text(record.chosen, recipe)));
}

// The first rank's number on all of them. Collective.
double number_of_first_rank(Communicator& world, double mine) {
  double sum = world.rank() == 0 ? mine : 0;
  world.all_reduce({&sum, DType::f64, {1}}).wait();
  return sum;
}

// What a run of this recipe has found before; none where it has found nothing, or in another layout. Collective.
std::optional<TuningRecord> wait_recorded(const Recipe& recipe, Communicator& world) {
  const fs::path file = fs::path(recipe.run.dir) / kTuningFile;
  std::ostringstream text;
  if (world.rank() == 0)
    if (std::ifstream in(file, std::ios::binary); in) text << in.rdbuf();
  const std::string all = first_text(world, text.str());
  if (all.empty()) return {};
  TuningRecord record = tuning_record_of(all, file.string());
  if (record.of != recipe_to_tune(recipe)) return {};
  require_choosable(recipe, record, file.string());
  return record;
}

// Steps of the run, by a recipe that differs from its own in nothing that decides over its data.
RunSpan span_of_steps(const Recipe& recipe, int64_t first_step, int64_t end_step) {
  RunSpan span = run_spans(recipe)[0];
  span.first_step = span.averaged_steps = first_step;
  span.end_step = end_step;
  span.samples = span.first_sample = first_step * recipe.train.global_batch_size;
  return span;
}

// The run on one rank, span after span.
class TunedRun {
 public:
  TunedRun(const RanksSetup& setup, const ProcessMesh& mesh, RankSigns& signs)
      : setup_(setup),
        mesh_(mesh),
        signs_(signs),
        machine_(setup.machine.of_rank(mesh.world->rank())),
        data_(open_rank_data(setup.recipe, prepare_run(setup.recipe, mesh.world->rank()).model, *mesh.world,
                             setup.terminal_fd)),
        references_(prepare_references(setup.recipe, data_, machine_, mesh, setup.terminal_fd)),
        found_(find_state_to_resume(setup.recipe, *mesh.world, machine_.threads)),
        step_(found_.path ? read_progress(*found_.path).step : 0) {}

  RunEnd train(const TunedSettings& settings, int64_t end_step) {
    const Recipe recipe = with_settings(setup_.recipe, settings);
    const RunSpan span = span_of_steps(recipe, std::min(step_, end_step), end_step);
    Trainer::Setup own = trainer_setup(setup_, mesh_, signs_);
    own.data = &data_;
    own.references = references_;
    own.phases = {.span = &span, .found = &found_, .carried = carried_ ? &*carried_ : nullptr};
    Trainer trainer(plan_of_rank(recipe, *setup_.machine.workspace_model, *mesh_.world), own);
    const RunEnd end = trainer.run();
    if (end == RunEnd::span_done) carried_.emplace(trainer.take_carried());
    step_ = end_step;
    return end;
  }

  // For the user, when the run begins.
  void note(std::string text) { found_.notes.push_back(std::move(text)); }
  int64_t step() const { return step_; }
  // Of the span that is done; the first rank has its records.
  const CarriedRun& carried() const { return *carried_; }

 private:
  const RanksSetup& setup_;
  const ProcessMesh& mesh_;
  RankSigns& signs_;
  const Machine& machine_;
  const RunData data_;
  const RunReferences references_;
  FoundCheckpoint found_;
  int64_t step_;  // that are done
  std::optional<CarriedRun> carried_ = {};
};

std::string text_of(const TuningRecord& record, const Recipe& recipe) {
  std::string text = fmt::format("train.autotune: {}", settings_text(record.chosen, recipe));
  for (const TuningTrial& t : record.trials)
    text += fmt::format("{}{}: {}", &t == &record.trials[0] ? "; of " : ", ", settings_text(t.settings, recipe),
                        t.step_s ? fmt::format("{:.4g} s a step", *t.step_s) : "does not fit or cannot run");
  return text;
}

void write_record(const TuningRecord& record, const Recipe& recipe, RunRecords& records) {
  records.attempt(kTuningFile,
                  [&] { write_file_durably(fs::path(recipe.run.dir) / kTuningFile, to_json(record).dump(1) + "\n"); });
  nlohmann::json trials = to_json(record)["trials"];
  records.event("autotuned", {{"chosen", json_of(record.chosen)}, {"trials", std::move(trials)}});
  records.note(text_of(record, recipe));
}

}  // namespace

std::map<std::string, std::string> recipe_to_tune(const Recipe& recipe) {
  Recipe copy = recipe;
  std::map<std::string, std::string> settings;
  for (const RecipeKey& key : recipe_keys(copy))
    if (key.section() == "parallel" || std::find(kDecideToo.begin(), kDecideToo.end(), key.name) != kDecideToo.end())
      settings[key.name] = value_of(key);
  return settings;
}

nlohmann::json to_json(const TuningRecord& r) {
  nlohmann::json json{
      {"format", kTuningFormat}, {"of", r.of}, {"chosen", json_of(r.chosen)}, {"trials", nlohmann::json::array()}};
  for (const TuningTrial& t : r.trials) {
    nlohmann::json one{{"settings", json_of(t.settings)}, {"first_step", t.first_step}};
    if (t.step_s) one["step_s"] = *t.step_s;
    json["trials"].push_back(std::move(one));
  }
  return json;
}

TuningRecord tuning_record_of(const std::string& text, const std::string& source) {
  const nlohmann::json json = parse_json(text, source);
  const JsonFields fields(json, source);
  fields.integer("format", {.min = kTuningFormat, .max = kTuningFormat});
  TuningRecord record{.of = {}, .chosen = tuned_settings_in(fields.object("chosen"))};
  const JsonFields of = fields.object("of");
  for (const auto& [key, value] : of.json().items()) record.of[key] = of.string(key);
  for (const nlohmann::json& one : fields.list("trials", "a list of trials")) {
    const JsonFields trial(one, source, "trials.");
    TuningTrial t{.settings = tuned_settings_in(trial.object("settings")),
                  .first_step = trial.integer("first_step", {.min = 0})};
    if (trial.has("step_s")) t.step_s = trial.number("step_s", {});
    record.trials.push_back(t);
  }
  return record;
}

Recipe as_tuned(const Recipe& recipe, const fs::path& run) {
  std::ostringstream text;
  if (std::ifstream in(run / kTuningFile, std::ios::binary); recipe.train.autotune && in) text << in.rdbuf();
  if (text.str().empty()) return recipe;
  const TuningRecord record = tuning_record_of(text.str(), (run / kTuningFile).string());
  if (record.of != recipe_to_tune(recipe)) return recipe;
  require_choosable(recipe, record, (run / kTuningFile).string());
  return with_settings(recipe, record.chosen);
}

double settled_seconds(std::vector<double> steps_s) {
  WEFT_CHECK(int64_t(steps_s.size()) > kUnsettledSteps, "a trial of {} steps", steps_s.size());
  const auto first = steps_s.begin() + kUnsettledSteps;
  const auto middle = first + (steps_s.end() - first) / 2;
  std::nth_element(first, middle, steps_s.end());
  return *middle;
}

RoomToTune::RoomToTune(const RanksSetup& setup) : machine_(setup.machine), host_(memory_of_this_host()) {
  const auto as_now = [](Machine& m) {
    if (m.free_bytes) m.free_bytes = [free = m.free_bytes()] { return free; };
  };
  as_now(machine_);
  for (Machine& device : machine_.devices) as_now(device);
  if (setup.recipe.run.ranks == RanksKind::mpi && mesh_sizes_of(setup.recipe).world() > 1)
    most_bytes_ = plan_layout(setup.recipe, *machine_.workspace_model).classes[0].plan.total_bytes();
}

bool RoomToTune::fits(const Recipe& recipe) const {
  try {
    if (!conflicts(recipe).empty()) return false;
    check_supported(recipe);
    const LayoutPlan plan = plan_layout(recipe, *machine_.workspace_model);
    if (most_bytes_) return plan.classes[0].plan.total_bytes() <= *most_bytes_;
    require_room(machine_, plan);
    if (!machine_.device.empty()) return true;
    const HostNeed need = need_on_host(plan, all_on_this_host(plan, false));
    return (!host_.all || need.total() <= host_.all->bytes) && (!host_.each || need.largest <= host_.each->bytes);
  } catch (const ConfigError&) {
  } catch (const PlacementError&) {}
  return false;
}

namespace {

// Whether there is room for them, as the first rank sees it: the recipe's own were planned before the run began.
// Collective.
bool fit(const TunedSettings& settings, const Recipe& recipe, const RoomToTune& room, Communicator& world) {
  const bool asks = world.rank() == 0 && settings != tuned_settings_of(recipe);
  return number_of_first_rank(world, !asks || room.fits(with_settings(recipe, settings)) ? 1 : 0) > 0;
}

}  // namespace

RunEnd train_autotuned(const RanksSetup& setup, const RoomToTune& room, const ProcessMesh& mesh, RankSigns& signs) {
  const Recipe& recipe = setup.recipe;
  Communicator& world = *mesh.world;
  const auto recorded = wait_recorded(recipe, world);
  TunedRun run(setup, mesh, signs);
  if (recorded && fit(recorded->chosen, recipe, room, world))
    return run.train(recorded->chosen, recipe.train.train_iters);
  if (recorded)
    run.note(
        fmt::format("train.autotune: what {} says was chosen, {}, does not fit into memory now; the run goes on "
                    "as the recipe says",
                    kTuningFile, settings_text(recorded->chosen, recipe)));
  // Without trials, too, in a layout of a fleet that leaves nothing to try.
  if (recorded || settings_to_tune(recipe).empty())
    return run.train(tuned_settings_of(recipe), recipe.train.train_iters);
  TuningRecord record{.of = recipe_to_tune(recipe)};
  Tuner tuner(recipe);
  while (const auto trial = tuner.next()) {
    if (run.step() + kStepsOfTrial >= recipe.train.train_iters) break;
    record.trials.push_back({.settings = *trial, .first_step = run.step()});
    if (fit(*trial, recipe, room, world)) {
      const RunEnd end = run.train(*trial, run.step() + kStepsOfTrial);
      if (end != RunEnd::span_done) return end;
      record.trials.back().step_s = number_of_first_rank(world, settled_seconds(run.carried().steps_s));
    }
    tuner.tell(*trial, record.trials.back().step_s);
  }
  record.chosen = tuner.best();
  const bool tried = record.trials.size() > 1;  // else the run is nearly over, and nothing was found
  if (tried && world.rank() == 0) write_record(record, recipe, *run.carried().records);
  return run.train(record.chosen, recipe.train.train_iters);
}

}  // namespace weft
