#include "weft/verify/verify.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "weft/base/byte_size.h"
#include "weft/plan/layout.h"
#include "weft/plan/recompute_budget.h"
#include "weft/records/clock.h"
#include "weft/records/progress.h"
#include "weft/train/room.h"
#include "weft/verify/expected_update.h"
#include "weft/verify/narrow_copy.h"
#include "weft/verify/trial_data.h"

namespace weft {
namespace {

constexpr int64_t kMostParams = 5'000'000;  // of a model that is trained as it is
constexpr double kMostSeconds = 20;         // likewise, all runs together
constexpr double kReferenceRate = 1e9;      // flop/s of a thread of the reference backend, about
constexpr double kTellEvery = 2;            // seconds
// Where roundings grow, they end as far off as one normal number is, and one draw of them is measured: that another is
// so many times as far has a probability of 2 / (pi 64), 1 %.
constexpr double kByChance = 64;
constexpr double kLeastAdamEps = 1e-3;  // sees the gradients' absolute size, not their sign alone

// The recipe as it is tried: nothing is held out, and every step's update has its full size.
Recipe trial_recipe(Recipe r, int64_t steps) {
  r.data.valid.clear();
  r.data.valid_fraction = 0;
  r.train.eval_interval = 0;
  r.train.train_iters = steps;
  r.train.epochs = 0;
  r.train.autotune = false;
  r.checkpoint.keep_best = 0;
  r.eval = {};
  r.train.log_grad_norms = false;
  r.train.log_weight_norms = r.train.trace_interval = r.train.sample_interval = 0;
  r.train.sample_prompts.clear();
  r.train.grad_reduce_dtype = ReduceDtype::f32;  // one rank has no gradients to send
  r.moe.capacity_factor.reset();                 // what is dropped depends on the layout
  r.moe.overflow = ExpertOverflow::error;
  r.optimizer.lr_decay_style = LrSchedule::Style::constant;
  r.optimizer.lr_warmup_iters = r.optimizer.lr_decay_iters = r.optimizer.lr_wsd_decay_iters = 0;
  if (r.optimizer.name != OptimizerKind::sgd) r.optimizer.adam_eps = std::max(r.optimizer.adam_eps, kLeastAdamEps);
  return r;
}

Recipe in_fp64(Recipe r) {
  r.run.backend = BackendKind::ref;
  r.train.precision = PrecisionChoice::f64;
  if (r.train.numerics == NumericsChoice::nondeterministic)
    r.train.numerics = NumericsChoice::fast;  // which the reference is
  return r;
}

std::string sizes_of(const Recipe& r, const ModelSpec& m) {
  return fmt::format(
      "{} layers of width {}, {} query and {} key heads of {}, inner width {}, vocabulary {}; {} "
      "sequences of {} tokens, {} at a time",
      m.num_layers, m.width, m.num_heads, m.num_kv_heads, m.head_dim, m.ffn_width, m.vocab_size,
      r.train.global_batch_size * sequences_of_sample(r), r.train.seq_length,
      r.train.micro_batch_size * sequences_of_sample(r));
}

// What sums in f32 may do to a tensor's farthest element: as the tests' tolerance of single operations, over all of the
// layers'.
double rounding_bound(const Recipe& r, const ModelSpec& m) {
  const double depth = double(r.train.global_batch_size * sequences_of_sample(r) * r.train.seq_length + m.width);
  return 0x1p-24 * (16 * double(2 + m.num_layers) + 2 * std::sqrt(depth));
}

// In a precision whose rounding is measured, on one rank: several times what the same tensor has in any step; at least
// what any tensor has, for a small one may be near by chance, but no more than the arithmetic explains. So may loss and
// norm: at least one rounding of theirs.
class MeasuredBound {
 public:
  struct Least {
    double any, number;
  };
  MeasuredBound(const Distances& one_rank, Least least, const RoundingBound& rounding)
      : least_(least.any), rounding_(rounding) {
    for (const Quantity q : {Quantity::loss, Quantity::gradient_norm}) of_any_[size_t(q)] = least.number;
    for (size_t s = 0; s < one_rank.steps().size(); ++s) {
      for (const Quantity q : kQuantities) {
        for (const std::string& name : one_rank.names(int64_t(s), q)) {
          const double here = one_rank.at(int64_t(s), q, name);
          farther(of_tensor_[{q, name}], here);
          farther(of_any_[size_t(q)], here);
        }
      }
    }
  }
  double operator()(int64_t step, Quantity q, const std::string& tensor) const {
    const double of_any = std::min(of_any_[size_t(q)], rounding_.of(step, q));
    return std::max({least_, of_any, kFarther * of_tensor_.at({q, tensor})});
  }

