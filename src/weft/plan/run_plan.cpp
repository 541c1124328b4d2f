#include "weft/plan/run_plan.h"

#include <algorithm>
#include <filesystem>

#include "weft/plan/recompute_budget.h"
#include "weft/plan/teacher.h"
#include "weft/schedule/block_layout.h"
#include "weft/step/dpo.h"
#include "weft/step/grpo.h"
#include "weft/step/kto.h"
#include "weft/step/ppo.h"
#include "weft/step/reward.h"
#include "weft/tasks/task.h"

namespace weft {
namespace {

std::unique_ptr<Optimizer> optimizer_of(const Recipe& r) {
  const auto& o = r.optimizer;
  if (o.name == OptimizerKind::sgd) return make_sgd({.momentum = o.momentum, .weight_decay = o.weight_decay});
  const AdamWSpec adamw{
      .beta1 = o.adam_beta1, .beta2 = o.adam_beta2, .eps = o.adam_eps, .weight_decay = o.weight_decay};
  if (o.name == OptimizerKind::adamw) return make_adamw(adamw);
  if (o.name == OptimizerKind::adamw8bit) return make_adamw8bit({.adamw = adamw, .min_size = o.min_8bit_size});
  return make_muon(
      {.momentum = o.muon_momentum,
       .nesterov = o.muon_nesterov,
       .ns_steps = o.muon_ns_steps,
       .scale = o.muon_scale == MuonScale::original ? MuonSpec::Scale::original : MuonSpec::Scale::match_rms_adamw,
       .others = adamw});
}

}  // namespace

bool has_begun(const Recipe& recipe) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(recipe.run.dir) / "recipe.toml", ignored);
}

LrSchedule lr_schedule_of(const Recipe& r) {
  const auto& o = r.optimizer;
  return {.style = o.lr_decay_style,
          .lr = o.lr,
          .min_lr = o.min_lr,
          .warmup_steps = o.lr_warmup_iters,
          .decay_steps = o.lr_decay_iters > 0 ? o.lr_decay_iters : r.train.train_iters,
          .wsd_decay_steps = o.lr_wsd_decay_iters};
}

