// A connection between an island and the hub: TCP, on which both ends have shown that they know the secret.
//
// Each end sends 32 random bytes, first the hub. The island then sends HMAC(secret, "island" + hub's + island's), and
// only after that has been found right the hub sends HMAC(secret, "hub" + hub's + island's): a stranger learns nothing
// but random bytes. Each message has a keyed hash of its own, under a key that both make of the secret and of these
// bytes, over the direction, the number of the message, its kind, length and content: one that is changed, repeated,
// left out or put in ends the connection. Nothing is encrypted. Numbers are little-endian.
//
//   message   u32 kind, u32 bytes, content, the first 16 bytes of the keyed hash
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/islands/keyed_hash.h"

namespace weft {

// A connection that broke, was silent for too long, or on which came what nobody who knows the secret would send. It is
// dead; another one may be better.
class ChannelError : public Error {
 public:
  using Error::Error;
};
// Whoever waits is asked to stop.
class StoppedWaiting : public ChannelError {
 public:
  using ChannelError::ChannelError;
};
// The other end does not know the secret.
class StrangerError : public ChannelError {
 public:
  using ChannelError::ChannelError;
};

inline constexpr size_t kLeastSecretBytes = 16;

// One thread at a time, but cut(). A call that waits for the other end throws ChannelError once nothing has come or
// gone for `patience_s`, and StoppedWaiting within 0.2 s of when `stopped` is true.
class IslandChannel {
 public:
  enum class Kind : uint32_t { words = 1, numbers = 2 };
  static constexpr size_t kMostBytes = 4 << 20;  // of a message's content
  struct Message {
    Kind kind = Kind::words;
    std::vector<std::byte> content = {};
  };
  enum class End : uint8_t { island, hub };

  // Connects to host:port, and shows and asks for the secret, all of which may take `patience_s`. Blocks.
  static IslandChannel connect(const std::string& address, std::string_view secret, double patience_s,
                               std::function<bool()> stopped = {});
  // The same on the hub's side of a connection that was accepted.
  static IslandChannel accept(Descriptor socket, std::string_view secret, double patience_s);

  void send(Kind kind, std::span<const std::byte> content);
  void send_words(std::string_view text) { send(Kind::words, bytes_of_text(text)); }
  // Blocks until one has come. A content longer than kMostBytes is refused before it is read.
  Message receive();
  // Numbers, of exactly so many bytes; else ChannelError.
  std::vector<std::byte> receive_numbers(size_t bytes);
  std::string receive_words();
  // Whether something comes within so many seconds.
  bool is_readable(double within_s) const;
  void be_patient_for(double seconds) { patience_s_ = seconds; }
  // All that waits from now on may take so many seconds together, however little comes at a time.
  void finish_within(double seconds);
  void have_time() { until_s_ = kNever_s; }  // no more so
  // Ends the connection, from any thread: who waits on it finds out.
  void cut() const;

  int64_t sent_bytes() const { return sent_bytes_; }
  int64_t received_bytes() const { return received_bytes_; }
  const std::string& peer() const { return peer_; }  // "10.0.0.2:40312"

 private:
  static constexpr double kNever_s = std::numeric_limits<double>::infinity();
  IslandChannel(Descriptor socket, double patience_s, std::function<bool()> stopped);
  bool wait(short events);
  void write_all(std::span<const std::byte> bytes);
  void read_all(std::span<std::byte> bytes);
  void agree_on_key(End end, std::string_view secret);
  KeyedHash hash_of(std::span<const std::byte> message, End sender, int64_t number) const;
  [[noreturn]] void fail(const std::string& what) const;

  Descriptor socket_;
  double patience_s_, until_s_ = kNever_s;
  std::function<bool()> stopped_;  // none: never
  std::string peer_;
  End end_ = End::island;
  KeyedHash key_{};
  int64_t sent_ = 0, received_ = 0;  // messages
  int64_t sent_bytes_ = 0, received_bytes_ = 0;
};

// Listens on the address alone that is named ("127.0.0.1:7171"; port 0: any that is free). Throws ConfigError where
// that cannot be.
struct Listener {
  Descriptor socket;
  int port;
};
Listener listen_on(const std::string& address);
// The next connection; none within so many seconds: -1.
Descriptor accept_within(const Listener& listener, double seconds);
// Who is at the other end: "10.0.0.2:40312".
std::string peer_of(int socket);

}  // namespace weft