 private:
  static void farther(double& most, double x) { most = std::max(most, x); }
  double least_;
  RoundingBound rounding_;
  std::map<std::pair<Quantity, std::string>, double> of_tensor_;
  std::array<double, std::size(kQuantities)> of_any_{};
};

void require_finite(bool finite, const std::string& run) {
  if (!finite)
    throw NumericsError(
        fmt::format("{}: a loss or a gradient is not finite, on one rank: there is nothing to compare a "
                    "layout with. Lower optimizer.lr{}",
                    run, run == "fp16" ? ", or train.loss_scale or train.min_loss_scale" : ""));
}

// A run of one rank in the recipe's precision, and how far from fp64 it may be.
struct OneRank {
  Distances distances;
  AllowedDistance allowed;
  AllowedDistance ill;  // what rounding alone may do where that is beyond the bound of the arithmetic; else 0
  std::vector<std::string> ill_conditioned;  // "the gradient of head.weight": what rounding alone moves farther
};

// How far from a run of one rank the layout's may be.
struct Judgement {
  std::string precision;
  const RunRecord& record;  // of one rank
  Recipe recipe;            // the layout's, in that precision
  AllowedDistance allowed;
  double op_tolerance;  // relative to an operand's sum of absolute values
};

class Verifier {
 public:
  explicit Verifier(const VerifySetup& setup) : setup_(setup), recipe_(setup.recipe) {}

  VerifyReport run() {
    choose_model();
    make_clipping_act();
    report_.layout = layout_words(recipe_);
    report_.steps = setup_.steps;
    Trial one{in_fp64(one_rank_of(recipe_)), config_, *data_, setup_.steps};
    record_ = timed("fp64 on the reference backend, one rank",
                    [&] { return record_run(one, setup_.machine_for(one.recipe), hooks()); });
    for (const RunRecord::Step& step : record_.steps)
      require_finite(std::isfinite(step.loss) && std::isfinite(step.grad_norm), "fp64");
    judge_updates(one.recipe);
    if (report_.equal()) judge_fp64();
    if (report_.equal() && recipe_.run.backend != BackendKind::ref) {
      const Recipe given = recipe_;
      keep_moments_in_full();
      judge_own_precision();
      recipe_ = given;
    }
    if (report_.equal() && recipe_.train.numerics == NumericsChoice::invariant && !is_cut_by_tp()) judge_bits();
    return std::move(report_);
  }

 private:
  TrialHooks hooks() const {
    return {.see = [this, told = now_s()](const TrialMoment& now) mutable { tell_step(now, told); },
            .run = setup_.run,
            .decorate = setup_.decorate};
  }

  // One rank says it for all, every few seconds.
  void tell_step(const TrialMoment& now, double& told) const {
    if (!now.updated || now.params.mesh().world->rank() > 0 || now_s() - told < kTellEvery) return;
    told = now_s();
    say(fmt::format("  step {} of {}", now.step + 1, setup_.steps));
  }

  void say(const std::string& line) const {
    if (setup_.say) setup_.say(line);
  }

  template <class F>
  std::invoke_result_t<F> timed(const std::string& what, const F& f) const {
    say(what + " ...");
    const double began = now_s();
    std::invoke_result_t<F> result = f();
    say(fmt::format("{}: {}", what, format_duration(now_s() - began)));
    return result;
  }

  // Each plan of a trial makes the adapter anew, of this recipe.
  void keep_targets(const PeftConfig& adapter) {
    recipe_.adapter.targets = adapter.targets;
    config_.adapter.reset();
    config_.spec.adapter.reset();
  }

