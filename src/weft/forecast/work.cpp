#include "weft/forecast/work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "weft/base/error.h"
#include "weft/forecast/stage_work.h"
#include "weft/ops/backend.h"
#include "weft/plan/memory_plan.h"
#include "weft/plan/rank_classes.h"

namespace weft {
namespace {

constexpr int64_t kTile = 128;           // rows and columns of a product that a unit has at once
constexpr double kInnerRamp16 = 150;     // products of this inner size take twice as long as their flops say ...
constexpr double kInnerRamp8 = 300;      // ... and those in fewer bits of this one
constexpr int64_t kAligned = 8;          // products that keep scores need heads of a multiple of this ...
constexpr double kUnalignedRate = 0.04;  // ... or run without matrix units (BigScience's heads of 108: 0.7 of the rate)
constexpr double kF32OfProducts = 0.25;  // rate of products in f32 that a source does not say, of those in 16 bits

// How much longer a product takes than its flops say: the last wave of tiles does not fill the device, and each tile
// takes a while to start and to end.
double product_stretch(int64_t m, int64_t n, double k, int units, double ramp) {
  const double tiles = double((m + kTile - 1) / kTile) * double((n + kTile - 1) / kTile);
  const double waves = tiles / units, filled = waves / std::ceil(waves);
  return (1 + ramp / std::max(k, 1.0)) / std::pow(filled, waves > 1 ? 0.5 : 0.7);
}

const StepOp::Operand* operand_of(const StepOp& op, std::string_view field) {
  for (const StepOp::Operand& o : op.operands)
    if (o.field == field) return &o;
  return nullptr;
}

// The same of products of each expert: its rows are padded to whole tiles.
double grouped_stretch(const StepOp& op, double ramp) {
  const StepOp::Operand *x = operand_of(op, "x"), *offsets = operand_of(op, "offsets");
  WEFT_CHECK(x != nullptr && offsets != nullptr, "a product of experts without operands");
  const double rows = std::max(1.0, double(x->shape[0]) / double(std::max<int64_t>(1, offsets->shape[0] - 1)));
  const double inner = op.name == "grouped_matmul" ? double(x->shape[1]) : rows;
  const double padded = op.name == "grouped_matmul" ? std::ceil(rows / kTile) * kTile / rows : 1;
  return padded * (1 + ramp / std::max(inner, 1.0));
}

WorkClass class_of(const StepOp& op) {
  if (op.name == "matmul")
    return operand_of(op, "a")->dtype == DType::f32 ? WorkClass::products_f32 : WorkClass::products;
  if (op.name == "grouped_matmul" || op.name == "grouped_weight_grad") return WorkClass::grouped;
  if (op.name == "attention") return WorkClass::attention;
  if (op.name == "attention_backward") return WorkClass::attention_backward;
  return op.name == "adamw" || op.name == "adamw8" || op.name == "sgd" ? WorkClass::update : WorkClass::memory;
}

class Pricing {
 public:
  Pricing(const ModelSpec& model, int tp, const ClusterSpec& cluster, const MeasuredRanks* measured,
          ProductFormat format)
      : model_(model), device_(cluster.device), measured_(measured), format_(format), columns_(model.vocab_size / tp) {}

  void add(const StepOp& op, ComputeWork& work) const {
    ++work.kernels;
    if (measured_ != nullptr) {
      work[class_of(op)] += measured_seconds(op);
      return;
    }
    const double moved_s = op.bytes / device_.memory_bytes_per_s;
    if (op.name == "matmul") return add_product(op, work);
    if (op.name == "grouped_matmul" || op.name == "grouped_weight_grad") {
      work[format_ == ProductFormat::bits16 ? WorkClass::grouped : WorkClass::grouped8] +=
          op.flops / rate() * grouped_stretch(op, format_ == ProductFormat::bits16 ? kInnerRamp16 : kInnerRamp8);
    } else if ((op.name == "attention" || op.name == "attention_backward") && op.flops > 0) {
      const bool forward = op.name == "attention";
      work[forward ? WorkClass::attention : WorkClass::attention_backward] += op.flops / device_.products.bits16;
      const double pairs = op.flops / (forward ? 4 : 8) / double(std::max<int64_t>(1, model_.head_dim));
      work[WorkClass::scores] += pairs * 2 * 2 / device_.memory_bytes_per_s;  // written and read in 16 bits
      if (model_.head_dim % kAligned != 0)                                    // all pairs, not half of them
        work[WorkClass::scores] += 2 * op.flops / (device_.products.bits16 * kUnalignedRate);
    } else {
      work[op.name == "adamw" || op.name == "adamw8" || op.name == "sgd" ? WorkClass::update : WorkClass::memory] +=
          moved_s;
    }
  }