namespace {

LossScale loss_scale_of(const Recipe& r) {
  const auto& t = r.train;
  if (t.precision != PrecisionChoice::fp16) return {};
  if (t.loss_scale > 0) return LossScale::fixed_at(t.loss_scale);
  return LossScale::dynamic_from({.initial = t.initial_loss_scale, .min = t.min_loss_scale}, t.loss_scale_window,
                                 t.hysteresis);
}

void override_dropout(const Recipe& r, Dropouts& d) {
  d.embedding = r.model.embedding_dropout.value_or(d.embedding);
  d.hidden = r.model.hidden_dropout.value_or(d.hidden);
  d.attention = r.model.attention_dropout.value_or(d.attention);
}

void override_losses(const Recipe& r, ModelSpec& model) {
  ExpertsSpec& e = model.experts;
  const auto set = [&](const char* key, const std::optional<double>& given, double& coef) {
    if (given && *given > 0 && !model.has_experts())
      throw ConfigError(fmt::format("moe.{} = {} has no effect: the model has no experts", key, *given));
    coef = given.value_or(coef);
  };
  set("aux_loss_coef", r.moe.aux_loss_coef, e.aux_loss_coef);
  set("global_aux_loss_coef", r.moe.global_aux_loss_coef, e.global_aux_loss_coef);
  set("z_loss_coef", r.moe.z_loss_coef, e.z_loss_coef);
  double used = 0;  // by LayerPlan
  set("capacity_factor", r.moe.capacity_factor, used);
  if (r.moe.bias_update_rate > 0 && !e.correction)
    throw ConfigError(fmt::format("moe.bias_update_rate = {} has no effect: the model's routers have no such bias",
                                  r.moe.bias_update_rate));
  if (r.moe.bias_update_rate > 0 && model.adapter)
    throw ConfigError(
        fmt::format("moe.bias_update_rate = {} cannot run: beside adapters routers are frozen, and so is their bias, "
                    "which no adapter's file has; the nearest that works: moe.bias_update_rate = 0",
                    r.moe.bias_update_rate));
}

// Targets are weighed by forward-only passes of the model and its reference, which drop nothing.
void refuse_dropout(const Recipe& r, const ModelSpec& model) {
  const Dropouts& d = model.dropout;
  if (reads_tokens(r.train.objective)) return;
  const std::pair<const char*, double> all[] = {{"model.embedding_dropout", d.embedding},
                                                {"model.hidden_dropout", d.hidden},
                                                {"model.attention_dropout", d.attention},
                                                {"adapter.dropout", r.adapter.dropout}};
  for (const auto& [key, p] : all)
    if (p > 0)
      throw ConfigError(
          fmt::format("{0} = {1} cannot run: train.objective = \"{2}\" weighs tokens by what the model makes of them "
                      "without dropout; the nearest that works: {0} = 0",
                      key, p, r.train.objective));
}

int num_sums_of(ObjectiveKind objective) {
  switch (objective) {
    case ObjectiveKind::cross_entropy:
    case ObjectiveKind::distill:
      return 0;
    case ObjectiveKind::dpo:
      return Dpo::kSums;
    case ObjectiveKind::grpo:
      return Grpo::kSums;
    case ObjectiveKind::kto:
      return Kto::kSums;
    case ObjectiveKind::ppo:
      return Ppo::kSums;
    case ObjectiveKind::reward:
      break;
  }
  return Reward::kSums;
}

bool has_written_tasks(const Recipe& r) {
  return std::any_of(r.eval.tasks.begin(), r.eval.tasks.end(), [](const std::string& word) {
    return find_task("eval.tasks", word.substr(0, word.find('='))).kind == TaskKind::written;
  });
}

// What the step must be planned for.
void set_objective(const Recipe& r, const ModelSpec& model, StepSpec& step) {
  if (reads_tokens(r.train.objective)) return;
  step.evaluates = step.scores_first = true;
  step.num_sums = num_sums_of(r.train.objective);
  step.scores_others = r.train.objective == ObjectiveKind::kto;
  const bool has_reference = weft::has_reference(r.train.objective);
  // An adapter that begins as nothing adds nothing to the reference.
  step.stored_reference = has_reference && r.objective.precompute_ref_log_probs;
  if (!has_reference || step.stored_reference) return;
  step.scores_base = model.adapter && r.adapter.path.empty() && r.objective.reference.empty();
  if (!step.scores_base) step.frozen = {{model, step.model}};
}

RunPlan measured(const Recipe& recipe, RunPlan plan, const WorkspaceModel& workspace) {
  settle_recompute(recipe, plan, workspace);
  plan.memory = measure(plan.model, plan.step, *plan.optimizer, workspace);
  const RecomputeChoice& chosen = plan.recompute;
  WEFT_CHECK(chosen.blocks.empty() || plan.memory.total_bytes() <= chosen.budget,
             "rank {} is planned to take {} bytes, of a budget of {}", plan.step.rank, plan.memory.total_bytes(),
             chosen.budget);
  return plan;
}

}  // namespace

RunPlan plan_run(const Recipe& recipe, const WorkspaceModel& workspace, int rank) {
  return measured(recipe, prepare_run(recipe, rank), workspace);
}

RunPlan plan_run(const Recipe& recipe, HfConfig config, const WorkspaceModel& workspace, int rank) {
  return measured(recipe, prepare_run(recipe, std::move(config), rank), workspace);
}

RunPlan prepare_run(const Recipe& recipe, int rank) {
  if (!std::filesystem::exists(recipe.model.path))
    throw FileError(fmt::format("model.path = \"{}\" does not exist, seen from {}", recipe.model.path,
                                std::filesystem::current_path().string()));
  require_no_file_of_weights(recipe.model.path, "model.path");
  require_no_run_folder(recipe.model.path, "model.path");
  return prepare_run(recipe, read_hf_config(recipe.model.path), rank);
}