  // The recipe's own, or its narrow copy.
  void choose_model() {
    const Machine machine = setup_.machine_for(recipe_);
    const RunPlan plan = plan_run(recipe_, *machine.workspace_model);
    recipe_ = trial_recipe(recipe_, setup_.steps);
    config_ = plan.config;
    config_.spec = plan.model;
    if (plan.config.adapter) keep_targets(*plan.config.adapter);
    const double flops = plan.memory.arithmetic.model_flops * mesh_sizes_of(recipe_).world();
    const double seconds =
        2 * double(setup_.steps) * flops / (kReferenceRate * setup_.machine_for(one_rank_of(recipe_)).threads);
    const bool whole = setup_.whole || (plan.memory.arithmetic.num_params <= kMostParams && seconds <= kMostSeconds);
    if (!whole) std::tie(recipe_, config_) = narrow(plan);
    if (whole)
      for (const Recipe& run : {recipe_, in_fp64(one_rank_of(recipe_))}) require_room_here(run);
    const bool own_data = whole && has_token_files(recipe_);
    data_ = own_data ? open_token_files(recipe_, config_.spec) : random_tokens(recipe_, config_, setup_.steps);
    report_.model =
        fmt::format("{} ({}), {}", whole ? setup_.recipe.model.path : "a narrow copy of " + setup_.recipe.model.path,
                    sizes_of(recipe_, config_.spec), own_data ? "its own data" : "random tokens");
    if (setup_.recipe.moe.capacity_factor)
      report_.model += "; without moe.capacity_factor, by which layouts drop other rows";
    say(report_.model);
    if (whole && seconds > kMostSeconds) say(fmt::format("this may take {}", format_duration(seconds)));
  }

  void require_room_here(const Recipe& tried) const {
    const Recipe run = with_own_budget(tried);
    const Machine machine = setup_.machine_for(run);
    require_host_room(run, plan_layout(run, *machine.workspace_model), machine);
  }

  // Where gradients of the first step are too small to be clipped, at half of their norm.
  void make_clipping_act() {
    double& most = recipe_.optimizer.clip_grad;
    if (most <= 0) return;
    double norm = 0;
    TrialHooks measure = hooks();
    measure.see = [&](const TrialMoment& now) { norm = now.grad_norm; };
    const Recipe one = in_fp64(one_rank_of(recipe_));
    run_trial({one, config_, *data_, 1}, setup_.machine_for(one), measure);
    if (norm > most || !std::isfinite(norm) || norm == 0) return;
    most = norm / 2;
    say(fmt::format("gradients are clipped to {:.3g}, half of their norm, to see that they are", most));
  }

  std::pair<Recipe, HfConfig> narrow(const RunPlan& plan) const {
    NarrowCopy copy = narrow_copy(recipe_, config_);
    say(fmt::format("{} parameters are many for fp64 by the reference kernels; --whole insists",
                    format_count(double(plan.memory.arithmetic.num_params))));
    int64_t& least = copy.recipe.optimizer.min_8bit_size;
    if (recipe_.optimizer.name == OptimizerKind::adamw8bit)
      least = std::min(least, kCodeBlock);  // so that the copy's matrices have codes too
    return {copy.recipe, copy.config};
  }

  Distances distances_of(const Recipe& recipe, int64_t steps, const RunRecord& record) const {
    return compare_run({with_own_budget(recipe), config_, *data_, steps}, setup_.machine_for(recipe), hooks(), record);
  }

  // A trial takes other memory than the run, in fp64 or of a narrow copy, and a smaller layout more: it has a budget of
  // its own, halfway between what all its blocks need that keep everything and what they need at least.
  Recipe with_own_budget(Recipe recipe) const {
    if (recipe.parallel.recompute != RecomputeKind::budget) return recipe;
    const RunPlan plan = prepare_run(recipe, config_, 0);
    const RecomputeRange range = recompute_range(recipe, plan, *setup_.machine_for(recipe).workspace_model);
    recipe.parallel.memory_budget = byte_size_text((range.least + range.most) / 2);
    return recipe;
  }