 private:
  // What was not measured: at the best rates.
  double measured_seconds(const StepOp& op) const {
    const double at_best = std::max(op.flops / device_.products.bits16, op.bytes / device_.memory_bytes_per_s);
    return measured_->gap_s + measured_->seconds_of(op).value_or(at_best);
  }
  double rate() const {
    const ProductRates& r = device_.products;
    if (format_ == ProductFormat::bits16 || r.fp8 == 0) return r.bits16;
    return r.fp8;
  }
  void add_product(const StepOp& op, ComputeWork& work) const {
    const StepOp::Operand *out = operand_of(op, "out"), *a = operand_of(op, "a");
    WEFT_CHECK(out != nullptr && a != nullptr, "a product without operands");
    const int64_t m = out->shape[0], n = out->shape[1];
    const double k = op.flops / (2.0 * double(m) * double(n));
    if (a->dtype == DType::f32) {
      const double f32 = device_.products.f32 > 0 ? device_.products.f32 : device_.products.bits16 * kF32OfProducts;
      work[WorkClass::products_f32] += op.flops / f32;
      return;
    }
    const auto is_vocabulary = [&](double size) { return std::abs(size - double(columns_)) < 256; };
    const bool head = is_vocabulary(double(m)) || is_vocabulary(double(n)) || is_vocabulary(k);  // stays in 16 bits
    if (head || format_ == ProductFormat::bits16) {
      work[WorkClass::products] +=
          op.flops / device_.products.bits16 * product_stretch(m, n, k, device_.units, kInnerRamp16);
      return;
    }
    work[format_ == ProductFormat::fp4 ? WorkClass::products4 : WorkClass::products8] +=
        op.flops / rate() * product_stretch(m, n, k, device_.units, kInnerRamp8);
    work[WorkClass::casts] += (double(m) * k + double(n) * k + double(m) * double(n)) * 2 / device_.memory_bytes_per_s;
  }
  const ModelSpec& model_;
  const DeviceSpec& device_;
  const MeasuredRanks* measured_;
  ProductFormat format_;
  int64_t columns_;  // of the vocabulary, on a rank
};

ComputeWork compute_of(const std::vector<StepPart>& parts, const Pricing& pricing) {
  ComputeWork work;
  for (const StepPart& part : parts)
    for (const StepOp& op : part.ops) pricing.add(op, work);
  return work;
}

// The seconds of a call at the rates of the links.
TransferWork transfer_of(const std::string& axis, Traffic::Kind kind, Traffic::Count count, const RunWork& run,
                         const ClusterSpec& cluster, bool cut_over_tp) {
  const AxisSpread spread = spread_of(run.mesh, axis, cluster.domain);
  // An exchange of all with all is counted as a message to each of the others.
  const bool messages = sends_rows_to_experts(axis) && kind == Traffic::Kind::send;
  const int64_t calls = std::max<int64_t>(1, messages ? count.calls / std::max(1, spread.ranks - 1) : count.calls);
  double bytes = double(count.bytes) / double(calls);
  const bool of_teacher = axis.starts_with("teacher_");  // whose ranks of tp have all rows
  if (sends_rows_to_experts(axis) && cut_over_tp && !of_teacher) bytes /= run.mesh.tp;
  if (const MeasuredRanks* measured = measured_of(cluster, run.mesh.world())) {
    const Curve* curve = measured->collective(kind, spread.ranks, !spread.is_inside());
    if (curve != nullptr)
      return {.axis = axis,
              .kind = kind,
              .calls = calls,
              .each = {.inside_s = messages ? curve->of(bytes / std::max(1, spread.ranks - 1)) * (spread.ranks - 1)
                                            : curve->of(bytes)},
              .inside = spread.is_inside()};
  }
  const Exchange what = sends_rows_to_experts(axis)         ? Exchange::all_to_all
                        : kind == Traffic::Kind::send       ? Exchange::message
                        : kind == Traffic::Kind::all_reduce ? Exchange::all_reduce
                                                            : Exchange::gather;
  TransferWork transfer{.axis = axis,
                        .kind = kind,
                        .calls = calls,
                        .each = link_time(what, bytes, spread, cluster),
                        .inside = spread.is_inside()};
  if (const int tp = run.mesh.tp; axis == "pp" && what == Exchange::message && tp > 1 && !cut_over_tp)
    transfer.in_slices = {.message = link_time(what, bytes / tp, spread, cluster),
                          .gather = link_time(Exchange::gather, bytes * (tp - 1) / tp,
                                              spread_of(run.mesh, "tp", cluster.domain), cluster)};
  return transfer;
}

ComputeWork times(int64_t n, ComputeWork work) {
  for (double& seconds : work.seconds) seconds *= double(n);
  work.kernels *= n;
  return work;
}

std::vector<TransferWork> transfers_of(const std::vector<StepPart>& parts, const RunWork& run,
                                       const ClusterSpec& cluster, bool cut_over_tp) {
  Traffic all;
  for (const StepPart& part : parts)
    for (const auto& [what, count] : part.transfers) {
      Traffic::Count& mine = all.count(what.first, what.second);
      mine.calls += count.calls;
      mine.bytes += count.bytes;
    }
  std::vector<TransferWork> transfers;
  for (const auto& [what, count] : all.counts())
    transfers.push_back(transfer_of(what.first, what.second, count, run, cluster, cut_over_tp));
  return transfers;
}

// What tells the stages of a model apart.
std::string kind_text(const ModelSpec& model, const TransformerPlan& plan) {
  std::string text;
  for (const ModelPart& part : plan.parts) {
    text += fmt::format("{}{} ", part.embedding ? "embedding " : "", part.head ? "head " : "");
    for (int64_t b = 0; b < part.blocks.count; ++b) {
      const int64_t l = part.blocks.first + b;
      const LayerSpec layer = model.layer(l);
      const std::string_view again = plan.recompute.empty() ? "" : name_of(plan.recompute[size_t(l)]);
      text += fmt::format("{}{}{};", layer.experts ? "experts" : "dense", layer.window, again);
    }
    text += "|";
  }
  return text;
}

std::string kind_text(const RunPlan& plan, const StepSpec& step) {
  const std::string own = kind_text(plan.model, step.model);
  return step.teacher ? own + "beside " + kind_text(step.teacher->frozen.model, step.teacher->frozen.plan) : own;
}

// A dry run fills the buffers of experts on other ranks, which have room for all rows that may come. What takes time
// are the rows that do: as many on each rank, if the load is balanced.
StepSpec with_balanced_experts(StepSpec step) {
  const auto balance = [](TransformerPlan& plan) { plan.layers.capacity = {.factor = 1, .drops = true}; };
  balance(step.model);
  for (FrozenSpec& f : step.frozen) balance(f.plan);
  if (step.teacher) balance(step.teacher->frozen.plan);
  return step;
}

// How often a rank does what it does of one micro-batch before the step. A teacher with axes of its own has other data
// ranks than the student.
int64_t passes_before(const StepSpec& step) {
  if (!step.teacher || !step.teacher->apart) return step.order.num_micro_batches;
  const int64_t at_once = step.teacher->apart->order.ranks;
  return (step.order.global_micro_batches() + at_once - 1) / at_once;
}

// All but its memory.
StageWork stage_actions(const RunPlan& plan, const StepSpec& step, const RunWork& run, const ClusterSpec& cluster,
                        ProductFormat format) {
  const StepData data = step_data_of(plan.model, with_balanced_experts(step), *plan.optimizer, WorkspaceModel());
  const Pricing pricing(plan.model, run.mesh.tp, cluster, measured_of(cluster, run.mesh.world()), format);
  const bool cut_over_tp = step.model.layers.stream == Spmd::Shard0;
  StageWork work{.end = compute_of({data.end}, pricing),
                 .end_transfers = transfers_of({data.end}, run, cluster, cut_over_tp)};
  if (!data.before.ops.empty())
    work.before = {.what = Do::forward,
                   .times = 1,
                   .compute = times(passes_before(step), compute_of({data.before}, pricing)),
                   .transfers = transfers_of({data.before}, run, cluster, cut_over_tp)};
  for (const StepAction& a : data.actions)
    work.actions.push_back({.what = a.what,
                            .chunk = a.chunk,
                            .times = a.times,
                            .compute = compute_of(a.parts, pricing),
                            .transfers = transfers_of(a.parts, run, cluster, cut_over_tp)});
  return work;
}

StageWork stage_work(const RunPlan& plan, const StepSpec& step, const RunWork& run, const ClusterSpec& cluster,
                     ProductFormat format) {
  StageWork work = stage_actions(plan, step, run, cluster, format);
  const MemoryPlan memory = measure_memory(plan.model, step, *plan.optimizer, WorkspaceModel());
  work.memory_bytes = memory.total_bytes();
  work.kept_bytes = memory.persistent.total() - memory.persistent.transit;
  work.saved_bytes = memory.persistent.params + memory.persistent.states;
  return work;
}

double best_seconds(const ComputeWork& work) { return std::accumulate(work.seconds.begin(), work.seconds.end(), 0.0); }

// A stage whose ranks have different parts of a teacher with axes of its own: the most that one of them needs, and the
// longest that one computes before the step.
StageWork stage_beside_teacher(const Recipe& recipe, const RunPlan& plan, int stage, const RunWork& run,
                               const ClusterSpec& cluster, ProductFormat format) {
  const auto step_at = [&](int place) { return step_of(recipe, plan, rank_at_place(run.mesh, stage, place)); };
  std::optional<StageWork> all;
  for (const std::vector<int>& tp : tp_classes(plan))
    for (const Places& places : update_classes(recipe, plan, step_at(tp[0]), tp)) {
      StageWork work = stage_work(plan, step_at(places[0]), run, cluster, format);
      if (!all) {
        all = std::move(work);
        continue;
      }
      all->memory_bytes = std::max(all->memory_bytes, work.memory_bytes);
      all->kept_bytes = std::max(all->kept_bytes, work.kept_bytes);
      all->saved_bytes = std::max(all->saved_bytes, work.saved_bytes);
      if (best_seconds(work.before.compute) > best_seconds(all->before.compute)) all->before = std::move(work.before);
    }
  return std::move(all).value();
}

}  // namespace

std::string_view name_of(WorkClass c) {
  constexpr std::array<std::string_view, kWorkClasses> kNames{
      "products",  "fp8 products",       "fp4 products",     "f32 products", "expert products", "fp8 expert products",
      "attention", "attention backward", "attention scores", "fp8 casts",    "other ops",       "update"};
  return kNames[size_t(c)];
}

std::map<std::string, OpWork> work_by_op(const RunPlan& plan, const ClusterSpec& cluster) {
  const StepData data = step_data_of(plan.model, with_balanced_experts(plan.step), *plan.optimizer, WorkspaceModel());
  const MeshSizes& mesh = plan.step.mesh;
  const Pricing pricing(plan.model, mesh.tp, cluster, measured_of(cluster, mesh.world()), ProductFormat::bits16);
  std::map<std::string, OpWork> all;
  const auto add = [&](const StepPart& part, int64_t times) {
    for (const StepOp& op : part.ops) {
      ComputeWork work;
      pricing.add(op, work);
      OpWork& sum = all[op.name];
      sum.count += times;
      for (const double s : work.seconds) sum.seconds += s * double(times);
    }
  };
  add(data.before, passes_before(plan.step));
  for (const StepAction& action : data.actions)
    for (const StepPart& part : action.parts) add(part, action.times);
  add(data.end, 1);
  return all;
}

bool sends_rows_to_experts(std::string_view axis) {
  return axis == "ep" || axis == "frozen_ep" || axis == "teacher_ep";
}
namespace {

// What an op of a pass reads and writes. A rank's cache is an operand as a whole, of which a token's query sees a text.
// Of experts those are read that rows came to: at most as many as there are rows. A rank of tp has at least one head
// of keys.
double bytes_in_pass(const StepOp& op, const ModelSpec& model, int tp) {
  if (op.name == "grouped_matmul") {
    const StepOp::Operand *x = operand_of(op, "x"), *w = operand_of(op, "w"), *offsets = operand_of(op, "offsets");
    const double weights = double(w->shape[0]) * double(w->shape[1]) * double(size_of(w->dtype));
    const double idle = 1 - double(x->shape[0]) / double(std::max<int64_t>(1, offsets->shape[0] - 1));
    return op.bytes - weights * std::max(0.0, idle);
  }
  if (op.name != "attention") return op.bytes;
  const StepOp::Operand* k = operand_of(op, "k");
  const double keys = model.latent ? 1 : std::max(1.0, double(model.num_kv_heads) / tp);
  return std::min(op.bytes, op.flops / 2 * keys * tp / double(model.num_heads) * double(size_of(k->dtype)));
}

}  // namespace

ActionWork work_of_pass(const PassData& pass, const ModelSpec& model, const MeshSizes& mesh,
                        const ClusterSpec& cluster) {
  WEFT_CHECK(cluster.measured.empty(), "a pass on a cluster that was measured");
  const Pricing pricing(model, mesh.tp, cluster, nullptr, ProductFormat::bits16);
  ActionWork work{.what = Do::forward, .times = 1, .compute = {}, .transfers = {}};
  for (const StepOp& op : pass.ops) {
    ComputeWork one;
    pricing.add(op, one);
    const double moved_s = bytes_in_pass(op, model, mesh.tp) / cluster.device.memory_bytes_per_s;
    if (moved_s > std::accumulate(one.seconds.begin(), one.seconds.end(), -one[WorkClass::scores])) {
      one.seconds = {};
      one[WorkClass::memory] = moved_s;
    }
    for (size_t c = 0; c < one.seconds.size(); ++c) work.compute.seconds[c] += one.seconds[c];
    work.compute.kernels += one.kernels;
  }
  RunWork run;
  run.mesh = mesh;
  for (const auto& [what, count] : pass.transfers)
    work.transfers.push_back(transfer_of(what.first, what.second, count, run, cluster, false));
  return work;
}

TransferWork message_work(double bytes, const MeshSizes& mesh, const ClusterSpec& cluster) {
  RunWork run;
  run.mesh = mesh;
  return transfer_of("pp", Traffic::Kind::send, {.calls = 1, .bytes = int64_t(bytes)}, run, cluster, false);
}

AxisSpread spread_of(const MeshSizes& mesh, std::string_view axis, int domain) {
  constexpr std::string_view kFrozen = "frozen_";
  if (axis.starts_with(kFrozen)) return spread_of(mesh.of_frozen(), axis.substr(kFrozen.size()), domain);
  constexpr std::string_view kTeacher = "teacher_";
  if (axis.starts_with(kTeacher)) return spread_of(mesh.of_teacher(), axis.substr(kTeacher.size()), domain);
  const MeshPlace first{.dp = 0, .pp = 0, .cp = 0, .tp = 0};
  std::vector<int> ranks;
  const auto members = [&](ReplicaSet set, int begin, int end, int stride) {
    for (int m = begin; m < end; m += stride) ranks.push_back(rank_at(mesh, place_of_member(mesh, first, set, m)));
  };
  const int shards = mesh.shards_of(ReplicaSet::dense), expert_shards = mesh.shards_of(ReplicaSet::experts);
  const auto along = [&](int size, auto place) {
    for (int i = 0; i < size; ++i) ranks.push_back(rank_at(mesh, place(i)));
  };
  if (axis == "tp")
    along(mesh.tp, [](int i) { return MeshPlace{0, 0, 0, i}; });
  else if (axis == "cp")
    along(mesh.cp, [](int i) { return MeshPlace{0, 0, i, 0}; });
  else if (axis == "pp")  // neighbours alone talk
    along(std::min(2, mesh.pp), [](int i) { return MeshPlace{0, i, 0, 0}; });
  else if (axis == "dp")
    along(mesh.dp, [](int i) { return MeshPlace{i, 0, 0, 0}; });
  else if (axis == "shards")
    members(ReplicaSet::dense, 0, shards, 1);
  else if (axis == "replicas")
    members(ReplicaSet::dense, 0, mesh.replicas(ReplicaSet::dense), shards);
  else if (axis == "edp")
    members(ReplicaSet::experts, 0, mesh.edp(), 1);
  else if (axis == "expert_shards")
    members(ReplicaSet::experts, 0, expert_shards, 1);
  else if (axis == "expert_replicas")
    members(ReplicaSet::experts, 0, mesh.edp(), expert_shards);
  else if (axis == "ep")
    members(ReplicaSet::dense, 0, mesh.ep, 1);
  else if (axis == "world")
    for (int r = 0; r < mesh.world(); ++r) ranks.push_back(r);
  else
    members(ReplicaSet::dense, 0, mesh.replicas(ReplicaSet::dense), 1);
  AxisSpread spread{.ranks = std::max<int>(1, int(ranks.size())), .in_domain = 0};
  for (const int r : ranks) spread.in_domain += r / domain == ranks.front() / domain;
  spread.in_domain = std::max(1, spread.in_domain);
  return spread;
}

RunWork work_of(const Recipe& recipe, const RunPlan& plan, const ClusterSpec& cluster, ProductFormat format) {
  RunWork run{
      .mesh = plan.step.mesh,
      .pipeline = plan.step.pipeline,
      .num_micro_batches = plan.step.order.of_rank(plan.step.order.busiest()).num_micro_batches,
      .tokens = double(recipe.train.global_batch_size * sequences_of_sample(recipe)) * double(recipe.train.seq_length)};
  run.generation = cluster.device.generation;
  run.arithmetic = measure_arithmetic(plan.model, plan.step, *plan.optimizer, WorkspaceModel());
  Recipe with_layout = recipe;
  with_layout.parallel.pipeline_layout = block_layout_of(recipe, plan.model);
  std::map<std::string, int> known;
  for (int stage = 0; stage < run.mesh.pp; ++stage) {
    if (run.mesh.teacher) {
      run.kind_of.push_back(int(run.kinds.size()));
      run.kinds.push_back(stage_beside_teacher(with_layout, plan, stage, run, cluster, format));
      continue;
    }
    // With unequal shares the others wait for the rank with the most micro-batches.
    const int rank = rank_at(run.mesh, {.dp = int(plan.step.order.busiest()), .pp = stage, .cp = 0, .tp = 0});
    const StepSpec step = step_of(with_layout, plan, rank);
    const auto [at, is_new] = known.try_emplace(kind_text(plan, step), int(run.kinds.size()));
    if (is_new) run.kinds.push_back(stage_work(plan, step, run, cluster, format));
    run.kind_of.push_back(at->second);
  }
  return run;
}

StageWork work_of_stage(const RunPlan& plan, const StepSpec& step, const ClusterSpec& cluster) {
  RunWork run;
  run.mesh = plan.step.mesh;
  return stage_work(plan, step, run, cluster, ProductFormat::bits16);
}
std::string stage_kind(const RunPlan& plan, const StepSpec& step) { return kind_text(plan, step); }

RunWork actions_of(const RunPlan& plan, const ClusterSpec& cluster, ProductFormat format) {
  RunWork run{
      .mesh = plan.step.mesh, .pipeline = plan.step.pipeline, .num_micro_batches = plan.step.order.num_micro_batches};
  run.kinds.push_back(stage_actions(plan, plan.step, run, cluster, format));
  run.kind_of.push_back(0);
  return run;
}

}  // namespace weft
