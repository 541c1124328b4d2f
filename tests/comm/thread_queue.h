// A queue as a GPU's, on a thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "weft/device/device_queue.h"

namespace weft::testing {

// Runs its work in order, on a thread; if `lazy`, only when somebody waits for it.
class ThreadQueue final : public DeviceQueue {
 public:
  using Work = std::function<void()>;
  // Called with each part of the queue's work; runs it.
  using Around = std::function<void(const Work&)>;
  static void run_plainly(const Work& work) { work(); }
  explicit ThreadQueue(bool lazy, Around around = run_plainly)
      : lazy_(lazy), around_(std::move(around)), thread_([this] { run(); }) {}
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;
  ~ThreadQueue() override { end(); }

  void give(Work what) {
    const std::lock_guard lock(mutex_);
    todo_.push_back(std::move(what));
    ++given_;
    news_.notify_all();
  }
  int64_t mark() override {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  bool passed(int64_t mark) override {
    const std::lock_guard lock(mutex_);
    want(mark);
    return done_ >= mark || ended_;
  }
  void wait_for(DeviceQueue& other, int64_t mark) override {
    give([this, &other, mark] {
      while (!other.passed(mark) && !has_ended()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    give([to, from, bytes] { std::memcpy(to, from, size_t(bytes)); });
  }
  // Rethrows errors of its work.
  void wait_all() {
    std::unique_lock lock(mutex_);
    want(given_);
    news_.wait(lock, [&] { return done_ == given_ || ended_; });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  // Drops work that has not begun; all marks count as passed.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      news_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void want(int64_t mark) {
    if (mark <= wanted_) return;
    wanted_ = mark;
    news_.notify_all();
  }
  bool has_ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  bool is_due() const { return !todo_.empty() && (!lazy_ || done_ < wanted_) && !ended_; }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      news_.wait(lock, [&] { return is_due() || ended_; });
      if (ended_) return;
      lock.unlock();
      around_([this] { run_due(); });
      lock.lock();
    }
  }
  void run_due() {
    std::unique_lock lock(mutex_);
    while (is_due()) {
      const Work next = std::move(todo_.front());
      todo_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        next();
      } catch (...) { failure = std::current_exception(); }
      lock.lock();
      if (failure && !failure_) failure_ = failure;
      ++done_;
      news_.notify_all();
    }
  }

  const bool lazy_;
  const Around around_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Work> todo_;  // not begun
  int64_t given_ = 0, done_ = 0, wanted_ = 0;
  bool ended_ = false;
  std::exception_ptr failure_;  // the first
  std::thread thread_;          // last: it uses all of them
};

}  // namespace weft::testing
