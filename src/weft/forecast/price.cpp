#include "weft/forecast/price.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/error.h"
#include "weft/forecast/stage_work.h"
#include "weft/schedule/simulate.h"
#include "weft/schedule/step_time.h"

namespace weft {
namespace {

double seconds_of(const TransferWork& t, const ProgramProfile& p) {
  const auto once = [&](LinkTime time) {
    if (p.by_rank > 0) time.hops = time.hops_by_rank;
    return seconds_of(time, p.network, p.hop_us * 1e-6);
  };
  const bool sliced = p.slices > 0 && t.in_slices;
  return double(t.calls) * (sliced ? once(t.in_slices->message) + once(t.in_slices->gather) : once(t.each));
}

// The part of its rate that a program reaches in work of a class.
double part_of(const ProgramProfile& p, WorkClass c) {
  switch (c) {
    case WorkClass::products:
      return p.products;
    case WorkClass::products8:
      return p.products8;
    case WorkClass::products4:
      return p.products4;
    case WorkClass::products_f32:
      return 1;
    case WorkClass::grouped:
      return p.grouped;
    case WorkClass::grouped8:
      return p.grouped * p.products8 / p.products;
    case WorkClass::attention:
      return p.attention;
    case WorkClass::attention_backward:
      return p.attention_backward;
    case WorkClass::scores:
      return p.scores > 0 ? 1 / p.scores : 0;
    case WorkClass::casts:
      return p.casts > 0 ? 1 / p.casts : 0;
    case WorkClass::memory:
      return p.memory;
    case WorkClass::update:
      break;
  }
  return p.update;
}

// What is left of a rate on devices that are newer than the program's kernels.
double newer_part(const ProgramProfile& p, WorkClass c, int generation) {
  switch (c) {
    case WorkClass::products:
    case WorkClass::grouped:
      return std::pow(p.newer, generation);
    case WorkClass::products8:
    case WorkClass::grouped8:
      return std::pow(p.newer, std::max(0, generation - 1));  // none before Hopper has fp8
    case WorkClass::attention:
    case WorkClass::attention_backward:
      return std::pow(p.newer_attention, generation);
    default:
      return 1;
  }
}

// A program on a device: what a second at best rates takes in each class.
struct Pace {
  const ProgramProfile& p;
  std::array<double, kWorkClasses> stretch;
};

Pace pace_of(const ProgramProfile& p, int generation) {
  Pace pace{p, {}};
  for (int c = 0; c < kWorkClasses; ++c) {
    const double part = part_of(p, WorkClass(c)) * newer_part(p, WorkClass(c), generation);
    pace.stretch[size_t(c)] = part > 0 ? 1 / part : 0;
  }
  return pace;
}

// Seconds by axis, of the few that a run has.
class Exposed {
 public:
  void add(const std::string& axis, double seconds) {
    for (size_t i = 0; i < count_; ++i)
      if (*all_[i].first == axis) {
        all_[i].second += seconds;
        return;
      }
    WEFT_CHECK(count_ < all_.size(), "more axes than there are");
    all_[count_++] = {&axis, seconds};
  }
  const auto* begin() const { return all_.data(); }
  const auto* end() const { return all_.data() + count_; }

