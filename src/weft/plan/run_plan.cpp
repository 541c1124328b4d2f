#include "weft/plan/run_plan.h"

#include <filesystem>

#include "weft/schedule/block_layout.h"

namespace weft {
namespace {

std::unique_ptr<Optimizer> optimizer_of(const Recipe& r) {
  const auto& o = r.optimizer;
  if (o.name == "sgd") return make_sgd({.momentum = o.momentum, .weight_decay = o.weight_decay});
  return make_adamw({.beta1 = o.adam_beta1, .beta2 = o.adam_beta2, .eps = o.adam_eps, .weight_decay = o.weight_decay});
}

LrSchedule::Style style_of(const std::string& name) {
  if (name == "linear") return LrSchedule::Style::linear;
  if (name == "cosine") return LrSchedule::Style::cosine;
  if (name == "wsd") return LrSchedule::Style::wsd;
  return LrSchedule::Style::constant;
}

LrSchedule lr_of(const Recipe& r) {
  const auto& o = r.optimizer;
  return {.style = style_of(o.lr_decay_style),
          .lr = o.lr,
          .min_lr = o.min_lr,
          .warmup_steps = o.lr_warmup_iters,
          .decay_steps = o.lr_decay_iters > 0 ? o.lr_decay_iters : r.train.train_iters,
          .wsd_decay_steps = o.lr_wsd_decay_iters};
}

StepSpec step_of(const Recipe& r) {
  const int64_t micro_batches = num_micro_batches_of(r);
  return {
      .precision = precision_of(r),
      .model = {.layers = {.stream = Spmd::Invariant, .keep_activations = r.parallel.recompute != "selective"},
                .recompute_blocks = r.parallel.recompute == "full",
                .max_positions = r.train.seq_length},
      .seq_length = r.train.seq_length,
      .micro_batch_size = r.train.micro_batch_size,
      .order = {.num_micro_batches = micro_batches, .tree = r.train.numerics == "invariant", .ranks = r.parallel.dp},
      .schedule = schedule_named(r.parallel.pipeline_schedule, {}, micro_batches),
      .evaluates = !r.data.valid.empty() || r.data.valid_fraction > 0};
}

void override_dropout(const Recipe& r, Dropouts& d) {
  d.embedding = r.model.embedding_dropout.value_or(d.embedding);
  d.hidden = r.model.hidden_dropout.value_or(d.hidden);
  d.attention = r.model.attention_dropout.value_or(d.attention);
}

}  // namespace

Precision precision_of(const Recipe& r) {
  if (r.train.precision == "bf16") return kBf16;
  return r.train.precision == "f64" ? kF64 : kF32;
}

Pipeline pipeline_of(const Recipe& r) {
  const auto& p = r.parallel;
  return pipeline_named(p.pipeline_schedule, int(p.pp), int(p.virtual_pipeline_parallel_size));
}

int64_t num_micro_batches_of(const Recipe& r) {
  return r.train.global_batch_size / r.train.micro_batch_size / r.parallel.dp;
}

MeshSizes mesh_sizes_of(const Recipe& r) {
  const auto& p = r.parallel;
  return {.dp = int(p.dp), .pp = int(p.pp), .cp = int(p.cp), .tp = int(p.tp), .ep = int(p.ep)};
}

RunPlan plan_run(const Recipe& recipe, const WorkspaceModel& workspace) {
  RunPlan plan;
  if (!std::filesystem::exists(recipe.model.path))
    throw FileError(fmt::format("model.path = \"{}\" does not exist, seen from {}", recipe.model.path,
                                std::filesystem::current_path().string()));
  plan.config = read_hf_config(recipe.model.path);
  plan.model = plan.config.spec;
  override_dropout(recipe, plan.model.dropout);
  if (const BlockLayout& layout = recipe.parallel.pipeline_layout; !layout.empty())
    check_layout(layout, pipeline_of(recipe).num_virtual_stages(), plan.model.num_layers);
  plan.step = step_of(recipe);
  plan.optimizer = optimizer_of(recipe);
  plan.lr = lr_of(recipe);
  plan.memory = measure(plan.model, plan.step, *plan.optimizer, workspace);
  return plan;
}

}  // namespace weft
