#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/failure.h"
#include "weft/apps/file_modes.h"
#include "weft/apps/first_rank_says.h"
#include "weft/apps/hosts.h"
#include "weft/apps/islands.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher.h"
#include "weft/apps/ranks.h"
#include "weft/apps/run_page.h"
#include "weft/apps/run_queue.h"
#include "weft/apps/stop_signal.h"
#include "weft/apps/supervised_attempt.h"
#include "weft/base/error.h"
#include "weft/base/fault_point.h"
#include "weft/base/host_name.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/version.h"
#include "weft/history/attempt_file.h"
#include "weft/history/program_id.h"
#include "weft/models/hf_config.h"
#include "weft/plan/phase_plans.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/records/clock.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/room.h"
#include "weft/train/run_access.h"
#include "weft/train/run_data.h"
#include "weft/train/run_folder.h"
#include "weft/train/run_samples.h"
#include "weft/train/run_tasks.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/train_on_ranks.h"

namespace weft {
namespace {

constexpr int kHelpColumns = 110;

constexpr const char* kStopping = "\nstopping after this step, then saving; Ctrl-C again stops at once\n";

std::string layout_text(const Recipe& r) {
  const int world = mesh_sizes_of(r).world();
  if (world == 1) return "one rank";
  std::string axes;
  const auto& p = r.parallel;
  const std::pair<const char*, int64_t> sizes[] = {
      {"dp", p.dp}, {"cp", p.cp}, {"tp", p.tp}, {"pp", p.pp}, {"ep", p.ep}};
  for (const auto& [axis, size] : sizes)
    if (size > 1) axes += fmt::format("{}{} {}", axes.empty() ? "" : ", ", axis, size);
  if (p.dp * p.cp > 1 && p.zero_stage > 0) axes += fmt::format(", ZeRO stage {}", p.zero_stage);
  if (p.frozen_shard_size > 1) axes += fmt::format(", frozen models over {} of them", p.frozen_shard_size);
  if (p.frozen_ep > 1) axes += fmt::format(", experts of frozen models over {}", p.frozen_ep);
  if (const auto teacher = teacher_axes_of(r))
    axes += fmt::format("{}the teacher by tp {}, pp {}, cp {}, ep {}", axes.empty() ? "" : ", ", teacher->tp,
                        teacher->pp, teacher->cp, teacher->ep);
  return fmt::format("{} ranks as {}: {}", world,
                     r.run.ranks == RanksKind::mpi ? "processes (MPI)" : "threads of this process", axes);
}

std::string model_text(const Recipe& r, const Arithmetic& a) {
  const std::string model = fmt::format("{}, {} parameters", r.model.path, format_count(double(a.num_params)));
  if (a.num_trained == a.num_params || r.adapter.kind == AdapterKind::none) return model;
  return fmt::format("{}, of which {} learn", model, format_count(double(a.num_trained)));
}

const char* name_of_samples(const Recipe& r) {
  switch (r.train.objective) {
    case ObjectiveKind::cross_entropy:
    case ObjectiveKind::distill:
      return "sequences";
    case ObjectiveKind::dpo:
    case ObjectiveKind::reward:
      return "pairs";
    case ObjectiveKind::grpo:
    case ObjectiveKind::ppo:
      return "rollouts";
    case ObjectiveKind::kto:
      break;
  }
  return "examples";
}

std::string header(const Recipe& whole, const Machine& machine, const RunPlan& plan) {
  Recipe r = without_phases(whole);
  r.parallel = whole.parallel;
  r.run.ranks = whole.run.ranks;
  return format_header("weft train",
                       {{"model", model_text(r, plan.memory.arithmetic)},
                        {"machine", machine.description},
                        {"step", fmt::format("{} {} of {} tokens, {} at a time, {}{}", r.train.global_batch_size,
                                             name_of_samples(r), r.train.seq_length, r.train.micro_batch_size,
                                             r.train.precision, has_phases(whole) ? "; at first" : "")},
                        {"layout", layout_text(r)},
                        {"memory", format_bytes(double(plan.memory.total_bytes())) +
                                       (mesh_sizes_of(r).world() > 1 ? " on the largest rank" : "")},
                        {"run folder", r.run.dir}});
}

void say_notes(const Recipe& recipe, const RunPlan& plan) {
  for (const auto& warning : plan.config.warnings) std::cerr << "note: " << warning << "\n";
  if (plan.config.teacher)
    for (const auto& warning : plan.config.teacher->warnings) std::cerr << "note: of the teacher, " << warning << "\n";
  int64_t longest = 0;
  for (const PhaseSpan& span : phase_spans(recipe)) longest = std::max(longest, span.recipe.train.seq_length);
  if (plan.model.max_positions > 0 && longest > plan.model.max_positions)
    std::cerr << fmt::format("note: train.seq_length = {} is beyond the {} positions that the model was made for\n",
                             longest, plan.model.max_positions);
  // Allowed, as a recipe is tried with fewer ranks.
  const auto& p = recipe.parallel;
  const std::pair<const char*, int64_t> cuts[] = {{"parallel.tp", p.tp}, {"parallel.teacher_tp", p.teacher_tp}};
  for (const auto& [key, tp] : cuts)
    if (recipe.train.numerics == NumericsChoice::invariant && tp > 1)
      std::cerr << fmt::format(
          "note: train.numerics = \"invariant\" with {0} = {1}: the same bits for any dp, pp, schedule, ZeRO stage, "
          "recomputation and number of threads at {0} = {1}; another tp adds parts of its sums in another order, and "
          "so has other last bits\n",
          key, tp);
  if (p.zero_stage > 0 && p.dp * p.cp == 1)
    std::cerr << fmt::format("note: parallel.zero_stage = {} divides nothing at parallel.dp = 1\n", p.zero_stage);
  if (recipe.train.replay_interval > 0 && p.dp == 1)
    std::cerr << fmt::format(
        "note: train.replay_interval = {} replays nothing at parallel.dp = 1: there is no other rank to do it\n",
        recipe.train.replay_interval);
  if (p.pipeline_schedule != Recipe().parallel.pipeline_schedule && p.pp == 1)
    std::cerr << fmt::format("note: parallel.pipeline_schedule = \"{}\" orders nothing at parallel.pp = 1\n",
                             p.pipeline_schedule);
}

constexpr const char* kForce = ", --force starts all the same";

// If ranks are processes, the first one on each host checks for all ranks there.
void require_room_on_host(const Recipe& recipe, const Machine& machine, const LayoutPlan& layout,
                          const RankProcess& process) {
  if (!machine.device.empty()) return;  // the plan is of a device
  const bool are_processes = !process.here.empty();
  if (are_processes && process.rank != process.here.front()) return;
  require_host_room(recipe, layout, *machine.workspace_model,
                    are_processes ? RanksOnHost{process.here, true} : all_on_this_host(layout, false),
                    memory_of_this_host(), kForce);
}

// After a SIGKILL: if no person sent it, the kernel did, for lack of memory.
std::string about_kill(const HostNeed& need, std::optional<int64_t> kills_before) {
  const std::optional<int64_t> kills = kills_for_memory();
  std::string text = fmt::format("; the ranks were to take {} on this host (planned {})", gib_text(need.total()),
                                 gib_text(need.planned));
  if (const auto left = memory_left_here()) text += ", where " + left->what + " now";
  if (!kills || !kills_before) return text;
  return text +
         (*kills > *kills_before
              ? "; the kernel has killed for want of memory meanwhile: `weft plan` shows what takes it"
              : "; the kernel has not killed for want of memory, as far as it tells: somebody else sent the signal");
}

// judge_tokenizer over the data of all phases, whose ids must mean the same.
RunTokenizer judge_tokenizers(const Recipe& recipe, const RunPlan& plan, const RunData& rows) {
  const std::vector<PhaseSpan> spans = phase_spans(recipe);
  const auto reads_texts = [](const PhaseSpan& span) { return reads_tokens(span.recipe.train.objective); };
  const auto of_texts = std::find_if(spans.begin(), spans.end(), reads_texts);
  const PhaseSpan& begins = of_texts == spans.end() ? spans[0] : *of_texts;
  Recipe all = begins.recipe;
  auto& entries = all.data.train;
  for (const PhaseSpan& span : spans) {
    const std::vector<std::string>& here = span.recipe.data.train;
    if (here == begins.recipe.data.train || !reads_texts(span)) continue;
    const std::string first = text_tokenizer_of(begins.recipe), now = text_tokenizer_of(span.recipe);
    if (first != now && any_is_text(here))
      throw ConfigError(
          fmt::format("{}: its texts would be read with data.tokenizer = {}, and the first steps' with {}: say which",
                      to_string(span), in_quotes(now), in_quotes(first)));
    for (const std::string& entry : here)
      if (std::find(entries.begin(), entries.end(), entry) == entries.end()) entries.push_back(entry);
  }
  if (entries != begins.recipe.data.train) all.data.weights.assign(entries.size(), 1);
  return judge_tokenizer(all, plan.model.vocab_size, rows.row_templates);
}

// What a recipe's run is beside the recipe.
struct TrainedAs {
  RunData rows;  // its data, where they are rows
  IslandSetup islands;
};

// What the first rank judges, says and writes before the run begins.
RunLock begin_run(const Recipe& recipe, const Machine& machine, const std::vector<PlannedSpan>& phases,
                  const TrainedAs& as) {
  const std::vector<PlannedSpan> here = on_this_layout(phases, recipe);
  const RunPlan& plan = largest_of(here).layout->run;
  const RunData& rows = as.rows;
  const RunTokenizer tokenizer = judge_tokenizers(recipe, plan, rows);
  say_notes(recipe, plan);
  for (const std::string& note : machine.notes) std::cerr << "note: " << note << "\n";
  for (const std::string& warning : tokenizer.warnings) std::cerr << "warning: " << warning << "\n";
  if (!rows.warning.empty()) std::cerr << "warning: " << rows.warning << "\n";
  const std::string warning = judge_checkpoint_room(recipe, plan);
  if (!warning.empty() && recipe.train.epochs == 0)  // else Trainer says it, which knows how many steps there are
    std::cerr << "warning: " << warning << "\n";
  const std::string readers = warn_of_readers(recipe);  // of what is there now
  RunLock lock = claim_run_folder(recipe, as.islands.settings);
  if (!readers.empty()) std::cerr << "warning: " << readers << "\n";
  if (const auto failed = keep_tokenizer(tokenizer, recipe.run.dir)) std::cerr << "warning: " << *failed << "\n";
  std::cerr << header(recipe, machine, plan) << to_string(plan.memory) << to_string(plan.recompute)
            << (has_phases(recipe) ? to_string(phases) : "") << std::flush;
  return lock;
}

// A run that does not go on ends at once, without a word to its other ranks: they wait.
void end_hung(const RankProcess& process, const std::string& why) {
  let_the_first_rank_speak(process.rank);
  ::_exit(say_error(process.leads() ? "train" : fmt::format("train, rank {}", process.rank), why, kExitHang));
}

// How long a step may last at least. Under a supervisor this process speaks first; else a rank that merely stays away
// is named before, where ranks are processes.
double hang_s(const Recipe& recipe) {
  const std::optional<std::string> supervised = environment(kHangSeconds);
  return supervised ? 0.8 * std::atof(supervised->c_str()) : 1.5 * 60 * recipe.run.distributed_timeout_minutes;
}

// RUN/attempts.jsonl, by the first rank. A run does not depend on it: what cannot be written is told, and left out.
class AttemptRecord {
 public:
  AttemptRecord(const Recipe& recipe, const Machine& machine, const TrainOptions& options) : run_(recipe.run.dir) {
    std::error_code unknown;
    const std::filesystem::path from = options.from;
    write([&] {
      append_attempt(run_, {.began_s = wall_time_s(),
                            .weft = kVersion,
                            .program = id_of_this_program(),
                            .host = name_of_host(),
                            .machine = machine.description,
                            .folder = std::filesystem::current_path(unknown).string(),
                            .from = options.from.empty() ? "" : std::filesystem::absolute(from, unknown).string(),
                            .ranks = mesh_sizes_of(recipe).world(),
                            .launcher = recipe.run.ranks == RanksKind::mpi ? "processes" : "threads"});
    });
  }
  void end(int status, const std::string& reason = "") const {
    write([&] { append_attempt_end(run_, {.time_s = wall_time_s(), .status = status, .reason = reason}); });
  }

