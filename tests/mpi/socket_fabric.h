// A fake GPU fabric for processes on one host: sockets between threads that run their work in order, asynchronously.
#pragma once
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <map>

#include "comm/queue_transport.h"
#include "weft/base/error.h"

namespace weft::testing {

// A transport whose peer has ended waits for it until it is aborted, as a GPU would.
class SocketTransport final : public QueueTransport {
 public:
  explicit SocketTransport(const Fabric::End& end)
      : QueueTransport(end, 1 << 14), name_(reinterpret_cast<const char*>(end.name.data()), end.name.size()) {
    const int door = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const auto [mine, length] = address(me_);
    if (::bind(door, reinterpret_cast<const sockaddr*>(&mine), length) != 0 || ::listen(door, size_) != 0)
      throw CommError("no socket");
    for (int r = 0; r < me_; ++r) call(r);
    for (int r = me_ + 1; r < size_; ++r) {
      const int peer = ::accept(door, nullptr, nullptr);
      int32_t who = 0;
      all(::read, peer, &who, sizeof who);
      peers_[who] = peer;
    }
    ::close(door);
  }
  ~SocketTransport() override {
    finish();
    for (const auto& [rank, peer] : peers_) ::close(peer);
  }

 private:
  // An abstract name, which needs no file and vanishes with its socket.
  std::pair<sockaddr_un, socklen_t> address(int rank) const {
    sockaddr_un to = {};
    to.sun_family = AF_UNIX;
    const std::string name = fmt::format("weft {} {}", name_, rank);
    name.copy(to.sun_path + 1, sizeof to.sun_path - 1);
    return {to, socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
  }
  void call(int rank) {
    const auto [to, length] = address(rank);
    const int32_t me = me_;
    for (;;) {
      const int peer = ::socket(AF_UNIX, SOCK_STREAM, 0);
      if (::connect(peer, reinterpret_cast<const sockaddr*>(&to), length) == 0) {
        peers_[rank] = peer;
        return all(::write, peer, const_cast<int32_t*>(&me), sizeof me);
      }
      ::close(peer);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  template <class F>
  void all(const F& move, int peer, void* data, size_t bytes) const {
    auto* at = static_cast<std::byte*>(data);
    while (bytes > 0) {
      const ssize_t moved = move(peer, at, bytes);
      while (moved <= 0 && !aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (moved <= 0) throw Aborted();
      at += moved;
      bytes -= size_t(moved);
    }
  }
  void pass(const std::vector<Message>& sent, const std::vector<Message>& received) override {
    std::map<int, std::vector<Message>> by_peer;
    for (const Message& m : sent) by_peer[m.peer].push_back(m);
    std::vector<std::thread> senders;
    for (const auto& [peer, messages] : by_peer)
      senders.emplace_back([this, fd = peers_.at(peer), &messages = messages] {
        try {
          for (const Message& m : messages) all(send_quietly, fd, m.data, size_t(m.bytes));
        } catch (const Aborted&) {}
      });
    try {
      for (const Message& m : received) all(::read, peers_.at(m.peer), m.data, size_t(m.bytes));
    } catch (const Aborted&) {}
    for (std::thread& t : senders) t.join();
    if (aborted()) throw Aborted();
  }
  void cut() noexcept override {
    for (const auto& [rank, peer] : peers_) ::shutdown(peer, SHUT_RDWR);
  }
  static ssize_t send_quietly(int fd, const void* data, size_t bytes) { return ::send(fd, data, bytes, MSG_NOSIGNAL); }

  std::string name_;
  std::map<int, int> peers_;
};

// Treats all memory as the device's.
class SocketFabric final : public Fabric {
 public:
  std::string description() const override { return "sockets"; }
  std::string device() const override { return fmt::format("process {}", ::getpid()); }
  int64_t free_bytes() const override { return 0; }
  int most_ranks() const override { return 8; }
  bool holds(const void*) const override { return true; }
  size_t name_bytes() const override { return 32; }
  void make_name(std::span<std::byte> name) override {
    const std::string text = fmt::format("{:031}", int64_t{::getpid()} * 1000 + ++names_);
    std::memcpy(name.data(), text.data(), text.size());
  }
  std::unique_ptr<Transport> connect(const End& end) override { return std::make_unique<SocketTransport>(end); }

 private:
  int64_t names_ = 0;
};

}  // namespace weft::testing
