// What a dry run need not repeat: the times of a loop in the schedule that are like the one before.
#include <algorithm>
#include <iterator>

#include "weft/step/executor.h"

namespace weft {
namespace {

constexpr int64_t kAtTheEnd = 2;  // times of a loop that are always run: the last micro-batch is reduced otherwise

template <class T>
std::vector<T> without(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

template <class T>
std::vector<T> shifted(std::vector<T> all, int64_t by) {
  for (T& i : all) i.micro_batch += by;
  return all;
}

// Bytes alone: the number of micro-batches alive may grow from time to time.
bool same_bytes(const StepMemory& a, StepMemory b) {
  for (size_t c = 0; c < b.chunks.size(); ++c) b.chunks[c].slots = a.chunks[c].slots;
  return a == b;
}

}  // namespace

Executor::InFlightNow Executor::in_flight() const {
  InFlightNow now;
  for (const ChunkState& chunk : chunks_) {
    auto& here = now.emplace_back();
    for (const auto& [micro_batch, m] : chunk.in_flight)
      here.push_back({micro_batch, m.till_dgrad != nullptr, m.dgrad_till_wgrad != nullptr});
  }
  return now;
}

// Two times in a row that hold as much memory and send as much leave the same state, but for higher micro-batches.
void Executor::count(const Loop& loop, const StepInput& input) {
  Traffic last;
  bool passed_over = false;
  for (int64_t time = 0; time < loop.times; ++time) {
    const InFlightNow before = in_flight();
    const Traffic sent = *traffic_;
    const StepMemory held = used();
    for (size_t i = 0; i < loop.length; ++i) act(step_.schedule[loop.first + size_t(time) * loop.length + i], input);
    const Traffic more = traffic_->since(sent);
    const int64_t left = loop.times - 1 - time - kAtTheEnd;
    const bool repeats = time > 0 && more == last && same_bytes(held, used());
    last = more;
    if (passed_over || !repeats || left <= 0) continue;
    passed_over = pass_over({loop.first + size_t(time) * loop.length, loop.length, left, loop.shift}, before);
    if (!passed_over) continue;
    traffic_->add(more, left);
    time += left;
  }
}

// As if the actions `like`, which have just been run, had been run so many times more: micro-batches in flight are
// later ones, more of them, or fewer. Returns whether it could; nothing has happened where not.
bool Executor::pass_over(const Loop& like, const InFlightNow& before) {
  const InFlightNow after = in_flight();
  for (size_t c = 0; c < chunks_.size(); ++c) {
    const bool begun = !without(after[c], before[c]).empty(), ended = !without(before[c], after[c]).empty();
    const bool acts = std::any_of(step_.schedule.begin() + int64_t(like.first),
                                  step_.schedule.begin() + int64_t(like.first + like.length),
                                  [&](const Action& a) { return size_t(a.chunk) == c; });
    if (acts && begun == ended && after[c] != shifted(before[c], like.shift)) return false;
  }
  for (size_t c = 0; c < chunks_.size(); ++c) {
    const auto begun = without(after[c], before[c]), ended = without(before[c], after[c]);
    if (after[c] == shifted(before[c], like.shift)) {
      move_in_flight(int(c), like.times * like.shift);
      continue;
    }
    for (int64_t time = 1; time <= like.times; ++time) {
      for (const InFlightKey& i : begun) add_in_flight(chunks_[c], i.micro_batch, i.micro_batch + time * like.shift);
      for (const InFlightKey& i : ended) end_in_flight(chunks_[c], i.micro_batch + time * like.shift);
    }
  }
  pass_over_gradients(like);
  return true;
}

void Executor::move_in_flight(int chunk, int64_t shift) {
  std::map<int64_t, InFlight> moved;
  for (auto& [micro_batch, m] : chunks_[size_t(chunk)].in_flight) moved[micro_batch + shift] = m;
  chunks_[size_t(chunk)].in_flight = std::move(moved);
  links_.pass_over(chunk, shift);
}

// Micro-batch `added`, of which as much is kept as of `like`.
void Executor::add_in_flight(ChunkState& chunk, int64_t like, int64_t added) {
  InFlight m = chunk.in_flight.at(like);
  const auto take = [](Slots& slots, Arena*& arena) {
    if (arena == nullptr) return;
    const int64_t bytes = std::exchange(arena, &slots.take())->used();
    arena->alloc(DType::u8, {bytes});
  };
  take(chunk.till_dgrad, m.till_dgrad);
  take(chunk.till_wgrad, m.till_wgrad);
  take(chunk.dgrad_till_wgrad, m.dgrad_till_wgrad);
  chunk.in_flight.emplace(added, m);
}

void Executor::end_in_flight(ChunkState& chunk, int64_t micro_batch) {
  const auto found = chunk.in_flight.find(micro_batch);
  WEFT_CHECK(found != chunk.in_flight.end(), "micro-batch {} is not in flight", micro_batch);
  const InFlight& m = found->second;
  if (m.till_dgrad != nullptr) chunk.till_dgrad.give(*m.till_dgrad);
  if (m.dgrad_till_wgrad != nullptr) chunk.dgrad_till_wgrad.give(*m.dgrad_till_wgrad);
  chunk.till_wgrad.give(*m.till_wgrad);
  chunk.in_flight.erase(found);
}

// The gradients that would have been reduced.
void Executor::pass_over_gradients(const Loop& like) {
  if (!step_.order.tree) return;
  std::map<int, std::vector<int64_t>> reduced;  // [unit] micro-batches of one time
  for (size_t i = like.first; i < like.first + like.length; ++i) {
    const Action& a = step_.schedule[i];
    for (const Instruction& in : chunks_[size_t(a.chunk)].instructions.at(a.what))
      if (in.op == Instruction::Op::reduce_gradients) reduced[in.at].push_back(a.micro_batch);
  }
  for (const auto& [unit, once] : reduced) {
    std::vector<int64_t> all;
    for (int64_t time = 1; time <= like.times; ++time)
      for (const int64_t i : once) all.push_back(i + time * like.shift);
    std::sort(all.begin(), all.end());
    for (size_t first = 0, end = 0; first < all.size(); first = end) {
      while (end < all.size() && all[end] - all[first] == int64_t(end - first)) ++end;
      state_.params.pass_over(unit, all[first], all[first] + int64_t(end - first));
    }
  }
}

}  // namespace weft
