// A fabric of threads, which stands for that of GPUs: each transport is a thread that does what it was given in its
// order, later, and knows nothing of a peer that has ended.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "weft/comm/rank_sum.h"
#include "weft/device/fabric.h"

namespace weft::testing {

// What the transports of all ranks share.
struct HostWires {
  struct Message {
    const void* data;
    int64_t bytes;
    bool taken = false;
  };
  struct Group {
    int come = 0;
    std::map<std::pair<int, int>, std::deque<Message*>> messages;  // (from, to): not taken yet
  };
  std::mutex mutex;
  std::condition_variable news;
  std::map<std::string, Group> groups;  // by name
  int64_t names = 0, exchanges = 0, most_staging = 4096;
};

class HostTransport final : public Transport {
 public:
  HostTransport(HostWires& wires, HostWires::Group& group, const Fabric::End& end)
      : wires_(wires),
        group_(group),
        me_(end.rank),
        size_(end.size),
        staging_(size_t(std::min(end.staging_bytes, wires.most_staging))),
        thread_([this] { run(); }) {}
  ~HostTransport() override {
    {
      std::unique_lock lock(wires_.mutex);
      if (std::uncaught_exceptions() == 0) wires_.news.wait(lock, [&] { return todo_.empty() || aborted_; });
    }
    HostTransport::abort();
  }
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
    const std::lock_guard lock(wires_.mutex);
    return done_ >= mark;
  }
  std::string failure() override { return ""; }
  void abort() noexcept override {
    {
      const std::lock_guard lock(wires_.mutex);
      aborted_ = true;
      wires_.news.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Aborted {};
  void give(std::function<void()> what) {
    const std::lock_guard lock(wires_.mutex);
    todo_.push_back(std::move(what));
    ++given_;
    wires_.news.notify_all();
  }
  void run() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(wires_.mutex);
        wires_.news.wait(lock, [&] { return !todo_.empty() || aborted_; });
        if (aborted_) return;
        next = todo_.front();
      }
      try {
        next();
      } catch (const Aborted&) { return; }
      const std::lock_guard lock(wires_.mutex);
      todo_.pop_front();
      ++done_;
      wires_.news.notify_all();
    }
  }
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_so) {
    wires_.news.wait(lock, [&] { return aborted_ || is_so(); });
    if (aborted_) throw Aborted();
  }
  // A piece is copied under the lock: none is touched any more once its sender has been aborted.
  void pass(const std::vector<Piece>& sent, const std::vector<Piece>& received) {
    std::unique_lock lock(wires_.mutex);
    ++wires_.exchanges;
    std::deque<HostWires::Message> messages;
    for (const Piece& p : sent) {
      messages.push_back({.data = p.data, .bytes = p.bytes});
      group_.messages[{me_, p.peer}].push_back(&messages.back());
    }
    wires_.news.notify_all();
    try {
      for (const Piece& p : received) {
        auto& box = group_.messages[{p.peer, me_}];
        wait(lock, [&] { return !box.empty(); });
        if (box.front()->bytes != p.bytes) wait(lock, [] { return false; });  // as a GPU would
        std::memcpy(p.data, box.front()->data, size_t(p.bytes));
        box.front()->taken = true;
        box.pop_front();
        wires_.news.notify_all();
      }
      for (const auto& m : messages) wait(lock, [&] { return m.taken; });
    } catch (const Aborted&) {
      for (const Piece& p : sent)
        std::erase_if(group_.messages[{me_, p.peer}], [&](const HostWires::Message* m) {
          return std::any_of(messages.begin(), messages.end(), [&](const auto& own) { return &own == m; });
        });
      throw;
    }
  }

  HostWires& wires_;
  HostWires::Group& group_;
  const int me_, size_;
  std::vector<std::byte> staging_;
  std::deque<std::function<void()>> todo_;
  int64_t given_ = 0, done_ = 0;
  bool aborted_ = false;
  std::thread thread_;
};

class HostFabric final : public Fabric {
 public:
  using Holds = std::function<bool(const void*)>;
  HostFabric(HostWires& wires, std::string device, Holds holds)
      : wires_(wires), device_(std::move(device)), holds_(std::move(holds)) {}
  std::string description() const override { return "threads"; }
  std::string device() const override { return device_; }
  int64_t free_bytes() const override { return 0; }
  int most_ranks() const override { return 8; }
  bool holds(const void* at) const override { return holds_(at); }
  size_t name_bytes() const override { return sizeof(int64_t); }
  void make_name(std::span<std::byte> name) override {
    const std::lock_guard lock(wires_.mutex);
    const int64_t number = ++wires_.names;
    std::memcpy(name.data(), &number, sizeof number);
  }
  std::unique_ptr<Transport> connect(const End& end) override {
    std::unique_lock lock(wires_.mutex);
    auto& group = wires_.groups[std::string(reinterpret_cast<const char*>(end.name.data()), end.name.size())];
    ++group.come;
    wires_.news.notify_all();
    wires_.news.wait(lock, [&] { return group.come == end.size; });
    lock.unlock();
    return std::make_unique<HostTransport>(wires_, group, end);
  }

 private:
  HostWires& wires_;
  std::string device_;
  Holds holds_;
};

}  // namespace weft::testing
