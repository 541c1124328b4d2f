// A transport whose queue is a thread.
#pragma once
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "comm/thread_queue.h"
#include "weft/base/error.h"
#include "weft/comm/rank_sum.h"
#include "weft/device/fabric.h"

namespace weft::testing {

// Derived classes move bytes.
class QueueTransport : public Transport {
 public:
  QueueTransport(const Fabric::End& end, int64_t most_staging, ThreadQueue::Around around = ThreadQueue::run_plainly)
      : me_(end.rank),
        size_(end.size),
        staging_(size_t(std::min(end.staging_bytes, most_staging))),
        queue_(false, std::move(around)) {}
  void exchange(std::span<const Message> sent, std::span<const Message> received) override {
    give([this, sent = std::vector(sent.begin(), sent.end()),
          received = std::vector(received.begin(), received.end())] { pass(sent, received); });
  }
  void all_gather(const void* mine, void* all, int64_t bytes) override {
    std::vector<Message> sent, received;
    auto* const to = static_cast<std::byte*>(all);
    for (int r = 0; r < size_; ++r) {
      if (r == me_) continue;
      sent.push_back({const_cast<void*>(mine), bytes, r});
      received.push_back({to + r * bytes, bytes, r});
    }
    exchange(sent, received);
    give([mine, to = to + me_ * bytes, bytes] { std::memmove(to, mine, size_t(bytes)); });
  }
  void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) override {
    give([from = std::vector(from.begin(), from.end()), dtype, n, out] { sum_ranks(from, dtype, n, out); });
  }
  std::span<std::byte> staging() const override { return {const_cast<std::byte*>(staging_.data()), staging_.size()}; }
  DeviceQueue& queue() override { return queue_; }
  Stamp stamp() override {
    const auto mine = Stamp(++num_stamps_);
    queue_.give([this, mine] {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      const std::lock_guard lock(times_mutex_);
      times_[mine] = std::chrono::nanoseconds(now).count();
    });
    return mine;
  }
  int64_t take_time_ns(Stamp stamp) override {
    const std::lock_guard lock(times_mutex_);
    const auto taken = times_.extract(stamp);
    WEFT_CHECK(!taken.empty(), "stamp {} was not passed, or taken before", int64_t(stamp));
    return taken.mapped();
  }
  std::string failure() override { return ""; }
  // Work that waits for the device keeps waiting, as in a GPU's queue.
  void abort() noexcept override {
    aborted_ = true;
    cut();
    queue_.wait_all();
  }

 protected:
  struct Aborted {};
  // On the transport's thread; throws Aborted.
  virtual void pass(const std::vector<Message>& sent, const std::vector<Message>& received) = 0;
  virtual void cut() noexcept = 0;  // ends a `pass` that waits
  // Derived classes call it when they end.
  void finish() {
    if (std::uncaught_exceptions() > 0) return abort();
    queue_.wait_all();
    queue_.end();
  }
  bool aborted() const { return aborted_; }
  const int me_, size_;

 private:
  void give(std::function<void()> what) {
    queue_.give([this, what = std::move(what)] {
      try {
        if (!aborted_) what();
      } catch (const Aborted&) {}
    });
  }

  std::vector<std::byte> staging_;
  int64_t num_stamps_ = 0;
  std::mutex times_mutex_;
  std::map<Stamp, int64_t> times_;  // passed, and not taken
  std::atomic<bool> aborted_ = false;
  ThreadQueue queue_;
};

}  // namespace weft::testing
