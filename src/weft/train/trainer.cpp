#include "weft/train/trainer.h"

#include <stdio.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "weft/base/durable_file.h"
#include "weft/base/fault_point.h"
#include "weft/base/json.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/comm/agree.h"
#include "weft/models/fingerprint.h"
#include "weft/models/hf_names.h"
#include "weft/records/clock.h"
#include "weft/schedule/shares.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/evaluate.h"
#include "weft/train/first_weights.h"
#include "weft/train/local_resume.h"
#include "weft/train/objectives.h"
#include "weft/train/phase_heads.h"
#include "weft/train/room.h"
#include "weft/train/run_folder.h"
#include "weft/train/run_length.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/trained_context.h"

namespace weft {
namespace {

// Whether the frozen models of two spans are the same.
bool same_frozen(const Recipe& a, const Recipe& b) {
  return a.train.objective == b.train.objective && a.objective.reference == b.objective.reference &&
         a.objective.teacher == b.objective.teacher &&
         a.objective.precompute_ref_log_probs == b.objective.precompute_ref_log_probs;
}

// Of each rank, its stage.
std::vector<int> stages_of(const MeshSizes& sizes) {
  std::vector<int> stages;
  for (int r = 0; r < sizes.world(); ++r) stages.push_back(place_of(sizes, r).pp);
  return stages;
}

// Likewise, how many micro-batches it has; none where all have as many.
std::vector<double> micro_batches_of_ranks(const StepSpec& step) {
  std::vector<double> work;
  for (int r = 0; r < step.mesh.world() && !step.order.unequal.empty(); ++r)
    work.push_back(double(step.order.unequal[size_t(place_of(step.mesh, r).dp)]));
  return work;
}

// [rank of dp] micro-batches of a step.
std::vector<int64_t> shares_of(const StepSpec& step) {
  if (!step.order.unequal.empty()) return step.order.unequal;
  return std::vector<int64_t>(size_t(step.mesh.dp), step.order.num_micro_batches);
}

// None where they stay: they are judged by times that hosts see.
std::optional<ShareBalance> balance_of(const Recipe& recipe, const StepSpec& step, const Machine& machine) {
  if (!recipe.train.rebalance || step.mesh.dp == 1 || machine.late) return {};
  return ShareBalance(shares_of(step));
}

// The same machine, whose rank's calls are counted whichever way its tensors go.
Machine counting(Machine machine, SentBytes& sent) {
  machine.join = [join = std::move(machine.join), &sent](const ProcessMesh& host) { return sent.counted(join(host)); };
  return machine;
}

// None: they lie otherwise.
std::optional<KeptArenas> arenas_for(const Recipe& recipe, CarriedRun* carried) {
  if (carried == nullptr) return {};
  if (changes_heads(carried->recipe, recipe)) carried->arenas.reset();
  if (carried->arenas && !same_frozen(carried->recipe, recipe)) carried->arenas->frozen.reset();
  return std::exchange(carried->arenas, std::nullopt);
}

}  // namespace

Trainer::Trainer(RunPlan plan, const Setup& setup)
    : whole_(setup.recipe),
      recipe_(setup.phases.span ? setup.phases.span->recipe : setup.recipe),
      span_(setup.phases.span ? std::optional(*setup.phases.span) : std::nullopt),
      keeps_end_(setup.phases.keeps_end),
      ends_layout_(setup.phases.ends_layout),
      islands_(setup.islands != nullptr ? setup.islands->settings : Islands()),
      machine_(counting(setup.machine, sent_)),
      stop_(setup.stop),
      signs_(setup.signs),
      stragglers_(stages_of(setup.mesh.sizes), micro_batches_of_ranks(plan.step)),
      balance_(balance_of(recipe_, plan.step, machine_)),
      most_bytes_(plan.memory.total_bytes()),
      rank_(std::move(plan), machine_, machine_.late ? setup.mesh : timed(setup.mesh, waits_, {.now_s = now_s}),
            arenas_for(recipe_, setup.phases.carried)),
      data_(setup.data != nullptr && setup.data->train
                ? *setup.data
                : open_rank_data(recipe_, rank_.plan.model, *rank_.mesh.world, setup.terminal_fd)),
      tasks_(recipe_, rank_.plan.model),
      samples_(recipe_, rank_.plan.model),
      batches_(*data_.train, {.seq_length = recipe_.train.seq_length,
                              .micro_batch_size = rank_.plan.step.micro_batch_size,
                              .order = rank_.plan.step.order,
                              .first_step = batch_place().first_batch,
                              .first_sample = batch_place().first_sample,
                              .documents_alike = recipe_.train.loss_average == LossAverage::document}),
      references_(setup.references),
      reference_(stored_reference_of(references_.train, *data_.train, batches_, rank_.plan.step)),
      objective_(objective_of(recipe_, *data_.train, batch_place())),
      loss_scale_(rank_.plan.loss_scale),
      spikes_{.rule = spike_rule_of(recipe_)},
      step_run_({.recipe = recipe_,
                 .rank = rank_,
                 .batches = batches_,
                 .loss_scale = loss_scale_,
                 .objective = *objective_,
                 .lr_first_step = span_ ? span_->lr_first_step : 0,
                 .reference = reference_ ? &*reference_ : nullptr,
                 .first_step = span_ ? span_->first_step : 0,
                 .older = span_ ? span_->averaged_steps - span_->first_step : 0,
                 .spikes = &spikes_}),
      context_(context_of(with_longest_samples(), rank_.plan.config)) {
  if (rank_.plan.step.writes > 0) writer_.emplace(rank_, machine_.memory);
  if (span_) mark_late_heads(*span_, rank_.state.params);
  if (setup.phases.carried != nullptr)
    take(*setup.phases.carried);
  else
    begin(setup);
  begin_replays();
  if (leads()) write_data_file();
}

void Trainer::begin(const Setup& setup) {
  try {
    settle_length();
    const FoundCheckpoint found = setup.phases.found != nullptr
                                      ? *setup.phases.found
                                      : find_state_to_resume(recipe_, *rank_.mesh.world, machine_.threads);
    start_weights(found);
    begin_local_copies();
    if (setup.islands != nullptr) join_islands(*setup.islands, found.path);
  } catch (const Error&) {  // what was found damaged, and set aside, is told all the same
    for (const std::string& note : notes_)
      if (leads()) ::dprintf(setup.terminal_fd, "%s\n", note.c_str());
    throw;
  }
  barrier(*rank_.mesh.world);  // so that all measure what they get beside the others
  matmul_rate_ = MatmulRate(
      [measure = machine_.measure_matmul_rate, dtype = rank_.plan.step.precision.compute] { return measure(dtype); },
      !machine_.late);
  if (leads()) open_records(setup);
}

void Trainer::open_records(const Setup& setup) {
  records_ = std::make_unique<RunRecords>(RunRecords::Spec{.run = recipe_.run.dir,
                                                           .first_step = step_,
                                                           .total_steps = recipe_.train.train_iters,
                                                           .log_interval = recipe_.train.log_interval,
                                                           .terminal_fd = setup.terminal_fd,
                                                           .heartbeat = setup.heartbeat});
  for (const std::string& note : notes_) records_->note(note);
}

// The training files of these steps.
void Trainer::write_data_file() {
  const nlohmann::json data{
      {"format", 1}, {"order", data_.train->order_fingerprint()}, {"train", to_json(data_.sources)}};
  records_->attempt("data.json", [&] {
    write_file_durably(std::filesystem::path(recipe_.run.dir) / "data.json", data.dump(1) + "\n");
  });
}

void Trainer::take(CarriedRun& carried) {
  follows_ = true;
  step_ = carried.step;
  saved_step_ = carried.saved_step;
  evaluated_step_ = carried.evaluated_step;
  held_out_ = carried.held_out;
  results_ = std::move(carried.results);
  loss_scale_.state = carried.loss_scale;
  take_spikes(std::move(carried.spikes));
  weight_rule_ = std::move(carried.weight_rule);
  gradient_rule_ = std::move(carried.gradient_rule);
  adapter_changed_ = carried.adapter_changed;
  base_ = std::move(carried.base);
  teacher_ = std::move(carried.teacher);
  reference_weights_ = std::move(carried.reference);
  matmul_rate_ = std::move(carried.matmul_rate);
  records_ = std::move(carried.records);
  local_ = std::move(carried.local);
  if (!span_) {
    stragglers_ = std::move(carried.stragglers);
    stragglers_.set_work(micro_batches_of_ranks(rank_.plan.step));
    most_bytes_ = carried.most_bytes;
  }
  if (changes_heads(carried.recipe, recipe_)) {
    const auto behind = std::filesystem::path(recipe_.run.dir) / "checkpoints" / fmt::format("step-{}", step_);
    for (const std::string& note : begin_other_heads(recipe_, {behind, carried.model}, rank_, machine_.threads))
      notes_.push_back(fmt::format("step {}: {}", step_, note));
  }
  if (!same_frozen(carried.recipe, recipe_)) {
    read_fingerprints();
    for (std::string& note : start_frozen(recipe_, rank_, machine_.threads)) notes_.push_back(std::move(note));
  }
  if (!leads()) return;
  for (const std::string& note : notes_) records_->note(note);
  if (!span_)
    return records_->note(fmt::format("step {}: goes on with parallel.micro_batches = {}", step_,
                                      text_of_shares(shares_of(rank_.plan.step))));
  if (!has_phases(whole_)) return;  // spans of train.autotune
  records_->note(fmt::format("step {}: {}", step_, to_string(*span_)));
  if (span_->first_sample == 0) records_->note(epochs_note(*data_.train, samples_of_mix(whole_, span_->mix)));
}

CarriedRun Trainer::take_carried() {
  Recipe recipe = recipe_;
  if (!shares_.empty()) recipe.parallel.micro_batches = shares_;
  return {.arenas = rank_.take_kept(),
          .step = step_,
          .saved_step = saved_step_,
          .evaluated_step = evaluated_step_,
          .held_out = held_out_,
          .results = std::move(results_),
          .loss_scale = loss_scale_.state,
          .spikes = spikes_.state,
          .weight_rule = std::move(weight_rule_),
          .gradient_rule = std::move(gradient_rule_),
          .adapter_changed = adapter_changed_,
          .base = std::move(base_),
          .teacher = std::move(teacher_),
          .reference = std::move(reference_weights_),
          .matmul_rate = std::move(matmul_rate_),
          .records = std::move(records_),
          .local = std::move(local_),
          .recipe = std::move(recipe),
          .model = rank_.plan.model,
          .steps_s = std::move(steps_s_),
          .stragglers = stragglers_,
          .most_bytes = most_bytes_};
}

// Epochs become steps. Every rank finds the same.
void Trainer::settle_length() {
  const double epochs = recipe_.train.epochs;
  recipe_ = with_known_length(std::move(recipe_), *data_.train);
  if (epochs > 0) notes_.push_back(fmt::format("train.epochs = {}: {} steps", epochs, recipe_.train.train_iters));
  if (!span_) whole_ = recipe_;
  notes_.push_back(span_                   ? epochs_note(*data_.train, samples_of_mix(whole_, span_->mix))
                   : islands_.are_joined() ? epochs_note(*data_.train, samples_at(recipe_.train.train_iters))
                                           : epochs_note(recipe_, *data_.train));
  if (std::string warning = short_for_spikes_note(whole_); !warning.empty()) notes_.push_back(std::move(warning));
  if (!leads() || epochs == 0) return;
  write_run_recipe(whole_, islands_);
  if (const std::string warning = judge_checkpoint_room(recipe_, rank_.plan); !warning.empty())
    notes_.push_back("warning: " + warning);
}

// Whether it is so on any rank; the same answer on all of them. Collective.
bool Trainer::any_rank(bool mine, Site site) const {
  double sum = mine ? 1 : 0;
  rank_.mesh.world->all_reduce({&sum, DType::f64, {1}}, site).wait();
  return sum > 0;
}

// Ranks see a signal at different times; all stop when one has.
bool Trainer::stopped() const { return any_rank(stop_); }

void Trainer::tell_of_rate() {
  if (const std::string note = matmul_rate_.take_note(); leads() && !note.empty()) records_->note("note: " + note);
}

RunEnd Trainer::run() {
  const double began = now_s();
  if (evaluation_due() && evaluated_step_ != step_) {  // a stop came before it
    evaluate();
    if (is_among_best()) {  // the checkpoint that is there does not say how good it is; it stays where no better comes
      const int64_t saved = std::exchange(saved_step_, -1);
      save(false);
      saved_step_ = std::max(saved_step_, saved);
    }
  }
  if (tasks_due() && (!results_ || results_->step != step_)) score_tasks();
  // Not between two spans, where the one before has asked: a checkpoint of a step is of the span that trained it.
  for (bool asks = !follows_; step_ < end_step() && !(asks && wait_asked_to_stop()); asks = true) {
    std::optional<StepRecord> record = step_once();
    if (!record) continue;
    tell_sent(*record);
    watch_stragglers(record->step_time_s);  // before ranks wait for what other islands send
    exchange(*record);
    if (whole_.train.autotune) steps_s_.push_back(record->step_time_s);
    if (leads()) records_->step(*record);
    tell_of_rate();
    if (due(recipe_.train.check_replicas_interval)) wait_check_replicas();
    if (saving_) add_time(save_s_, [&] { go_on_saving(SaveWait::no); });
    if (local_ && local_->is_writing()) add_time(save_s_, [&] { go_on_copying(SaveWait::no); });
    if (evaluation_due()) add_time(eval_s_, [&] { evaluate(); });
    if (tasks_due()) add_time(eval_s_, [&] { score_tasks(); });
    if (samples_due()) add_time(eval_s_, [&] { write_samples(); });
    if (saving_ && recipe_.checkpoint.keep_best > 0)  // how good it is counts
      add_time(save_s_, [&] { go_on_saving(SaveWait::yes); });
    if (due(recipe_.checkpoint.save_interval) || is_among_best())
      add_time(save_s_, [&] { save(false); });
    else if (due(recipe_.checkpoint.local_interval))
      add_time(save_s_, [&] { copy_locally(); });
    if (!shares_.empty()) break;
  }
  go_on_saving(SaveWait::yes);
  go_on_copying(SaveWait::yes);
  if (!shares_.empty() && step_ < end_step() && !stopped()) {
    enter(RunSection::setup);
    return RunEnd::rebalanced;
  }
  const bool goes_on = step_ == end_step() && step_ < recipe_.train.train_iters && !stopped();
  if (goes_on) require_results();
  if (goes_on && !ends_layout_) {
    if (keeps_end_) save(true);
    enter(RunSection::setup);
    return RunEnd::span_done;
  }
  try {
    save(true);
  } catch (const NotSavedError&) {
    if (leads()) records_->finish(recipe_.run.dir);
    throw;
  }
  end_local_copies();
  matmul_rate_.check_at_end(now_s() - began);
  tell_of_rate();
  if (leads()) {
    records_->finish(recipe_.run.dir);
    if (goes_on)
      records_->note(
          fmt::format("step {}: the next phase has another layout; the same command goes on with it", step_));
    for (const auto& best : best_checkpoints(recipe_.run.dir, recipe_.checkpoint.keep_best > 0 ? 1 : 0))
      records_->note(fmt::format("best held-out loss: {:.4f}, of {}", best.held_out.loss, best.path.string()));
  }
  if (step_ < recipe_.train.train_iters) return RunEnd::stopped;
  if (island_) island_->member().end();
  enter(RunSection::finished);
  return RunEnd::finished;
}

// Tells whoever watches over the run, and is where tests make it fail.
void Trainer::enter(RunSection section) {
  if (leads()) records_->beat(section, step_);
  if (signs_ != nullptr) signs_->enter(section, step_);
  fault_point(name_of(section), rank_.mesh.world->rank(), step_);
}

std::optional<StepRecord> Trainer::step_once() {
  enter(RunSection::step);
  const double began = now_s();
  for (auto& [axis, time] : waits_) time = {};
  sent_.clear();
  const int64_t batch = batch_at(step_);
  TrainingStep::Watch watch = wait_watch_of(batch);
  std::optional<StepTrace> trace;
  if (traces()) trace.emplace(rank_).wait_begin(watch);
  TrainingStep::Result result = step_run_.run(step_, batch, watch);
  if (result.outcome == TrainingStep::Outcome::stuck) result = run_again(result, watch);
  if (trace) trace->end();
  if (leads()) note_oddities(result);
  if (result.outcome == TrainingStep::Outcome::spike && heed_spike(result) == AfterSpike::went_back) return {};
  if (result.outcome == TrainingStep::Outcome::updated && spikes_.rule && result.targets > 0)
    spikes_.rule->add(spikes_.state, result.loss, result.grad_norm);
  if (result.outcome == TrainingStep::Outcome::updated && result.lr > 0 && result.grad_norm > 0)
    adapter_changed_ = true;
  ++step_;
  if (watch.measures_weights && result.outcome == TrainingStep::Outcome::updated) log_weight_norms(result);
  island_tokens_ += rank_.plan.step.global_tokens();
  drag_if_planted(rank_.mesh.world->rank(), now_s() - began - waited_s());
  StepRecord record = record_of(result, batch, now_s() - began);
  if (trace)
    if (const std::string text = trace->wait_gather(step_); leads()) replace_record("trace.json", text);
  return record;
}

// Of the step that is just done.
StepRecord Trainer::record_of(const TrainingStep::Result& result, int64_t batch, double took) {
  const auto tokens = double(rank_.plan.step.global_tokens());
  return {.step = step_,
          .loss = result.targets > 0 ? result.loss : std::numeric_limits<double>::quiet_NaN(),
          .aux_loss = result.routers.aux_loss,
          .z_loss = result.routers.z_loss,
          .mtp_loss = result.mtp_loss,
          .grad_norm = result.grad_norm,
          .lr = result.lr,
          .tokens_per_s = tokens / took,
          .step_time_s = took,
          .mfu = matmul_rate_.mfu(rank_.plan.memory.arithmetic.model_flops, took),
          .memory_bytes =
              rank_.peak_bytes() + (writer_ ? writer_->bytes_taken() : 0) + (island_ ? island_->state().bytes() : 0),
          .data_s = batches_.take_read_s(),
          .waits_s = blocked_by_axis(waits_),
          .eval_s = std::exchange(eval_s_, 0),
          .save_s = std::exchange(save_s_, 0),
          .loss_scale = loss_scale_.kind == LossScale::Kind::none ? 0 : result.loss_scale,
          .skipped_steps = loss_scale_.state.skipped_steps,
          .expert_load = result.routers.load,
          .router_entropy = result.routers.entropy,
          .dropped = result.routers.dropped,
          .mtp_expert_load = result.routers.mtp_load,
          .mtp_router_entropy = result.routers.mtp_entropy,
          .mtp_dropped = result.routers.mtp_dropped,
          .phase = has_phases(whole_)
                       ? std::optional(StepRecord::Phase{.number = span_->phase,
                                                         .global_batch_size = recipe_.train.global_batch_size,
                                                         .seq_length = recipe_.train.seq_length})
                       : std::nullopt,
          .spikes = spikes_.rule ? std::optional(int64_t(spikes_.state.batches.size())) : std::nullopt,
          .batch = batch != step_ - 1 ? std::optional(batch) : std::nullopt,
          .terms = result.terms};
}

void Trainer::note_oddities(const TrainingStep::Result& r) {
  if (r.targets == 0)
    records_->note(fmt::format("step {}: no target of its batch counts, by the loss mask: only decay and momentum act",
                               step_ + 1));
  if (r.outcome == TrainingStep::Outcome::skipped)
    records_->note(fmt::format("step {}: loss {}, gradient norm {} at loss scale {}: skipped; the next has {}",
                               step_ + 1, r.loss, std::abs(r.grad_norm), r.loss_scale, loss_scale_.state.scale));
}

// A checkpoint, else pretrained weights, else random ones.
void Trainer::start_weights(const FoundCheckpoint& found) {
  notes_.insert(notes_.end(), found.notes.begin(), found.notes.end());
  read_fingerprints();
  if (const auto& checkpoint = found.path) {
    require_frozen(*checkpoint);
    const Progressed at =
        load_checkpoint(*checkpoint, rank_.plan.model, rank_.state, *rank_.plan.optimizer, machine_.threads);
    rank_.state.params.masters_changed(rank_.backend);
    spikes_.state = at.spikes.value_or(SpikeState());
    if (!spikes_.rule) take_spikes(spikes_.state);
    require_same_run(*checkpoint, at);
    require_steps_left(recipe_, at.step, *checkpoint);
    step_ = saved_step_ = at.step;
    adapter_changed_ = true;
    if (at.loss_scale) loss_scale_.state = *at.loss_scale;
    notes_.push_back(
        step_ < recipe_.train.train_iters
            ? fmt::format("goes on from {}, after step {}", checkpoint->string(), step_)
            : fmt::format("{} is of step {}, the run's last: nothing is left to do", checkpoint->string(), step_));
    if (const auto then = *checkpoint / "weft" / "recipe.toml"; std::filesystem::exists(then))
      if (const auto note = length_note(parse_recipe_file(then.string(), {}), whole_, step_,
                                        step_ - loss_scale_.state.skipped_steps - spikes_.state.skipped_steps);
          !note.empty())
        notes_.push_back(note);
    // A run that keeps the best ones needs to know how good this one is: it evaluates again where it does not say so.
    const bool is_known = at.held_out || recipe_.checkpoint.keep_best == 0;
    if (any_rank(leads() && is_known && has_step(metrics().evals, step_))) {
      evaluated_step_ = step_;
      held_out_ = at.held_out;
    }
  } else {
    for (std::string& note :
         begin_weights(recipe_, rank_.plan.model, rank_.state.params, rank_.backend, machine_.threads))
      notes_.push_back(std::move(note));
  }
  for (std::string& note : start_frozen(recipe_, rank_, machine_.threads)) notes_.push_back(std::move(note));
}

// Of weights that the run reads and never writes: of an adapter's base, of a reference, of a teacher.
void Trainer::read_fingerprints() {
  const bool referred = has_reference(recipe_.train.objective), named = !recipe_.objective.reference.empty();
  const bool is_pretrained = recipe_.model.init == InitChoice::pretrained;
  Communicator& world = *rank_.mesh.world;
  const bool reads_base = rank_.plan.model.adapter.has_value() || (referred && !named);
  base_ = reads_base && is_pretrained ? fingerprint_of_weights(recipe_.model.path, &world) : "";
  reference_weights_ = referred && named ? fingerprint_of_weights(recipe_.objective.reference, &world) : "";
  teacher_ = rank_.state.teacher ? fingerprint_of_weights(recipe_.objective.teacher, &world) : "";
}

// That they are those of before.
void Trainer::require_frozen(const std::filesystem::path& checkpoint) const {
  if (!teacher_.empty()) require_teacher(checkpoint, recipe_.objective.teacher);
  if (!reference_weights_.empty()) require_reference(checkpoint, recipe_.objective.reference);
  if (base_.empty()) return;
  require_whole(recipe_.model.path, CheckpointPart::model, *rank_.mesh.world, machine_.threads);
  require_base(checkpoint, recipe_.model.path);
}

Metrics Trainer::metrics() const {
  try {
    return read_metrics(std::filesystem::path(recipe_.run.dir) / "metrics.jsonl");
  } catch (const FileError&) {  // a run goes on without; told where the records are opened
    return {};
  }
}

// That the run goes on with what it began with.
void Trainer::require_same_run(const std::filesystem::path& checkpoint, const Progressed& at) const {
  const auto refuse = [&](const std::string& what) {
    throw FileError(
        fmt::format("{}: {}; restore it, or begin a new run in another run.dir", checkpoint.string(), what));
  };
  for (size_t i = 0; i < std::min(at.sources.size(), data_.sources.size()); ++i) {
    const RunSource &then = at.sources[i], &now = data_.sources[i];
    if (then.contents == now.contents) continue;
    const ChatTemplateTexts templates = templates_at(checkpoint);
    if (data_.row_templates && !templates.empty() && *data_.row_templates != templates)
      refuse(fmt::format("the chat template {} has changed since this checkpoint was written",
                         recipe_.data.chat_template.empty() ? "of the tokenizer" : recipe_.data.chat_template));
    const auto version = [](const RunSource& s) { return s.dataset.empty() ? "no dataset" : s.version; };
    const bool datasets = !then.version.empty() || !now.version.empty();
    refuse(fmt::format("the training data has changed since this checkpoint was written: {}{}", now.path,
                       datasets ? fmt::format(" (of version {} then, {} now)", version(then), version(now)) : ""));
  }
  if (!at.sources.empty() && at.sources.size() != data_.sources.size())
    refuse(fmt::format("the training data has changed since this checkpoint was written: {} files then, {} now",
                       at.sources.size(), data_.sources.size()));
  if (at.data != data_.train->fingerprint())
    refuse(fmt::format("the training data has changed since this checkpoint was written{}",
                       at.sources.empty() ? "" : ": the files are the same, but not their weights or their order"));
  if (at.samples != samples_at(at.step) || at.seed != uint64_t(recipe_.train.seed))
    refuse(fmt::format("state.json says {} samples and seed {}, this run has {} and {} at step {}", at.samples, at.seed,
                       samples_at(at.step), recipe_.train.seed, at.step));
  if (span_ && at.place && at.place != place_at(at.step))
    refuse("state.json says another place in the data of its phase than the recipe's phases lead to");
  nlohmann::json then = read_json_file(config_in_checkpoint(checkpoint));
  if (at.context == 0) then["max_position_embeddings"] = config_of_checkpoint()["max_position_embeddings"];
  const nlohmann::json now = config_of_checkpoint();
  std::string changed;
  for (const nlohmann::json& side : {then, now})
    for (const auto& [key, value] : side.items()) {
      const nlohmann::json a = then.value(key, nlohmann::json()), b = now.value(key, nlohmann::json());
      if (a != b && changed.find(key + ":") == std::string::npos)
        changed += fmt::format("{}{}: {} there, {} now", changed.empty() ? "" : "; ", key, a.dump(), b.dump());
    }
  if (bool(at.loss_scale) != (loss_scale_.kind != LossScale::Kind::none))
    refuse(fmt::format("state.json has {} loss scale", at.loss_scale ? "a" : "no"));
  if (!changed.empty()) refuse(fmt::format("{}/config.json has changed: {}", recipe_.model.path, changed));
}

nlohmann::json Trainer::config_of_checkpoint() const {
  return ::weft::config_of_checkpoint(with_longest_samples(), rank_.plan.config, rank_.plan.step.precision.stat);
}

bool Trainer::evaluation_due() const {
  return (data_.valid != nullptr || data_.valid_rows != nullptr) && step_ > 0 &&
         (due(recipe_.train.eval_interval) || step_ == recipe_.train.train_iters);
}

// Both: none where it was stopped.
std::optional<EvalRecord> Trainer::evaluate_text() {
  return evaluate_loss({.windows = *data_.valid,
                        .step_spec = rank_.plan.step,
                        .memory = *machine_.memory,
                        .step = step_,
                        .max_batches = recipe_.train.eval_iters,
                        .ranks = *rank_.mesh.dense.all,
                        .stages = *rank_.mesh.pp,
                        .stopped = [this] { return stopped(); }},
                       [this](const LoadMicroBatch& load) { return rank_.executor.evaluate(load); });
}

void Trainer::evaluate() {
  enter(RunSection::evaluation);
  const std::optional<EvalRecord> record = data_.valid_rows ? evaluate_rows({.recipe = recipe_,
                                                                             .rows = *data_.valid_rows,
                                                                             .step_spec = rank_.plan.step,
                                                                             .reference = references_.valid,
                                                                             .step = step_,
                                                                             .stopped = [this] { return stopped(); }},
                                                                            rank_.executor)
                                                            : evaluate_text();
  if (!record) return;
  evaluated_step_ = step_;
  held_out_.reset();
  if (record->tokens > 0 && std::isfinite(record->loss)) held_out_ = {.loss = record->loss, .tokens = record->tokens};
  if (!leads()) return;
  if (record->tokens > 0)
    records_->eval(*record);
  else
    records_->note(fmt::format("step {}: no target of the held-out data counts: nothing to evaluate", step_));
}

void Trainer::refuse_unchanged_adapter() const {
  if (rank_.plan.model.adapter && !adapter_changed_)
    throw FileError(
        fmt::format("after {} steps the adapter is as it began: each of them was skipped, or had a gradient or a "
                    "learning rate of 0; look at the data, optimizer.lr and the notes above",
                    step_));
}

}  // namespace weft