  // Checks that one rank's updates in fp64 follow the optimizer's formula.
  void judge_updates(const Recipe& one) {
    const auto allowed = [](int64_t, Quantity, const std::string&) { return kFp64Tolerance; };
    const auto wrong = first_difference(update_distances(record_, one), record_, allowed);
    if (!wrong) return;
    report_.finding = {.step = wrong->step + 1,
                       .precision = "fp64",
                       .what = to_string(*wrong) + ", on one rank",
                       .tensor = wrong->tensor,
                       .operation = fmt::format("{}, which is {:.2g} from what the formula of {} makes of the same "
                                                "gradients, clipped to {}",
                                                made_after_backward(wrong->quantity), wrong->distance,
                                                one.optimizer.name, one.optimizer.clip_grad),
                       .smallest = {one, {}},
                       .on_one_rank = true};
  }

  void judge_fp64() {
    const Judgement by{.precision = "fp64",
                       .record = record_,
                       .recipe = in_fp64(recipe_),
                       .allowed = [](int64_t, Quantity, const std::string&) { return kFp64Tolerance; },
                       .op_tolerance = 1e-10};
    judge(by, nullptr);
  }

  // A rounding that is one bit off may give a moment in 8 bits the next code, which is a hundredth off: no bound on
  // roundings holds what follows. So codes are compared in fp64 (and to the bit), and here moments are in full.
  void keep_moments_in_full() {
    if (recipe_.optimizer.name != OptimizerKind::adamw8bit) return;
    recipe_.optimizer.name = OptimizerKind::adamw;
    recipe_.optimizer.min_8bit_size = Recipe().optimizer.min_8bit_size;
    const Recipe one = in_fp64(one_rank_of(recipe_));
    record_ = timed("fp64 with moments in full, one rank", [&] {
      return record_run({one, config_, *data_, setup_.steps}, setup_.machine_for(one), hooks());
    });
  }

  void judge_own_precision() {
    const Recipe one = one_rank_of(recipe_);
    const Distances distances = timed(fmt::format("{} on {}, one rank", one.train.precision, one.run.backend),
                                      [&] { return distances_of(one, setup_.steps, record_); });
    for (const Distances::Step& step : distances.steps())
      require_finite(std::isfinite(step.loss) && std::isfinite(step.grad_norm),
                     std::string(name_of(one.train.precision)));
    const double least = rounding_bound(recipe_, config_.spec);
    const RoundingBound rounding(recipe_, config_.spec);
    const OneRank one_rank = allow_one_rank(distances, rounding);
    const MeasuredBound bound(distances, {least, unit_roundoff(recipe_.train.precision)}, rounding);
    const Judgement by{.precision = std::string(name_of(recipe_.train.precision)),
                       .record = record_,
                       .recipe = recipe_,
                       .allowed =
                           [&](int64_t step, Quantity q, const std::string& tensor) {
                             return std::max(bound(step, q, tensor), one_rank.ill(step, q, tensor));
                           },
                       .op_tolerance = recipe_.train.precision == PrecisionChoice::f32 ? 16 * least : 0.05};
    judge(by, &one_rank);
  }

  // What the arithmetic explains; where one rank is farther off, what roundings do that are put into fp64.
  OneRank allow_one_rank(const Distances& distances, const RoundingBound& rounding) const {
    OneRank one{.distances = distances,
                .allowed = [rounding](int64_t step, Quantity q, const std::string&) { return rounding.of(step, q); },
                .ill = [](int64_t, Quantity, const std::string&) { return 0.0; },
                .ill_conditioned = {}};
    if (!first_difference(distances, record_, one.allowed)) return one;
    const Recipe exact = in_fp64(one_rank_of(recipe_));
    TrialHooks rounds = hooks();
    rounds.decorate = rounded_to(recipe_.train.precision);
    const Distances measured =
        timed(fmt::format("fp64 with results rounded to {}, one rank", recipe_.train.precision), [&] {
          return compare_run({exact, config_, *data_, setup_.steps}, setup_.machine_for(exact), rounds, record_);
        });
    const AllowedDistance by_arithmetic = one.allowed;
    one.ill = [=](int64_t step, Quantity q, const std::string& tensor) {
      const double may_be = kByChance * rounding.beside_results() * measured.at(step, q, tensor);
      return may_be > by_arithmetic(step, q, tensor) ? may_be : 0;
    };
    one.allowed = [by_arithmetic, ill = one.ill](int64_t step, Quantity q, const std::string& tensor) {
      return std::max(by_arithmetic(step, q, tensor), ill(step, q, tensor));
    };
    for (const Difference& d : differences(distances, record_, by_arithmetic))
      if (d.distance <= one.allowed(d.step, d.quantity, d.tensor)) one.ill_conditioned.push_back(to_string(d));
    std::sort(one.ill_conditioned.begin(), one.ill_conditioned.end());
    one.ill_conditioned.erase(std::unique(one.ill_conditioned.begin(), one.ill_conditioned.end()),
                              one.ill_conditioned.end());
    return one;
  }

