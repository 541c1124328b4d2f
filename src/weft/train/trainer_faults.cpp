// What a run does about numbers that are not finite, and about ranks that do not hold alike what they should.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "weft/base/json.h"
#include "weft/comm/agree.h"
#include "weft/ops/checked.h"
#include "weft/schedule/shares.h"
#include "weft/train/nonfinite.h"
#include "weft/train/replica_check.h"
#include "weft/train/trainer.h"

namespace weft {

// The weights are still those of before the step: it runs once more, with the same data and random numbers. What was a
// fault of the machine does not come again, and the run goes on as if it had not been.
TrainingStep::Result Trainer::run_again(const TrainingStep::Result& first, TrainingStep::Watch watch) {
  const std::string what = fmt::format(
      "step {}: loss {}, gradient norm {}{}", step_ + 1, std::abs(first.loss), std::abs(first.grad_norm),
      loss_scale_.kind == LossScale::Kind::none ? ""
                                                : fmt::format(" at the least loss scale, {}", loss_scale_.state.scale));
  const NonFinite found = wait_find_nonfinite(rank_);
  watch.again = true;
  if (watch.begins) watch.begins = replay_->watch(ReplayCheck::Work::own, step_);
  const TrainingStep::Result again = step_run_.run(step_, batch_at(step_), watch);
  const bool transient = again.outcome != TrainingStep::Outcome::stuck;
  if (leads()) {
    nlohmann::json event = found.to_json();
    event["step"] = step_ + 1;
    event["transient"] = transient;
    event["loss"] = first.loss;
    event["grad_norm"] = first.grad_norm;
    records_->event("nonfinite", std::move(event));
  }
  if (!transient) report_nonfinite(what, found);
  if (leads())
    records_->note(
        fmt::format("WARNING: {}: {}. A transient fault: the step ran again, from the same weights and data, and all "
                    "is finite; the run goes on with that. Where it comes back, test the machine's memory",
                    what, found.to_string()));
  return again;
}

// The same step a third time, watched, stops at the first bad value.
void Trainer::report_nonfinite(const std::string& what, const NonFinite& found) {
  const std::string advice = fmt::format(
      "; weights and checkpoints are those of step {}. Lower optimizer.lr, or look at the data of this step", step_);
  go_on_saving(SaveWait::yes);
  const std::string weight = wait_first_bad_weight();
  const std::string began = weight.empty() ? "" : fmt::format("; the step began with {} are not finite", weight);
  Checked watched(rank_.backend, {.finite = true, .memory = *machine_.memory});
  int64_t micro_batch = -1;
  try {
    step_run_.run_batch(batch_at(step_), {.backend = &watched, .begins = [&](const Action* action, const Instruction&) {
                                            micro_batch =
                                                action ? rank_.plan.step.order.global_of(action->micro_batch) : -1;
                                          }});
  } catch (const NumericsError& e) {
    throw NumericsError(fmt::format("{}, and the same when it ran again: first in {}, {}on rank {}{}{}", what, e.what(),
                                    micro_batch < 0 ? "" : fmt::format("micro-batch {}, ", micro_batch),
                                    rank_.mesh.world->rank(), began, advice));
  }
  throw NumericsError(fmt::format("{}, and the same when it ran again: {}{}", what, found.to_string(), advice));
}

// The watch of a step sees its loss and gradients; what the last update made of the weights shows only here.
void Trainer::refuse_bad_weights() {
  if (const std::string bad = wait_first_bad_weight(); !bad.empty())
    throw NumericsError(
        fmt::format("step {}: {} are not finite after the update; it is not saved, and older checkpoints are kept. "
                    "Lower optimizer.lr, or look at the data of this step",
                    step_, bad));
}

// The report of the first rank that keeps a weight that is not finite; the same on every rank.
std::string Trainer::wait_first_bad_weight() {
  return first_text(*rank_.mesh.world, rank_.state.norm->wait_first_nonfinite_weight(rank_.backend));
}

// What this rank has waited for others in this step.
double Trainer::waited_s() const {
  double s = 0;
  for (const auto& [axis, time] : waits_) s += time.blocked_s;
  return s;
}

// Each rank tells now and then how long it has computed, which is what it has not waited for others.
void Trainer::watch_stragglers(double step_s) {
  if (rank_.mesh.world->size() == 1 || machine_.late) return;
  const double wait_s = waited_s();
  compute_s_ += step_s - wait_s;
  wait_s_ += wait_s;
  if (++window_steps_ < StragglerWatch::kWindow) return;
  const auto world = size_t(rank_.mesh.world->size()), me = size_t(rank_.mesh.world->rank());
  std::vector<double> means(2 * world, 0);
  means[me] = std::exchange(compute_s_, 0) / double(window_steps_);
  means[world + me] = std::exchange(wait_s_, 0) / double(window_steps_);
  window_steps_ = 0;
  rank_.mesh.world->all_reduce({means.data(), DType::f64, {int64_t(means.size())}}).wait();
  const std::span<const double> all(means);
  if (balance_) wait_rebalance(all.first(world));
  if (!leads()) return;
  for (const StragglerWatch::Straggler& s : stragglers_.add(step_, all.first(world), all.last(world))) {
    records_->event(s.is_over ? "straggler_over" : "straggler", {{"rank", s.rank},
                                                                 {"step", step_},
                                                                 {"since_step", s.since_step},
                                                                 {"compute_s", s.compute_s},
                                                                 {"median_s", s.median_s},
                                                                 {"wait_s", s.wait_s}});
    records_->note(
        fmt::format("step {}: rank {} {}: it computes {:.3g} s a step, the median of ranks with the same "
                    "work {:.3g} s, and waits {:.3g} s for others",
                    step_, s.rank,
                    s.is_over ? fmt::format("keeps up again, after it was slow since step {}", s.since_step)
                              : fmt::format("is slow since step {}", s.since_step),
                    s.compute_s, s.median_s, s.wait_s));
  }
}

// Whether this rank would take no more memory than it was planned to when the run began.
bool Trainer::has_room_for(const Recipe& recipe) const {
  try {
    const int rank = rank_.mesh.world->rank();
    return plan_run(recipe, *machine_.workspace_model, rank).memory.total_bytes() <= most_bytes_;
  } catch (const ConfigError&) { return false; }  // of a budget that these shares cannot keep
}

// All ranks have the same times, and so come to the same shares.
void Trainer::wait_rebalance(std::span<const double> compute_s) {
  const MeshSizes& mesh = rank_.mesh.sizes;
  std::vector<double> of_dp(size_t(mesh.dp), 0);
  for (int r = 0; r < mesh.world(); ++r) {
    double& slowest = of_dp[size_t(place_of(mesh, r).dp)];
    slowest = std::max(slowest, compute_s[size_t(r)]);
  }
  const std::optional<ShareBalance::Change> change = balance_->add(of_dp);
  if (!change) return;
  Recipe next = recipe_;
  next.parallel.micro_batches = change->shares;
  const bool too_much = any_rank(!has_room_for(next));
  const std::string to = text_of_shares(change->shares);
  if (leads()) {
    const std::string slow = fmt::format(
        "step {}: the slowest data parallel rank, {}, computes {:.3g} s a step, and would {:.3g} s with "
        "parallel.micro_batches = {}",
        step_, change->slowest, change->slowest_s, change->then_s, to);
    records_->note(too_much ? slow + ", for which a rank has no room in the memory that was planned: shares stay"
                            : slow);
    records_->event("rebalance", {{"step", step_},
                                  {"rank", change->slowest},
                                  {"compute_s", change->slowest_s},
                                  {"expected_s", change->then_s},
                                  {"micro_batches", change->shares},
                                  {"done", !too_much}});
  }
  if (too_much)
    balance_->refuse(change->shares);
  else
    shares_ = change->shares;
}

// Every rank is to end with the same error, and the first speaks for all: it has left this barrier when it hears that
// another one fails, and a launcher that ends all with the first that ends leaves it time to speak.
void Trainer::let_first_rank_tell() const {
  barrier(*rank_.mesh.world);
  if (!leads()) std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

// Ends the run before anything that these ranks hold or computed is saved. All ranks call it.
void Trainer::refuse_corrupted(int64_t step, const std::string& what, nlohmann::json event, size_t num_ranks) {
  go_on_saving(SaveWait::yes);
  if (leads()) {
    event["step"] = step;
    records_->event("corrupted", std::move(event));
  }
  let_first_rank_tell();
  throw CorruptionError(
      fmt::format("step {}: {}. Nothing of it is saved, and older checkpoints are kept: the same command goes on from "
                  "the newest{}. Where it comes back, test the memory and processors of {}",
                  step, what, saved_step_ > 0 ? fmt::format(", of step {}", saved_step_) : "",
                  num_ranks == 1 ? "that rank's host" : "these ranks' hosts"));
}

// Before a checkpoint is written, and now and then: what several ranks hold is the same bytes on all of them.
void Trainer::wait_check_replicas() {
  const std::optional<ReplicaDifference> difference =
      wait_compare_replicas(rank_, recipe_.train.numerics != NumericsChoice::nondeterministic);
  if (difference) refuse_corrupted(step_, difference->to_string(), difference->to_json(), difference->others.size());
}

}  // namespace weft
