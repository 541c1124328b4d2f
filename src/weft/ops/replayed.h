// A backend that issues a run of ops that has come before by one call: as a CUDA graph, which is faster than issuing
// its kernels one by one.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/ops/kept_op.h"

namespace weft {

// A backend whose device can record ops and replay them by one call. For its rank's thread.
class RecordingBackend : public Backend {
 public:
  // A recording. Must be destroyed before the backend.
  class Record {
   public:
    virtual ~Record() = default;
  };
  struct Recorded {
    std::unique_ptr<Record> record;  // none, where it cannot be
    std::string why_none;            // empty: not yet, as an op has something to find out first
  };
  // Records the ops that `give` issues on this backend; none of them runs.
  virtual Recorded record(const std::function<void()>& give) = 0;
  // Runs the recorded ops as if they were issued now, with the same bits.
  virtual void replay(Record& record) = 0;
};

// A chunk is up to kMostOps ops, or those up to `issue_all` or `wait_all`. A chunk that came twice with the same ops is
// recorded; from then on its ops are held as they come, and replayed when the last has come. If another op comes, or
// one of these calls, the held ops run one by one: results never depend on this. Ops that differ each time (dropout,
// optimizers) are never recorded. If the device cannot record, `warn` is called once, and all ops run as they come.
class Replayed final : public Backend, private IssuedOps {
 public:
  static constexpr size_t kLeastOps = 8, kMostOps = 128;  // of a chunk; a device is idle while the first is held
  static constexpr size_t kMostRecords = 128, kMostSeenOps = size_t{1} << 15;
  using Warn = std::function<void(const std::string&)>;
  Replayed(std::unique_ptr<RecordingBackend> inner, Warn warn);

  void run(const AnyOp& op) override;
  void enter(std::string_view region) override { inner_->enter(region); }
  void leave() override { inner_->leave(); }
  void wait_all() override;
  // None if the inner backend has none. `issue_all` ends a chunk. `stamp` runs the held ops one by one first; no chunk
  // with a stamp in it is held or recorded. So tracing a step op by op does not change later steps.
  IssuedOps* issued() override { return inner_->issued() != nullptr ? this : nullptr; }

  int64_t num_records() const { return int64_t(records_.size()); }
  int64_t num_replays() const { return num_replays_; }

 private:
  bool is_holding() const override { return num_held_ > 0; }
  DeviceQueue* issue_all() override;
  void call_before_waits(std::function<void()> call) override { inner_->issued()->call_before_waits(std::move(call)); }
  Stamp stamp() override;
  int64_t take_time_ns(Stamp stamp) override { return inner_->issued()->take_time_ns(stamp); }

  using Ops = std::vector<KeptOp>;
  struct Known {
    Ops ops;
    std::unique_ptr<RecordingBackend::Record> record;
  };
  struct Seen {
    Ops ops;
    int times = 0, failures = 0;
  };
  static constexpr int kMostFailures = 16;  // of a chunk that cannot be recorded yet

  bool holds(const AnyOp& op);
  void give_all();
  void begin_chunk();
  void begin_to_hold(size_t place);
  void give_held(const Known* known);
  bool learns() const { return !records_off_ && records_.size() < kMostRecords; }
  void remember(KeptOp op, size_t place);
  void count_given();
  void end_chunk();
  void record(Seen& seen);

  std::unique_ptr<RecordingBackend> inner_;
  Warn warn_;
  bool records_off_ = false;
  std::vector<std::unique_ptr<Known>> records_;
  std::unordered_multimap<size_t, Known*> by_first_;  // by the place of the first op
  std::unordered_map<size_t, Seen> seen_;             // not recorded, by the places of all ops: the last of each
  size_t num_seen_ops_ = 0;
  std::vector<size_t> due_;  // those to be recorded

  bool may_hold_ = true;          // all ops of this chunk so far begin a record
  size_t num_held_ = 0;           // ops that were not given on
  std::vector<Known*> matching_;  // records that begin with these
  size_t num_given_ = 0;          // ops of this chunk that were
  Ops chunk_;                     // the same, where records are still made
  size_t chunk_place_ = 0;
  int64_t num_replays_ = 0;
};

}  // namespace weft
