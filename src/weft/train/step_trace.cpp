#include "weft/train/step_trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

enum TraceTrack : int { kActions, kInstructions, kOps };

int64_t trace_clock_ns() { return int64_t(now_s() * 1e9); }

std::string_view kind_of(Do what) {
  switch (what) {
    case Do::forward:
      return "forward";
    case Do::backward:
      return "backward";
    case Do::dgrad:
      return "dgrad";
    case Do::wgrad:
      return "wgrad";
  }
  WEFT_CHECK(false, "no kind {} of action", int(what));
}

// Whole lines of a Chrome trace, each with a comma before it.
std::string line_of(const nlohmann::json& event) { return ",\n" + event.dump(); }

}  // namespace

StepTrace::StepTrace(RankRun& rank) : rank_(rank), traced_(rank.backend, trace_clock_ns) {}

void StepTrace::wait_begin(TrainingStep::Watch& watch) {
  watch.backend = &traced_;
  watch.begins = [this, before = std::move(watch.begins)](const Action* action, const Instruction& i) {
    if (before) before(action, i);
    seen_.push_back({.action = action != nullptr ? std::optional(*action) : std::nullopt,
                     .instruction = i,
                     .first_op = traced_.num_recorded(),
                     .began_ns = trace_clock_ns()});
  };
  watch.ends = [this] { seen_.back().ended_ns = trace_clock_ns(); };
  traced_.wait_clear();
  origin_ns_ = wait_common_moment();
}

// A moment on this rank's clock that is the same on all. Ranks leave a barrier together but for what else their cores
// do: how far a clock is from rank 0's is the median of several. Those of one host have one clock, and are not told
// apart.
int64_t StepTrace::wait_common_moment() const {
  constexpr int kBarriers = 9;
  constexpr double kOneClock_ns = 5e6;
  Communicator& world = *rank_.mesh.world;
  std::vector<double> mine, all(size_t(kBarriers * world.size()));
  for (int i = 0; i < kBarriers; ++i) {
    barrier(world);
    mine.push_back(double(trace_clock_ns()));
  }
  world.all_gather({mine.data(), DType::f64, {kBarriers}}, {all.data(), DType::f64, {kBarriers * world.size()}}).wait();
  std::vector<double> apart;
  for (int i = 0; i < kBarriers; ++i) apart.push_back(mine[size_t(i)] - all[size_t(i)]);
  std::nth_element(apart.begin(), apart.begin() + kBarriers / 2, apart.end());
  const double offset = apart[kBarriers / 2];
  return int64_t(all[kBarriers - 1] + (std::abs(offset) < kOneClock_ns ? 0 : offset));
}

void StepTrace::end() {
  traced_.wait_all();
  ended_ns_ = trace_clock_ns();
}

std::string StepTrace::name_of_instruction(const Seen& s) const {
  const std::string object =
      object_of(s.instruction, rank_.state.model.layers(s.action ? s.action->chunk : 0), rank_.state.params);
  return fmt::format("{}{}{}", name_of(s.instruction.op), object.empty() ? "" : " ", object);
}

// An action is from its first instruction to its last.
std::vector<StepTrace::Slice> StepTrace::slices(size_t most) const {
  std::vector<Slice> all;
  int64_t done_ns = origin_ns_;
  const std::optional<Action>* open = nullptr;  // of the action that the last slice of its track is of
  size_t action_at = 0;
  for (const Seen& s : seen_) {
    const int64_t micro_batch = s.action ? s.action->micro_batch : -1;
    if (s.action && (open == nullptr || *open != s.action)) {
      action_at = all.size();
      all.push_back({kActions, to_string(*s.action), std::string(kind_of(s.action->what)), s.began_ns, 0, micro_batch});
    }
    open = s.action ? &s.action : nullptr;
    if (open != nullptr) all[action_at].ended_ns = s.ended_ns;
    all.push_back({kInstructions, name_of_instruction(s), std::string(name_of(s.instruction.op)), s.began_ns,
                   s.ended_ns, micro_batch});
    done_ns = s.ended_ns;
  }
  all.push_back({kActions, "norm and update", "update", done_ns, ended_ns_, -1});
  std::vector<Slice> ops = this->ops();
  const size_t kept = std::min(ops.size(), most > all.size() ? most - all.size() : 0);
  std::nth_element(ops.begin(), ops.begin() + std::ptrdiff_t(kept), ops.end(),
                   [](const Slice& a, const Slice& b) { return a.ended_ns - a.began_ns > b.ended_ns - b.began_ns; });
  all.insert(all.end(), ops.begin(), ops.begin() + std::ptrdiff_t(kept));
  std::stable_sort(all.begin(), all.end(), [](const Slice& a, const Slice& b) { return a.began_ns < b.began_ns; });
  return all;
}

std::vector<StepTrace::Slice> StepTrace::ops() const {
  std::vector<Slice> all;
  auto next = seen_.begin();
  for (int64_t number = traced_.num_dropped(); const TraceEvent& e : traced_.events()) {
    while (next != seen_.end() && next->first_op <= number) ++next;  // behind the instruction that the op is of
    const bool is_of_action = next != seen_.begin() && std::prev(next)->action;
    all.push_back({kOps, std::string(e.op) + (e.op == Matmul::kName ? " " + to_string(e.product) : ""), "op",
                   e.start_ns, e.end_ns, is_of_action ? std::prev(next)->action->micro_batch : -1});
    ++number;
  }
  return all;
}

std::string StepTrace::wait_gather(int64_t step, int64_t most_events) const {
  Communicator& world = *rank_.mesh.world;
  const int me = world.rank();
  std::string mine;
  for (const Slice& s : slices(size_t(most_events / world.size()))) {
    nlohmann::json event{{"name", s.name},
                         {"cat", s.kind},
                         {"ph", "X"},
                         {"pid", me},
                         {"tid", s.track},
                         {"ts", double(s.began_ns - origin_ns_) / 1e3},
                         {"dur", double(s.ended_ns - s.began_ns) / 1e3}};
    if (s.micro_batch >= 0) event["args"] = {{"micro_batch", s.micro_batch}};
    mine += line_of(event);
  }
  auto length = double(mine.size());
  std::vector<double> lengths(size_t(world.size()));
  world.all_gather({&length, DType::f64, {1}}, {lengths.data(), DType::f64, {world.size()}}).wait();
  if (me != 0) {
    world.send({mine.data(), DType::u8, {int64_t(mine.size())}}, 0).wait();
    return {};
  }
  std::string whole =
      fmt::format("{{\"traceEvents\":[\n{{\"name\":\"step\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"step\":{}}}}}", step);
  for (int rank = 0; rank < world.size(); ++rank) {
    whole += line_of(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    for (const auto& [track, name] : {std::pair(kActions, "actions"), {kInstructions, "instructions"}, {kOps, "ops"}})
      whole += line_of(
          {{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", int(track)}, {"args", {{"name", name}}}});
    if (rank == 0) {
      whole += mine;
      continue;
    }
    std::string theirs(size_t(lengths[size_t(rank)]), '\0');
    world.recv({theirs.data(), DType::u8, {int64_t(theirs.size())}}, rank).wait();
    whole += theirs;
  }
  return whole + "\n]}\n";
}

}  // namespace weft
