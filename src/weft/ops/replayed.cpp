#include "weft/ops/replayed.h"

namespace weft {

Replayed::Replayed(std::unique_ptr<RecordingBackend> inner, Warn warn)
    : inner_(std::move(inner)), warn_(std::move(warn)) {}

void Replayed::run(const AnyOp& op) {
  if (holds(op)) return;
  inner_->run(op);
  if (learns()) remember(KeptOp(op), place_of(op));
  count_given();
}

bool Replayed::holds(const AnyOp& op) {
  if (!may_hold_) return false;
  if (num_held_ == 0) begin_to_hold(place_of(op));
  const Known* const any = matching_.empty() ? nullptr : matching_.front();
  std::erase_if(matching_, [&](const Known* known) { return !known->ops[num_held_].is(op); });
  if (matching_.empty()) {
    give_held(any);
    return false;
  }
  ++num_held_;
  for (Known* known : matching_) {
    if (known->ops.size() != num_held_) continue;
    inner_->replay(*known->record);
    ++num_replays_;
    begin_chunk();
    break;
  }
  return true;
}

void Replayed::wait_all() {
  give_all();
  inner_->wait_all();
  for (const size_t place : std::exchange(due_, {})) {
    const auto seen = seen_.find(place);
    if (seen != seen_.end() && !records_off_) record(seen->second);
  }
}

DeviceQueue* Replayed::issue_all() {
  give_all();
  return inner_->issued()->issue_all();
}

void Replayed::give_all() {
  if (num_held_ > 0) give_held(matching_.front());
  end_chunk();
}

Stamp Replayed::stamp() {
  if (num_held_ > 0) give_held(matching_.front());
  begin_chunk();
  may_hold_ = false;
  return inner_->issued()->stamp();
}

void Replayed::begin_chunk() {
  may_hold_ = !records_.empty();
  num_held_ = 0;
  matching_.clear();
  num_given_ = 0;
  chunk_.clear();
  chunk_place_ = 0;
}

void Replayed::begin_to_hold(size_t place) {
  const auto [first, last] = by_first_.equal_range(place);
  for (auto it = first; it != last; ++it) matching_.push_back(it->second);
}

// Issues the held ops, the first ones of `known`.
void Replayed::give_held(const Known* known) {
  may_hold_ = false;
  matching_.clear();
  const size_t count = std::exchange(num_held_, 0);
  for (size_t i = 0; i < count; ++i) {
    known->ops[i].run(*inner_);
    if (learns()) remember(known->ops[i], known->ops[i].place());
    count_given();
  }
}

void Replayed::remember(KeptOp op, size_t place) {
  chunk_.push_back(std::move(op));
  chunk_place_ = (chunk_place_ ^ place) * 0x9e3779b97f4a7c15u + 1;
}

void Replayed::count_given() {
  may_hold_ = false;
  if (++num_given_ == kMostOps) end_chunk();
}

// Records only when the device is waited for, not while it works.
void Replayed::end_chunk() {
  if (chunk_.size() >= kLeastOps && learns()) {
    if (num_seen_ops_ > kMostSeenOps) {
      seen_.clear();
      num_seen_ops_ = 0;
    }
    Seen& seen = seen_[chunk_place_];
    if (seen.ops == chunk_) {
      if (++seen.times == 2) due_.push_back(chunk_place_);  // once, however often it comes before the next wait
    } else {
      num_seen_ops_ += chunk_.size() - seen.ops.size();
      seen = {.ops = std::move(chunk_), .times = 1};
    }
  }
  begin_chunk();
}

void Replayed::record(Seen& seen) {
  if (seen.times < 2 || seen.failures >= kMostFailures) return;
  auto recorded = inner_->record([&] {
    for (const KeptOp& op : seen.ops) op.run(*inner_);
  });
  if (recorded.record != nullptr) {
    records_.push_back(std::make_unique<Known>(Known{std::exchange(seen.ops, {}), std::move(recorded.record)}));
    Known& known = *records_.back();
    num_seen_ops_ -= known.ops.size();
    seen.times = 0;
    by_first_.emplace(known.ops.front().place(), &known);
    may_hold_ = true;
  } else if (recorded.why_none.empty()) {
    ++seen.failures;
    seen.times = 1;
  } else {
    records_off_ = true;
    warn_(recorded.why_none);
  }
}

}  // namespace weft