namespace {

WeightCodes base_codes_of(const Recipe::Adapter& a) {
  if (!is_beside_codes(a.kind)) return WeightCodes::none;
  return a.quant_type == QuantType::nf4 ? WeightCodes::nf4 : WeightCodes::int8;
}

AdapterKind kind_of(bool magnitudes, bool beside_codes) {
  if (beside_codes) return magnitudes ? AdapterKind::qdora : AdapterKind::qlora;
  return magnitudes ? AdapterKind::dora : AdapterKind::lora;
}

void add_adapter(const Recipe& r, HfConfig& config) {
  if (config.adapter)
    throw ConfigError(
        fmt::format("model.path = \"{}\" is an adapter of {}: name the base model there, and the adapter "
                    "in adapter.path, or merge the two first (weft merge)",
                    r.model.path, config.adapter->base));
  const Recipe::Adapter& a = r.adapter;
  if (a.kind == AdapterKind::none) return;
  const bool rewards = r.train.objective == ObjectiveKind::reward;
  PeftConfig adapter{.base = r.model.path,
                     .rank = a.rank,
                     .alpha = a.alpha,
                     .rslora = a.rslora,
                     .dora = has_magnitudes(a.kind),
                     .dropout = a.dropout,
                     .trains_score = rewards || config.spec.predicts_values,
                     .base_codes = base_codes_of(a),
                     .targets = a.targets};
  if (!a.path.empty()) {
    require_no_run_folder(a.path, "adapter.path");
    PeftConfig there = read_peft_config(a.path);
    if (there.dropout != a.dropout)
      config.warnings.push_back(
          fmt::format("{} was trained with lora_dropout = {}, and goes on with adapter.dropout = {}", a.path,
                      there.dropout, a.dropout));
    if (there.base_codes != WeightCodes::none && there.base_codes != adapter.base_codes)
      config.warnings.push_back(
          fmt::format("{} was trained beside a base in {}, and goes on beside one in {}: adapter.kind={} "
                      "adapter.quant_type={} keeps it so",
                      a.path, name_of(there.base_codes),
                      adapter.base_codes == WeightCodes::none ? "full" : name_of(adapter.base_codes),
                      kind_of(there.dora, true), name_of(there.base_codes)));
    if (there.trains_score != rewards)
      throw ConfigError(fmt::format(
          "adapter.path = \"{}\" {}", a.path,
          rewards
              ? "has no score (modules_to_save), which train.objective = \"reward\" trains beside it; the nearest that "
                "works: weft merge, and the merged model in model.path"
              : "is of a reward model; the nearest that works: train.objective = \"reward\""));
    there.base = adapter.base;
    there.trains_score = adapter.trains_score;  // values begin anew where it has none
    there.dropout = a.dropout;
    there.base_codes = adapter.base_codes;
    if (there.rank != a.rank || there.alpha != a.alpha || there.rslora != a.rslora || there.dora != adapter.dora)
      throw ConfigError(
          fmt::format("adapter.path = \"{}\" has another adapter than this recipe: to begin with it, "
                      "adapter.rank={} adapter.alpha={} adapter.rslora={} adapter.kind={}",
                      a.path, there.rank, there.alpha, there.rslora, kind_of(there.dora, is_beside_codes(a.kind))));
    if (a.targets != Recipe::Adapter().targets &&
        adapter_of(config.spec, adapter, "adapter.targets") != adapter_of(config.spec, there, a.path))
      throw ConfigError(
          fmt::format("adapter.path = \"{}\" has other modules than adapter.targets: leave those out", a.path));
    adapter.targets = there.targets;
  }
  adapt(config, std::move(adapter), "adapter.targets");
}

void set_head(const Recipe& r, HfConfig& config) {
  if (r.train.objective == ObjectiveKind::reward) return make_reward_model(config);
  require_vocabulary_head(config.spec, fmt::format("train.objective = \"{}\" cannot run: model.path = \"{}\"",
                                                   r.train.objective, r.model.path));
  config.spec.predicts_values = r.train.objective == ObjectiveKind::ppo;
}

// The teacher that the recipe names, unless the config has one already: in memory, or what is stored of its logits.
void add_teacher(const Recipe& r, RunPlan& plan) {
  HfConfig& config = plan.config;
  if (!r.objective.teacher_logits.empty()) {
    if (config.teacher_top == 0) config.teacher_top = read_stored_top(r, plan.model);
    return;
  }
  if (!config.teacher) config.teacher = read_teacher(r);
  check_teacher(r, plan.model, *config.teacher);
}

}  // namespace