 private:
  static void write(const std::function<void()>& f) {
    try {
      f();
    } catch (const FileError& e) { std::cerr << "note: the run goes on without this record: " << e.what() << "\n"; }
  }
  std::filesystem::path run_;
};

// The ranks of this process, of which the first of all speaks and writes.
int train(const Recipe& recipe, const RankProcess& process, const TrainOptions& options, const TrainedAs& as) {
  const Machine machine = machine_for(recipe, int(process.here.size()));
  const std::vector<PlannedSpan> phases = plan_phases(recipe, *machine.workspace_model);
  for_each_plan(on_this_layout(phases, recipe), [&](const Recipe& of_steps, const LayoutPlan& layout) {
    if (process.here.empty()) require_room(machine, layout);
    if (!options.force) require_room_on_host(of_steps, machine, layout, process);
  });
  const auto on_each_rank = [&](const auto& f) {
    if (!options.from.empty()) process.run(mesh_sizes_of(recipe), *machine.mover, f);
  };
  on_each_rank([&](const ProcessMesh& mesh) {
    judge_chosen(recipe, options.from, *mesh.world, machine.of_rank(mesh.world->rank()).threads, as.islands.settings);
  });
  const bool drops = process.leads() && !options.from.empty() && !is_there(recipe.run.dir);
  std::optional<RunPage> page;
  if (process.leads()) page.emplace(recipe);
  std::optional<RunLock> lock;
  std::optional<AttemptRecord> record;
  try {
    if (process.leads()) lock.emplace(begin_run(recipe, machine, phases, as));
    on_each_rank([&](const ProcessMesh& mesh) { take_chosen(recipe, options.from, *mesh.world); });
    if (process.leads()) record.emplace(recipe, machine, options);
    listen_to_signals(kStopping);
    const bool finished = train_on_ranks(
        {.recipe = recipe,
         .machine = machine,
         .stop = stop_requested(),
         .run = process.run,
         .heartbeat = environment(kHeartbeatFile).value_or(""),
         .hang_s = hang_s(recipe),
         .hung =
             [&](const std::string& why) {
               if (record) record->end(kExitHang, why);
               end_hung(process, why);
             },
         .crashed = [](const std::string& why) { std::cerr << "weft train: " + why + "\n"
                                                           << std::flush; },
         .islands = as.islands.settings.are_joined() ? &as.islands : nullptr,
         .rows = &as.rows});
    const int status = finished ? kExitOk : status_of_stop();
    if (record) record->end(status);
    return status;
  } catch (...) {
    if (record) {
      const FailureTold failure = failure_told();
      record->end(failure.status, failure.message);
    }
    if (drops && lock) drop_run_folder(recipe);  // without its lock it is another process's
    throw;
  }
}

int train_as_rank(const Recipe& recipe, const TrainOptions& options, const TrainedAs& as) {
  const RankProcess process = join_mpi(mesh_sizes_of(recipe).world(), recipe.run, "train");
  return run_as_rank(process, "train", [&] { return train(recipe, process, options, as); });
}

// Those that the supervisor has chosen, or of the hostfile.
std::vector<Host> hosts_for(const Recipe& recipe, int world) {
  if (const auto told = environment(kHosts)) return hosts_of(*told);
  const std::string& file = recipe.fleet.hosts;
  if (file.empty()) return {};
  const std::vector<Host> all = this_host_first(available_in(file).hosts, file);
  if (slots_of(all) < world)
    throw ConfigError(
        fmt::format("fleet.hosts = \"{}\": {} slots, and the layout has {} ranks; the nearest that works: {}, "
                    "or more hosts, or `weft supervise` with fleet.min_ranks",
                    file, slots_of(all), world, fewer_ranks(recipe, slots_of(all))));
  return first_slots(all, world);
}

// What can be refused is refused before there is a process.
int start_ranks(const Recipe& recipe, const Launched& launched, const TrainOptions& options) {
  const Machine machine = machine_to_plan_for(recipe);
  const std::vector<PlannedSpan> phases = on_this_layout(plan_phases(recipe, *machine.workspace_model), recipe);
  const int world = mesh_sizes_of(recipe).world();
  ::setenv(kStepsDone, std::to_string(layout_from(recipe)).c_str(), 1);
  RanksJob job{.ranks = world,
               .command = this_command(),
               .launched = launched,
               .start_timeout_s = 60 * recipe.run.start_timeout_minutes,
               .hosts = hosts_for(recipe, world)};
  if (!launched.allocated && job.hosts.empty() &&
      recipe.run.backend != BackendKind::cuda) {  // all are on this host, and so is their memory
    const RanksOnHost here = all_on_this_host(*largest_of(phases).layout, true);
    for_each_plan(phases, [&](const Recipe& of_steps, const LayoutPlan& layout) {
      if (!options.force)
        require_host_room(of_steps, layout, *machine.workspace_model, here, memory_of_this_host(), kForce);
    });
    job.about_kill = [need = need_on_host(*largest_of(phases).layout, here), kills = kills_for_memory()] {
      return about_kill(need, kills);
    };
  }
  return run_ranks_by_mpirun(job);
}

void require_reference_folder(const PhaseSpan& span) {
  const std::string& folder = span.recipe.objective.reference;
  if (folder.empty() || span.own_reference > 0) return;
  require_no_run_folder(folder, "objective.reference");
  if (is_there(folder)) return;
  throw FileError(fmt::format("objective.reference = \"{}\" does not exist, seen from {}", folder,
                              std::filesystem::current_path().string()));
}

// That each phase has its data and what it learns from, before anything is made for the run. Returns the rows of the
// first steps, where they read some, with the chat templates of all rows.
RunData judge_data(const Recipe& recipe) {
  const std::vector<PhaseSpan> spans = phase_spans(recipe);
  RunData first;
  for (const PhaseSpan& span : spans)
    in_phase(span, spans.size() == 1, [&] {
      require_run_data(span.recipe);
      require_reference_folder(span);
      if (span.recipe.train.objective == ObjectiveKind::distill)
        prepare_run(span.recipe, 0);  // refuses a teacher that does not fit
    });
  for (const PhaseSpan& span : spans)
    in_phase(span, spans.size() == 1, [&] {
      RunData rows = judge_row_data(span.recipe);
      if (first.row_templates && rows.row_templates && *first.row_templates != *rows.row_templates)
        throw ConfigError(
            fmt::format("data.chat_template = {} is another template than earlier rows were rendered with, and "
                        "checkpoints have one; name the same in all phases",
                        in_quotes(span.recipe.data.chat_template)));
      if (&span == &spans[0])
        first = std::move(rows);
      else if (!first.row_templates)
        first.row_templates = rows.row_templates;
    });
  return first;
}

// As the recipe says by run.supervise.
int supervise_run(const TrainOptions& options) {
  if (!options.from.empty())
    throw ConfigError(
        "--from cannot run with run.supervise = true: an attempt that is killed while it makes the new folder must not "
        "be followed by one that begins anew; the nearest that works: run.supervise=false, for the first steps");
  return run_supervise({.recipe = options.recipe, .overrides = options.overrides, .force = options.force});
}

// Before anything is made: what islands cannot do is refused, and the secret is there.
IslandSetup island_setup(const TrainOptions& options, const Recipe& recipe, bool leads) {
  IslandSetup setup{.settings = parse_islands_file(options.recipe, options.overrides), .secret = ""};
  check_islands_supported(setup.settings, recipe);
  if (!setup.settings.are_joined()) return setup;
  OuterLayout(prepare_run(recipe, 0).model, setup.settings.fragments);
  if (leads) setup.secret = secret_of_islands(setup.settings);
  return setup;
}

// In the layout of the phase with which it goes on. Ranks that this program has started are told it.
Recipe read_recipe_to_go_on(const TrainOptions& options, const Launched& launched) {
  const Recipe recipe = read_recipe(options.recipe, options.overrides, launched.rank == 0);
  if (!has_layouts(recipe)) return recipe;
  if (const auto told = environment(kStepsDone)) return in_layout_at(recipe, std::atoll(told->c_str()));
  const std::filesystem::path from = options.from;
  if (!from.empty()) return in_layout_at(recipe, is_there(from / "weft" / "state.json") ? read_progress(from).step : 0);
  return in_layout_at(recipe, steps_of_newest(recipe.run.dir));
}

int train_launched(const TrainOptions& options, const Launched& launched) {
  const Recipe recipe = read_recipe_to_go_on(options, launched);
  const FileModes modes(recipe.run.is_private);
  if (!environment(kHeartbeatFile) && !environment(kHasLauncher)) {
    if (recipe.run.supervise) return supervise_run(options);
    check_queue_keys(recipe, /*is_supervised=*/false);
  }
  if (recipe.adapter.kind != AdapterKind::none && recipe.model.init == InitChoice::random)
    throw ConfigError(fmt::format(
        "model.init = \"random\" cannot run with adapter.kind = \"{}\": checkpoints would be of a base "
        "that is nowhere; the nearest that works: model.init = \"pretrained\", with model.path = a folder that has "
        "weights too (*.safetensors): a model that was fetched, or a checkpoint of a run without adapter",
        recipe.adapter.kind));
  if (recipe.data.train == std::vector<std::string>{"synthetic"})
    throw ConfigError(
        "data.train = [\"synthetic\"] is random tokens that `weft bench` makes, and `weft plan` takes for any; name "
        "text or token files to train on");
  if (recipe.run.page_port != 0 && !recipe.run.page)
    throw ConfigError(
        fmt::format("run.page_port = {} says where the page of run.page = true is served, and run.page is "
                    "false; the nearest that works: run.page=true",
                    recipe.run.page_port));
  check_supported(recipe);
  TrainedAs as{.rows = {}, .islands = island_setup(options, recipe, launched.rank == 0)};
  const int world = mesh_sizes_of(recipe).world();
  const auto fits = [&] { check_launch(recipe, world, launched); };
  if (const auto status = first_rank_says(launched, kExitWrongWorld, fits)) return *status;
  as.rows = judge_data(recipe);
  for (const auto& notes : {judge_run_tasks(recipe), judge_samples(recipe)})
    for (const std::string& note : notes)
      if (launched.rank == 0) std::cerr << note << "\n";
  if (recipe.run.ranks != RanksKind::mpi) return train(recipe, {}, options, as);
  check_mpi_is_built_in();
  if (!launched.by.empty()) {
    if (launched.rank != 0) be_silent_about_signals();
    listen_to_signals(kStopping);  // a SIGUSR1 must not end it
    return train_as_rank(recipe, options, as);
  }
  if (world == 1) return train(recipe, {}, options, as);
  as = {};  // each process reads its own
  return start_ranks(recipe, launched, options);
}

}  // namespace

int run_train(const TrainOptions& options) {
  if (options.help_recipe) {
    std::cout << recipe_reference(kHelpColumns);
    return kExitOk;
  }
  if (options.recipe.empty())
    throw ConfigError("a recipe is missing, as in `weft train recipe.toml`; `weft train --help` says more");
  plant_faults(environment(kFaults).value_or(""), environment(kAttempt).value_or("1"));
  const Launched launched = launched_as(environment);
  try {
    return train_launched(options, launched);
  } catch (const std::exception&) {
    let_the_first_rank_speak(launched.rank);
    throw;
  }
}

}  // namespace weft
