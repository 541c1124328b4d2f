// A fabric of threads, which stands for that of GPUs: a transport knows nothing of a peer that has ended.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/queue_transport.h"

namespace weft::testing {

// State that the transports of all ranks share.
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
  bool stalled = false;              // nothing passes
  std::string failure;               // what every transport says has failed
  std::chrono::microseconds lag{0};  // of every exchange
  ThreadQueue::Around around = ThreadQueue::run_plainly;
};

class HostTransport final : public QueueTransport {
 public:
  HostTransport(HostWires& wires, HostWires::Group& group, const Fabric::End& end)
      : QueueTransport(end, wires.most_staging, wires.around), wires_(wires), group_(group) {}
  ~HostTransport() override { finish(); }
  std::string failure() override {
    const std::lock_guard lock(wires_.mutex);
    return wires_.failure;
  }

 private:
  void cut() noexcept override {
    const std::lock_guard lock(wires_.mutex);
    wires_.news.notify_all();
  }
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_so) {
    wires_.news.wait(lock, [&] { return aborted() || is_so(); });
    if (aborted()) throw Aborted();
  }
  // A message is copied under the lock: none is touched any more once its sender has been aborted.
  void pass(const std::vector<Message>& sent, const std::vector<Message>& received) override {
    if (wires_.lag.count() > 0) std::this_thread::sleep_for(wires_.lag);
    std::unique_lock lock(wires_.mutex);
    ++wires_.exchanges;
    wait(lock, [&] { return !wires_.stalled; });
    std::deque<HostWires::Message> messages;
    for (const Message& m : sent) {
      messages.push_back({.data = m.data, .bytes = m.bytes});
      group_.messages[{me_, m.peer}].push_back(&messages.back());
    }
    wires_.news.notify_all();
    try {
      for (const Message& m : received) {
        auto& box = group_.messages[{m.peer, me_}];
        wait(lock, [&] { return !box.empty(); });
        if (box.front()->bytes != m.bytes) wait(lock, [] { return false; });  // as a GPU would
        std::memcpy(m.data, box.front()->data, size_t(m.bytes));
        box.front()->taken = true;
        box.pop_front();
        wires_.news.notify_all();
      }
      for (const auto& m : messages) wait(lock, [&] { return m.taken; });
    } catch (const Aborted&) {
      for (const Message& m : sent)
        std::erase_if(group_.messages[{me_, m.peer}], [&](const HostWires::Message* other) {
          return std::any_of(messages.begin(), messages.end(), [&](const auto& own) { return &own == other; });
        });
      throw;
    }
  }

  HostWires& wires_;
  HostWires::Group& group_;
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