RunPlan prepare_run(const Recipe& recipe, HfConfig config, int rank) {
  RunPlan plan;
  plan.config = std::move(config);
  set_head(recipe, plan.config);
  train_mtp(plan.config, recipe.train.mtp_loss_coef);
  add_adapter(recipe, plan.config);
  plan.model = plan.config.spec;
  override_dropout(recipe, plan.model.dropout);
  override_losses(recipe, plan.model);
  refuse_dropout(recipe, plan.model);
  check_layout(recipe, plan.model);
  if (has_reference(recipe.train.objective) && has_frozen_model(recipe)) check_frozen_experts(recipe, plan.model);
  if (recipe.train.objective == ObjectiveKind::distill) add_teacher(recipe, plan);
  plan.step = step_of(recipe, plan.model, rank, plan.config.teacher.get());
  if (plan.config.teacher_top > 0) plan.step.stored = {.top = plan.config.teacher_top, .loss = teacher_loss_of(recipe)};
  plan.optimizer = optimizer_of(recipe);
  plan.lr = lr_schedule_of(recipe);
  plan.loss_scale = loss_scale_of(recipe);
  return plan;
}

StepSpec step_of(const Recipe& recipe, const RunPlan& run, int rank) {
  StepSpec step = step_of(recipe, run.model, rank, run.config.teacher.get());
  step.stored = run.step.stored;
  step.model.recompute = run.recompute.blocks;
  return step;
}

namespace {

// A slice goes out between two steps: a copy is with the neighbour before the next one is due.
int64_t neighbour_slices_of(const Recipe& r) {
  constexpr int64_t kMostSlices = 16;
  const bool may_have_one = r.run.ranks == RanksKind::mpi && mesh_sizes_of(r).world() > 1;
  if (!r.checkpoint.local_neighbour || r.checkpoint.local_interval == 0 || !may_have_one) return 0;
  return std::clamp<int64_t>(r.checkpoint.local_interval / 2, 1, kMostSlices);
}

}  // namespace

StepSpec step_of(const Recipe& r, const ModelSpec& model, int rank, const HfConfig* teacher) {
  const MeshSizes mesh = mesh_sizes_of(r);
  const Pipeline pipeline = pipeline_of(r);
  const MeshPlace at = place_of(mesh, rank);
  const GradientOrder order = gradient_order_of(r).of_rank(at.dp);
  const bool counts_experts = model.has_experts() && model.experts.global_aux_loss_coef > 0;
  const int first = 0, last = place_of(pipeline, pipeline.num_virtual_stages() - 1).stage;
  StepSpec step{
      .precision = precision_of(r),
      .model = {.layers = layer_plan_of(r, model),
                .recompute_blocks = r.parallel.recompute == RecomputeKind::full,
                .max_positions = r.train.seq_length,
                .parts = parts_of(r, model, at.pp),
                .other_end = first == last    ? -1
                             : at.pp == first ? last
                                              : first},
      .seq_length = r.train.seq_length,
      .micro_batch_size = r.train.micro_batch_size * sequences_of_sample(r),
      .order = order,
      .pipeline = pipeline,
      .schedule = schedule_of(pipeline, at.pp, order.num_micro_batches),
      .evaluates = !r.data.valid.empty() || r.data.valid_fraction > 0 || !r.eval.tasks.empty() || counts_experts,
      .measures_weights = r.train.log_weight_norms > 0,
      .saves_beside = (r.checkpoint.async_save && r.checkpoint.save_interval > 0) || r.checkpoint.local_interval > 0,
      .neighbour_slices = neighbour_slices_of(r),
      .writes = has_written_tasks(r) || r.train.sample_interval > 0 ? r.train.micro_batch_size : 0,
      .finds_likeliest = !r.eval.tasks.empty(),
      .counts_experts = counts_experts,
      .predicts_values = model.predicts_values,
      .predicts_further = model.has_mtp(),
      .mesh = mesh,
      .rank = rank};
  set_objective(r, model, step);
  if (teacher != nullptr) step.teacher = teacher_spec_of(r, teacher->spec, step);
  return step;
}

}  // namespace weft
