// A transport as a GPU's stream is one: a thread that does what it was given in its order, later.
#pragma once
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "weft/comm/rank_sum.h"
#include "weft/device/fabric.h"

namespace weft::testing {

// Derived classes move bytes, and call `finish` when they end.
class QueueTransport : public Transport {
 public:
  QueueTransport(const Fabric::End& end, int64_t most_staging)
      : me_(end.rank), size_(end.size), staging_(size_t(std::min(end.staging_bytes, most_staging))) {}
  void exchange(std::span<const Piece> sent, std::span<const Piece> received) override {
    give([this, sent = std::vector(sent.begin(), sent.end()),
          received = std::vector(received.begin(), received.end())] { pass(sent, received); });
  }
  void all_gather(const void* mine, void* all, int64_t bytes) override {
    std::vector<Piece> sent, received;
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
  int64_t mark() override { return given_; }
  bool passed(int64_t mark) override {
    const std::lock_guard lock(mutex_);
    return done_ >= mark;
  }
  std::string failure() override { return ""; }
  void abort() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
    }
    news_.notify_all();
    cut();
    if (thread_.joinable()) thread_.join();
  }

 protected:
  struct Aborted {};
  // On the transport's thread; throws Aborted.
  virtual void pass(const std::vector<Piece>& sent, const std::vector<Piece>& received) = 0;
  virtual void cut() noexcept = 0;  // ends a `pass` that waits
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void finish() {
    {
      std::unique_lock lock(mutex_);
      if (std::uncaught_exceptions() == 0) news_.wait(lock, [&] { return todo_.empty() || aborted_; });
    }
    abort();
  }
  bool aborted() const {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }
  const int me_, size_;

 private:
  void give(std::function<void()> what) {
    const std::lock_guard lock(mutex_);
    todo_.push_back(std::move(what));
    ++given_;
    news_.notify_all();
  }
  void run() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [&] { return !todo_.empty() || aborted_; });
        if (aborted_) return;
        next = todo_.front();
      }
      try {
        next();
      } catch (const Aborted&) { return; }
      const std::lock_guard lock(mutex_);
      todo_.pop_front();
      ++done_;
      news_.notify_all();
    }
  }

  std::vector<std::byte> staging_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> todo_;
  int64_t given_ = 0, done_ = 0;
  bool aborted_ = false;
  std::thread thread_;
};

}  // namespace weft::testing
