#include "weft/schedule/simulate.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr double kNotYet = -1;

bool goes_backward(Do what) { return what == Do::dgrad || what == Do::backward; }

int64_t num_micro_batches_in(const std::vector<Schedule>& schedules) {
  int64_t most = 0;
  for (const Schedule& s : schedules)
    for (const Action& a : s) most = std::max(most, a.micro_batch + 1);
  return most;
}

// What one chunk of a rank has done with one micro-batch: the letters of its actions so far, in their order.
class Ledger {
 public:
  Ledger(int num_chunks, int64_t num_micro_batches) : m_(num_micro_batches), done_(size_t(num_chunks * m_)) {}

  // Empty, or why it may not be.
  std::string add(const Action& a) {
    if (a.micro_batch < 0 || a.micro_batch >= m_) return fmt::format("there are {} micro-batches", m_);
    if (a.chunk < 0 || size_t(a.chunk * m_) >= done_.size())
      return fmt::format("there are {} chunks", done_.size() / m_);
    std::string& done = of(a.micro_batch, a.chunk);
    if (done.find(char(a.what)) != std::string::npos) return "it is there twice";
    done += char(a.what);
    if (done == "F" || done == "FB" || done == "FD" || done == "FDW") return "";
    if (done.front() != 'F') return "it comes before its forward";
    return done == "FW" ? "it comes before its dgrad" : "that micro-batch has gone backward already";
  }

  // Empty, or the first that is missing.
  std::string missing() {
    for (int chunk = 0; size_t(chunk * m_) < done_.size(); ++chunk) {
      for (int64_t mb = 0; mb < m_; ++mb) {
        const std::string& done = of(mb, chunk);
        if (done == "FB" || done == "FDW") continue;
        return to_string(Action{done.empty() ? Do::forward : done == "F" ? Do::dgrad : Do::wgrad, mb, chunk});
      }
    }
    return "";
  }

 private:
  std::string& of(int64_t micro_batch, int chunk) { return done_[size_t(chunk * m_ + micro_batch)]; }
  int64_t m_;
  std::vector<std::string> done_;
};

// The run itself. Rows are virtual stages, columns micro-batches.
class Simulation {
 public:
  Simulation(const Pipeline& pipeline, const std::vector<Schedule>& schedules, const ActionTimes& times, Sends sends)
      : pipeline_(pipeline),
        schedules_(schedules),
        times_(times),
        sends_(sends),
        columns_(num_micro_batches_in(schedules)),
        forwards_(size_t(pipeline.num_virtual_stages() * columns_)),
        backwards_(forwards_),
        sent_(size_t(2 * pipeline.num_virtual_stages()), -1) {
    timeline_.ranks.resize(schedules.size());
  }