 private:
  std::array<std::pair<const std::string*, double>, 16> all_ = {};
  size_t count_ = 0;
};

// Of one action, of the end of a step, or of several.
struct Priced {
  std::array<double, kWorkClasses> compute_s = {};
  double compute = 0, launch = 0, slowdown = 0;
  Exposed exposed = {};
  double busy() const {
    double all = compute + launch + slowdown;
    for (const auto& [axis, seconds] : exposed) all += seconds;
    return all;
  }
  void add(const Priced& other, double times) {
    for (size_t c = 0; c < compute_s.size(); ++c) compute_s[c] += other.compute_s[c] * times;
    compute += other.compute * times;
    launch += other.launch * times;
    slowdown += other.slowdown * times;
    for (const auto& [axis, seconds] : other.exposed) exposed.add(*axis, seconds * times);
  }
};

Priced price_compute(const ComputeWork& work, const Pace& pace) {
  Priced priced;
  for (size_t c = 0; c < work.seconds.size(); ++c) {
    priced.compute_s[c] = work.seconds[c] * pace.stretch[c];
    priced.compute += priced.compute_s[c];
  }
  const auto kernels = double(work.kernels);
  priced.launch = std::max(0.0, kernels * pace.p.launch_us * 1e-6 - priced.compute) + kernels * pace.p.gap_us * 1e-6;
  return priced;
}

// What goes on beside computation of `beside` seconds; it slows that down, and ends later where it is longer.
void add_hidden(Priced& priced, const TransferWork& t, double seconds, double beside, double slowdown) {
  priced.exposed.add(t.axis, std::max(0.0, seconds - beside));
  priced.slowdown += slowdown * std::min(seconds, beside);
}

// An axis of a teacher's own is waited for as the student's is.
std::string_view axis_of(const TransferWork& t) {
  constexpr std::string_view kTeacher = "teacher_";
  const std::string_view axis = t.axis;
  return axis.starts_with(kTeacher) ? axis.substr(kTeacher.size()) : axis;
}

Priced price_action(const ActionWork& action, const Pace& pace) {
  const ProgramProfile& p = pace.p;
  Priced priced = price_compute(action.compute, pace);
  priced.launch += p.action_ms * 1e-3;
  const double computes = priced.compute + priced.launch;
  for (const TransferWork& t : action.transfers) {
    const double seconds = seconds_of(t, p);
    const std::string_view axis = axis_of(t);
    if (axis == "tp")
      priced.exposed.add(t.axis, seconds * p.tp_exposed + double(t.calls) * p.tp_wait_us * 1e-6);
    else if (axis == "cp")
      priced.exposed.add(t.axis, seconds * p.cp_exposed);
    else if (sends_rows_to_experts(t.axis))
      priced.exposed.add(t.axis, seconds * (t.inside ? p.ep_inside : p.ep_exposed));
    else if (axis == "pp" || axis == "world")  // over which a teacher's ranks send what they find
      priced.exposed.add(t.axis, seconds * p.pp_exposed);
    else
      add_hidden(priced, t, seconds, computes * p.gather_hidden, p.slowdown);
  }
  return priced;
}

// `forward` and `backward`: seconds that a micro-batch computes on the stage.
Priced price_end(const StageWork& stage, double forward, double backward, const Pace& pace) {
  const ProgramProfile& p = pace.p;
  Priced priced = price_compute(stage.end, pace);
  priced.launch = 0;
  for (const TransferWork& t : stage.end_transfers) {
    const double seconds = seconds_of(t, p);
    if (t.axis == "tp" || t.axis == "pp" || t.axis == "world")
      priced.exposed.add(t.axis, seconds);
    else
      add_hidden(priced, t, seconds, p.reduce_hidden * (t.kind == Traffic::Kind::all_gather ? forward : backward),
                 p.slowdown);
  }
  return priced;
}

// The actions of a kind of stage, priced.
struct PricedStage {
  Priced before;       // its forward-only passes of a step
  Priced busy;         // all its actions of a step, without the end
  double seconds = 0;  // of them
  Priced end;
  std::map<std::pair<char, int>, double> mean;  // of [what, chunk]
};

PricedStage price_stage(const StageWork& stage, const RunWork& run, const Pace& pace) {
  PricedStage priced;
  std::map<std::pair<char, int>, std::pair<double, double>> sums;  // seconds, times
  double forward = 0, backward = 0;
  if (stage.before.times > 0) priced.before = price_action(stage.before, pace);
  for (const ActionWork& a : stage.actions) {
    const Priced one = price_action(a, pace);
    const double times = double(a.times), busy = one.busy();
    priced.busy.add(one, times);
    priced.seconds += busy * times;
    auto& [seconds, count] = sums[{char(a.what), a.chunk}];
    seconds += busy * times;
    count += times;
    (a.what == Do::forward ? forward : backward) += (one.compute + one.launch) * times / double(run.num_micro_batches);
  }
  for (const auto& [key, sum] : sums) priced.mean[key] = sum.first / sum.second;
  priced.end = price_end(stage, forward, backward, pace);
  return priced;
}

// What each action of each virtual stage takes.
ActionTimes times_of(const RunWork& run, const std::vector<PricedStage>& kinds) {
  ActionTimes times = uniform_times(run.pipeline, 0, 0, 0);
  for (int v = 0; v < run.pipeline.num_virtual_stages(); ++v) {
    const PipelinePlace at = place_of(run.pipeline, v);
    const auto& mean = kinds[size_t(run.kind_of[size_t(at.stage)])].mean;
    const auto of = [&](Do what) {
      const auto found = mean.find({char(what), at.chunk});
      return found == mean.end() ? 0 : found->second;
    };
    times.forward[size_t(v)] = of(Do::forward);
    times.dgrad[size_t(v)] = of(Do::dgrad) + of(Do::backward);
    times.wgrad[size_t(v)] = of(Do::wgrad);
  }
  return times;
}

// The step of all stages by their schedule, without the end.
double simulated_seconds(const RunWork& run, const std::vector<PricedStage>& kinds) {
  return seconds_of_step(run.pipeline, times_of(run, kinds), run.num_micro_batches);
}

// Forward-only passes of all stages: micro-batches follow each other through them. A teacher with stages of its own has
// one micro-batch at a time in them.
double seconds_before(const RunWork& run, const std::vector<PricedStage>& kinds) {
  double through = 0, slowest = 0;  // of all micro-batches
  for (const int kind : run.kind_of) {
    const double busy = kinds[size_t(kind)].before.busy();
    through += busy;
    slowest = std::max(slowest, busy);
  }
  if (run.mesh.teacher) return slowest * run.mesh.teacher->pp;
  const auto m = double(run.num_micro_batches);
  return through / m + slowest * (m - 1) / m;
}

struct PricedRun {
  std::vector<PricedStage> kinds;
  size_t slowest = 0;  // of kinds
  double others = 0;   // what a micro-batch takes in all stages but one of the slowest
};

PricedRun price_stages(const RunWork& run, const ProgramProfile& p) {
  PricedRun priced;
  const Pace pace = pace_of(p, run.generation);
  for (const StageWork& stage : run.kinds) priced.kinds.push_back(price_stage(stage, run, pace));
  for (size_t k = 1; k < priced.kinds.size(); ++k)
    if (priced.kinds[k].seconds > priced.kinds[priced.slowest].seconds) priced.slowest = k;
  for (const int kind : run.kind_of) priced.others += priced.kinds[size_t(kind)].seconds;
  priced.others = (priced.others - priced.kinds[priced.slowest].seconds) / double(run.num_micro_batches);
  return priced;
}

}  // namespace

double StepForecast::compute() const { return std::accumulate(compute_s.begin(), compute_s.end(), 0.0); }
double StepForecast::exposed() const {
  double all = 0;
  for (const auto& [axis, seconds] : exposed_s) all += seconds;
  return all;
}

StepForecast price_step(const RunWork& run, const ProgramProfile& p, const PipelineTime& how) {
  const PricedRun priced = price_stages(run, p);
  const PricedStage& slowest = priced.kinds[priced.slowest];
  StepForecast forecast;
  if (run.mesh.pp > 1)
    forecast.bubble_s = how.simulated ? std::max(0.0, simulated_seconds(run, priced.kinds) - slowest.seconds)
                                      : how.factor * priced.others / run.pipeline.num_chunks;
  const double before = seconds_before(run, priced.kinds);
  forecast.bubble_s += before - slowest.before.busy();
  const Priced* end = &slowest.end;
  for (const PricedStage& kind : priced.kinds)
    if (kind.end.busy() > end->busy()) end = &kind.end;
  Priced all = slowest.busy;
  all.add(slowest.before, 1);
  all.add(*end, 1);
  forecast.compute_s = all.compute_s;
  forecast.launch_s = all.launch;
  forecast.slowdown_s = all.slowdown;
  for (const auto& [axis, seconds] : all.exposed) forecast.exposed_s[*axis] = seconds;
  forecast.step_s = slowest.before.busy() + slowest.seconds + forecast.bubble_s + end->busy();
  return forecast;
}

double part_on_generation(const ProgramProfile& p, WorkClass c, int generation) { return newer_part(p, c, generation); }

double seconds_of_pass(const ActionWork& pass, const ProgramProfile& p, int generation) {
  return price_action(pass, pace_of(p, generation)).busy();
}

Timeline timeline_of(const RunWork& run, const ProgramProfile& p, int64_t most_micro_batches) {
  return simulate(run.pipeline, schedules_of(run.pipeline, std::min(run.num_micro_batches, most_micro_batches)),
                  times_of(run, price_stages(run, p).kinds));
}

double bubble_factor(const RunWork& run, const ProgramProfile& p) {
  if (run.mesh.pp == 1) return 1;
  const PricedRun priced = price_stages(run, p);
  const double waits = simulated_seconds(run, priced.kinds) - priced.kinds[priced.slowest].seconds;
  return priced.others > 0 ? std::max(0.0, waits) * run.pipeline.num_chunks / priced.others : 1;
}

}  // namespace weft