  bool is_cut_by_tp() const {
    const std::optional<TeacherAxes> teacher = teacher_axes_of(recipe_);
    return recipe_.parallel.tp > 1 || (teacher && teacher->tp > 1);
  }

  // Checks bit equality, which invariant numerics promise for every layout without tp.
  void judge_bits() {
    const Recipe one = one_rank_of(recipe_);
    const RunRecord record = timed("invariant numerics, one rank", [&] {
      return record_run({one, config_, *data_, setup_.steps}, setup_.machine_for(one), hooks());
    });
    const Judgement by{.precision = fmt::format("{} to the bit", recipe_.train.precision),
                       .record = record,
                       .recipe = recipe_,
                       .allowed = [](int64_t, Quantity, const std::string&) { return 0.0; },
                       .op_tolerance = 1e-6};
    judge(by, nullptr);
  }

  void judge(const Judgement& by, const OneRank* one_rank) {
    const Distances layout = timed(fmt::format("{} on {}, {}", by.precision, by.recipe.run.backend, report_.layout),
                                   [&] { return distances_of(by.recipe, setup_.steps, by.record); });
    VerifyReport::Pass pass{by.precision, std::string(name_of(by.recipe.run.backend)), {}, {}};
    if (one_rank) pass.ill_conditioned = one_rank->ill_conditioned;
    for (const Quantity q : kQuantities) pass.rows.push_back(row_of(q, layout, by, one_rank));
    report_.passes.push_back(std::move(pass));
    if (one_rank) {
      if (const auto first = first_difference(one_rank->distances, by.record, one_rank->allowed))
        return find_out_one_rank(by, *first);
    }
    if (const auto first = first_difference(layout, by.record, by.allowed)) find_out(by, *first);
  }

  // Where the layout is farthest; where one rank is, if that is beyond what it may be.
  static VerifyReport::Row row_of(Quantity q, const Distances& layout, const Judgement& by, const OneRank* one_rank) {
    Difference worst = worst_of(layout, q, by.allowed);
    if (one_rank) {
      const Difference of_one = worst_of(one_rank->distances, q, one_rank->allowed);
      if (!(of_one.distance <= of_one.allowed)) worst = of_one;
    }
    const auto& [step, quantity, tensor, distance, most] = worst;
    return {.quantity = q,
            .one_rank = one_rank ? one_rank->distances.at(step, q, tensor) : 0,
            .one_rank_allowed = one_rank ? one_rank->allowed(step, q, tensor) : 0,
            .layout = layout.at(step, q, tensor),
            .allowed = by.allowed(step, q, tensor),
            .step = step + 1,
            .tensor = tensor};
  }

  // One rank is wrong in its own precision: which operation is, beside the same one in fp64?
  void find_out_one_rank(const Judgement& by, const Difference& first) {
    const Recipe one = one_rank_of(by.recipe);
    VerifyReport::Finding found{.step = first.step + 1,
                                .precision = by.precision,
                                .what = to_string(first) + ", on one rank",
                                .tensor = first.tensor,
                                .operation = {},
                                .smallest = {one, {}},
                                .on_one_rank = true};
    OpLog exact, own;
    timed("comparing every operation of that step on one rank", [&] {
      log_ops(in_fp64(one), first.step, exact);
      log_ops(one, first.step, own);
      return true;
    });
    const auto op = own.first_difference(exact, by.op_tolerance);
    const bool after = first.quantity == Quantity::states || first.quantity == Quantity::weights;
    found.operation = after ? made_after_backward(first.quantity)
                      : !op ? without_operation(first, own.num_comparable(exact))
                      : by.precision == "fp16" && !op->name.forward
                          ? "an operation of backward: all of forward are equal, "
                            "and backward has the loss scale, which fp64 has not"
                          : say_operation(*op, {"in fp64", "in " + by.precision});
    report_.finding = std::move(found);
  }