  Timeline run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < pipeline_.num_stages; ++rank)
        while (step(rank)) moved = true;
    }
    const std::string stuck = waiting_ranks();
    WEFT_CHECK(stuck.empty(), "schedule {} on {} ranks waits for ever: {}", name_of(pipeline_.kind),
               pipeline_.num_stages, stuck);
    return std::move(timeline_);
  }

 private:
  struct Span {
    double start = kNotYet, end = kNotYet;
  };
  // An action that must have ended before another starts (or begun, if `buffer`: it then frees the buffer).
  struct Need {
    Do what;
    int virtual_stage;
    int64_t micro_batch;
    bool buffer = false;
  };

  bool step(int rank) {
    std::vector<TimedAction>& done = timeline_.ranks[size_t(rank)];
    const Schedule& list = schedules_[size_t(rank)];
    if (done.size() == list.size()) return false;
    const Action& a = list[done.size()];
    double start = done.empty() ? 0 : done.back().end;
    for (const Need& need : needs(rank, a)) {
      const Span& span = at(need.what, need.virtual_stage, need.micro_batch);
      if (span.start == kNotYet) return false;
      const bool far = place_of(pipeline_, need.virtual_stage).stage != rank;
      start = std::max(start, need.buffer ? span.start : span.end + (far ? times_.communication : 0));
    }
    const int here = virtual_stage(pipeline_, {rank, a.chunk});
    const TimedAction timed{a, start, start + times_.of(a.what, here)};
    done.push_back(timed);
    timeline_.makespan = std::max(timeline_.makespan, timed.end);
    if (a.what == Do::wgrad) return true;
    at(a.what, here, a.micro_batch) = {timed.start, timed.end};
    last_sent(a.what, here) = a.micro_batch;
    return true;
  }

  std::vector<Need> needs(int rank, const Action& a) {
    const int here = virtual_stage(pipeline_, {rank, a.chunk}), last = pipeline_.num_virtual_stages() - 1;
    std::vector<Need> all;
    if (a.what == Do::forward && here > 0) all.push_back({Do::forward, here - 1, a.micro_batch});
    if (goes_backward(a.what) && here < last) all.push_back({Do::dgrad, here + 1, a.micro_batch});
    if (sends_ == Sends::free || a.what == Do::wgrad) return all;
    const int to = a.what == Do::forward ? here + 1 : here - 1;
    const int64_t before = last_sent(a.what, here);
    if (before >= 0 && to >= 0 && to <= last) all.push_back({a.what, to, before, true});
    return all;
  }

  // "rank 0 before B1 for F1 of virtual stage 1 (rank 1); ..."
  std::string waiting_ranks() {
    std::string text;
    for (int rank = 0; rank < pipeline_.num_stages; ++rank) {
      const Schedule& list = schedules_[size_t(rank)];
      const size_t next = timeline_.ranks[size_t(rank)].size();
      if (next == list.size()) continue;
      for (const Need& need : needs(rank, list[next])) {
        if (at(need.what, need.virtual_stage, need.micro_batch).start != kNotYet) continue;
        const PipelinePlace there = place_of(pipeline_, need.virtual_stage);
        text += fmt::format("{}rank {} before {} for rank {} to {} {} of micro-batch {}, chunk {}",
                            text.empty() ? "" : "; ", rank, to_string(list[next]), there.stage,
                            need.buffer ? "begin" : "end", need.what == Do::forward ? "forward" : "dgrad",
                            need.micro_batch, there.chunk);
      }
    }
    return text;
  }

  Span& at(Do what, int virtual_stage, int64_t micro_batch) {
    return (what == Do::forward ? forwards_ : backwards_)[size_t(virtual_stage * columns_ + micro_batch)];
  }
  int64_t& last_sent(Do what, int virtual_stage) { return sent_[size_t(2 * virtual_stage + goes_backward(what))]; }

  const Pipeline& pipeline_;
  const std::vector<Schedule>& schedules_;
  const ActionTimes& times_;
  const Sends sends_;
  const int64_t columns_;
  std::vector<Span> forwards_, backwards_;
  std::vector<int64_t> sent_;  // the last micro-batch of each virtual stage, forward and backward; -1: none
  Timeline timeline_;
};

}  // namespace

double ActionTimes::of(Do what, int virtual_stage) const {
  const size_t i = size_t(virtual_stage);
  if (what == Do::forward) return forward[i];
  if (what == Do::dgrad) return dgrad[i];
  return what == Do::wgrad ? wgrad[i] : dgrad[i] + wgrad[i];
}

ActionTimes uniform_times(const Pipeline& pipeline, double forward, double dgrad, double wgrad) {
  const size_t n = size_t(pipeline.num_virtual_stages());
  return {.forward = std::vector(n, forward), .dgrad = std::vector(n, dgrad), .wgrad = std::vector(n, wgrad)};
}

double Timeline::busy(int rank) const {
  double sum = 0;
  for (const TimedAction& a : ranks[size_t(rank)]) sum += a.end - a.start;
  return sum;
}

double Timeline::bubble_fraction() const {
  double sum = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) sum += bubble_fraction(int(rank));
  return ranks.empty() ? 0 : sum / double(ranks.size());
}

std::string what_is_wrong(const Pipeline& pipeline, const std::vector<Schedule>& schedules, int64_t m) {
  if (schedules.size() != size_t(pipeline.num_stages))
    return fmt::format("{} schedules for {} ranks", schedules.size(), pipeline.num_stages);
  for (size_t rank = 0; rank < schedules.size(); ++rank) {
    Ledger ledger(pipeline.num_chunks, m);
    for (size_t i = 0; i < schedules[rank].size(); ++i) {
      const Action& a = schedules[rank][i];
      const std::string wrong = ledger.add(a);
      if (!wrong.empty()) return fmt::format("rank {}, action {}, {}: {}", rank, i, to_string(a), wrong);
    }
    const std::string missing = ledger.missing();
    if (!missing.empty()) return fmt::format("rank {}: {} is missing", rank, missing);
  }
  return "";
}

Timeline simulate(const Pipeline& pipeline, const std::vector<Schedule>& schedules, const ActionTimes& times,
                  Sends sends) {
  const std::string wrong = what_is_wrong(pipeline, schedules, num_micro_batches_in(schedules));
  WEFT_CHECK(wrong.empty(), "schedule {}: {}", name_of(pipeline.kind), wrong);
  for (const auto* of_all : {&times.forward, &times.dgrad, &times.wgrad}) {
    WEFT_CHECK(of_all->size() == size_t(pipeline.num_virtual_stages()), "{} times for {} virtual stages",
               of_all->size(), pipeline.num_virtual_stages());
  }
  return Simulation(pipeline, schedules, times, sends).run();
}

}  // namespace weft