  // Runs the layout for `steps` steps.
  std::optional<Difference> difference_of(const Judgement& by, const Recipe& recipe, int64_t steps) const {
    return first_difference(distances_of(recipe, steps, by.record), by.record, by.allowed);
  }

  void find_out(const Judgement& by, const Difference& first) {
    const auto differs = [&](const Recipe& less) -> std::optional<bool> {
      try {
        check_supported(parse_recipe(to_toml(less), "verify", {}));
        return timed("looking for the cause: " + layout_words(less),
                     [&] { return difference_of(by, less, first.step + 1).has_value(); });
      } catch (const ConfigError&) { return {}; } catch (const PlacementError&) {
        return {};
      }
    };
    VerifyReport::Finding found{.step = first.step + 1,
                                .precision = by.precision,
                                .what = to_string(first),
                                .tensor = first.tensor,
                                .operation = {},
                                .smallest = smallest_layout(by.recipe, differs)};
    found.operation = operation_of(by, found.smallest.recipe, first.step);
    report_.finding = std::move(found);
  }

  void log_ops(const Recipe& recipe, int64_t step, OpLog& log) const {
    TrialHooks watched = hooks();
    watched.ops = &log;
    watched.ops_step = step;
    run_trial({with_own_budget(recipe), config_, *data_, step + 1}, setup_.machine_for(recipe), watched);
  }

  // Names the operation of that step at which the results part.
  std::string operation_of(const Judgement& by, const Recipe& layout, int64_t latest) const {
    const auto first = difference_of(by, layout, latest + 1);
    if (!first) return "not found: it did not come again";
    Recipe one = one_rank_of(by.recipe);
    if (layout.parallel.recompute != RecomputeKind::budget)  // which is of the ranks of a layout
      one.parallel.recompute = layout.parallel.recompute;    // the same operations
    OpLog of_one, of_many;
    return timed("comparing every operation of that step", [&] {
      log_ops(one, first->step, of_one);
      log_ops(layout, first->step, of_many);
      const auto op = of_many.first_difference(of_one, by.op_tolerance);
      if (op) return say_operation(*op, {"on one rank", "on the layout"});
      return without_operation(*first, of_many.num_comparable(of_one));
    });
  }

  struct Sides {
    std::string one, many;
  };
  static std::string say_operation(const OpLog::Difference& d, const Sides& sides) {
    const std::string sums = fmt::format("its sum is {:.6g} {} and {:.6g} {}", d.one, sides.one, d.many, sides.many);
    const std::string where = to_string(d.name);
    if (!d.read) return fmt::format("{}: {}; what it read was equal, where it can be compared", where, sums);
    return fmt::format(
        "what brought {} there between ranks (a collective, the fetch of a weight): {}, and nothing before it differs",
        where, sums);
  }

  static std::string without_operation(const Difference& first, int64_t compared) {
    return fmt::format("{}: all {} operands of forward and backward that can be compared are equal",
                       made_after_backward(first.quantity), compared);
  }

  static std::string made_after_backward(Quantity q) {
    if (q == Quantity::gradients) return "the sum of this gradient over ranks or micro-batches";
    if (q == Quantity::states || q == Quantity::weights)
      return "the update: the optimizer, or what clips its gradients and divides them by the loss scale";
    return "the sum of it over ranks";
  }

  const VerifySetup& setup_;
  Recipe recipe_;  // in its own precision
  HfConfig config_;
  std::shared_ptr<const TrainingSamples> data_;
  RunRecord record_;  // in fp64, of one rank
  VerifyReport report_;
};

}  // namespace

VerifyReport verify(const VerifySetup& setup) { return Verifier(setup).run(); }

}  // namespace weft
