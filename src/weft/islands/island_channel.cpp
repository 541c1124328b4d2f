#include "weft/islands/island_channel.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr size_t kNonceBytes = 32, kHeadBytes = 8, kHashBytes = 16;
constexpr double kLookForStop_s = 0.2;
constexpr std::string_view kGreeting = "weft islands 1\n";

struct FreeAddresses {
  void operator()(addrinfo* all) const { ::freeaddrinfo(all); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Throws ConfigError.
Addresses addresses_of(const std::string& address, bool listens) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || colon + 1 == address.size())
    throw ConfigError(fmt::format(
        "islands.address = \"{}\": expected host:port, as \"10.0.0.1:7171\"; the hub listens there alone", address));
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = listens ? AI_PASSIVE | AI_NUMERICSERV : AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found); error != 0) {
    const std::string text =
        fmt::format("islands.address = \"{}\": is not known here: {}", address, ::gai_strerror(error));
    if (error == EAI_AGAIN) throw ChannelError(text);  // a name server that is away with the link
    throw ConfigError(text);
  }
  return Addresses(found);
}

std::string name_of_address(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (::getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "somebody";
  return fmt::format("{}:{}", host, port);
}

bool wait_for(int socket, short events, double seconds) {
  const double until = now_s() + seconds;
  for (;;) {
    pollfd one{.fd = socket, .events = events, .revents = 0};
    const double left = std::max(0.0, until - now_s());
    const int ready = ::poll(&one, 1, int(std::min(left * 1000 + 1, 1e9)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// As wait_for, and looks meanwhile whether it is to stop. Throws StoppedWaiting.
bool wait_unless(const std::function<bool()>& stopped, int socket, short events, double seconds) {
  for (const double until = now_s() + seconds;;) {
    if (stopped && stopped()) throw StoppedWaiting("the run is asked to stop");
    const double left = until - now_s();
    if (wait_for(socket, events, stopped ? std::min(left, kLookForStop_s) : left)) return true;
    if (now_s() >= until) return false;
  }
}

// Connects without waiting longer than so many seconds. None: it could not.
Descriptor connect_to(const addrinfo& to, double patience_s, const std::function<bool()>& stopped, int& reason) {
  Descriptor socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  reason = errno;
  if (socket < 0) return Descriptor();
  if (::connect(socket, to.ai_addr, to.ai_addrlen) == 0) return socket;
  reason = errno;
  if (reason != EINPROGRESS) return Descriptor();
  reason = ETIMEDOUT;
  if (!wait_unless(stopped, socket, POLLOUT, patience_s)) return Descriptor();
  socklen_t length = sizeof reason;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &reason, &length) != 0 || reason != 0) return Descriptor();
  return socket;
}

template <class T>
void append_number(std::vector<std::byte>& to, T number) {
  for (size_t i = 0; i < sizeof number; ++i) to.push_back(std::byte(number >> (8 * i) & 0xff));
}

uint32_t read_u32(const std::byte* from) {
  uint32_t number = 0;
  for (size_t i = 0; i < sizeof number; ++i) number |= uint32_t(from[i]) << (8 * i);
  return number;
}

void append_bytes(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

IslandChannel::IslandChannel(Descriptor socket, double patience_s, std::function<bool()> stopped)
    : socket_(std::move(socket)), patience_s_(patience_s), stopped_(std::move(stopped)), peer_(peer_of(socket_)) {
  const int yes = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  // A link that vanishes while nothing is said is found out before the next exchange.
  constexpr std::pair<int, int> kKeepAlive[] = {{TCP_KEEPIDLE, 30}, {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 3}};
  ::setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  for (const auto& [option, value] : kKeepAlive) ::setsockopt(socket_, IPPROTO_TCP, option, &value, sizeof value);
}

IslandChannel IslandChannel::connect(const std::string& address, std::string_view secret, double patience_s,
                                     std::function<bool()> stopped) {
  const double until = now_s() + patience_s;
  const Addresses all = addresses_of(address, false);
  int reason = 0;
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next)
    if (Descriptor socket = connect_to(*one, std::max(0.0, until - now_s()), stopped, reason); socket >= 0) {
      IslandChannel channel(std::move(socket), patience_s, std::move(stopped));
      channel.finish_within(until - now_s());
      channel.agree_on_key(End::island, secret);
      channel.have_time();
      return channel;
    }
  throw ChannelError(fmt::format("no hub answers at {}: {}", address, std::strerror(reason)));
}

IslandChannel IslandChannel::accept(Descriptor socket, std::string_view secret, double patience_s) {
  IslandChannel channel(std::move(socket), patience_s, {});
  channel.finish_within(patience_s);
  channel.agree_on_key(End::hub, secret);
  channel.have_time();
  return channel;
}

void IslandChannel::finish_within(double seconds) { until_s_ = now_s() + seconds; }

// Until the socket is ready, for as long as the other end may be silent.
bool IslandChannel::wait(short events) {
  return wait_unless(stopped_, socket_, events, std::clamp(until_s_ - now_s(), 0.0, patience_s_));
}

void IslandChannel::agree_on_key(End end, std::string_view secret) {
  WEFT_CHECK(secret.size() >= kLeastSecretBytes, "a secret of {} bytes", secret.size());
  end_ = end;
  const auto key = bytes_of_text(secret);
  std::array<std::byte, kNonceBytes> of_hub, of_island;
  const auto proof = [&](std::string_view whose) {
    std::vector<std::byte> text;
    append_bytes(text, bytes_of_text(whose));
    append_bytes(text, of_hub);
    append_bytes(text, of_island);
    return keyed_hash(key, text);
  };
  KeyedHash told;
  if (end == End::hub) {
    fill_random(of_hub);
    write_all(bytes_of_text(kGreeting));
    write_all(of_hub);
    read_all(of_island);
    read_all(told);
    if (!is_same_hash(told, proof("island")))
      throw StrangerError(fmt::format("{} does not know the secret of these islands", peer_));
    write_all(proof("hub"));
  } else {
    std::array<std::byte, kGreeting.size()> greeting;
    read_all(greeting);
    if (!std::equal(greeting.begin(), greeting.end(), bytes_of_text(kGreeting).begin()))
      throw ChannelError(fmt::format("{} is no hub of islands of this weft", peer_));
    read_all(of_hub);
    fill_random(of_island);
    write_all(of_island);
    write_all(proof("island"));
    try {
      read_all(told);
    } catch (const StoppedWaiting&) { throw; } catch (const ChannelError&) {
      throw StrangerError(fmt::format("the hub at {} has ended the connection: has it the same secret?", peer_));
    }
    if (!is_same_hash(told, proof("hub")))
      throw StrangerError(fmt::format("{} does not know the secret of these islands", peer_));
  }
  key_ = proof("session");
}

KeyedHash IslandChannel::hash_of(std::span<const std::byte> message, End sender, int64_t number) const {
  std::vector<std::byte> text;
  text.reserve(message.size() + 1 + sizeof number);
  text.push_back(std::byte(sender));
  append_number(text, uint64_t(number));
  append_bytes(text, message);
  return keyed_hash(key_, text);
}

void IslandChannel::send(Kind kind, std::span<const std::byte> content) {
  WEFT_CHECK(content.size() <= kMostBytes, "a message of {} bytes", content.size());
  std::vector<std::byte> message;
  message.reserve(kHeadBytes + content.size() + kHashBytes);
  append_number(message, uint32_t(kind));
  append_number(message, uint32_t(content.size()));
  append_bytes(message, content);
  const KeyedHash hash = hash_of(message, end_, sent_++);
  append_bytes(message, std::span(hash).first(kHashBytes));
  write_all(message);
}

IslandChannel::Message IslandChannel::receive() {
  std::vector<std::byte> message(kHeadBytes);
  read_all(message);
  const uint32_t kind = read_u32(message.data()), bytes = read_u32(message.data() + 4);
  if (kind != uint32_t(Kind::words) && kind != uint32_t(Kind::numbers))
    fail(fmt::format("sends a message of kind {}", kind));
  if (bytes > kMostBytes) fail(fmt::format("announces a message of {} bytes", bytes));
  message.resize(kHeadBytes + bytes);
  read_all(std::span(message).subspan(kHeadBytes));
  std::array<std::byte, kHashBytes> told;
  read_all(told);
  const KeyedHash hash = hash_of(message, end_ == End::hub ? End::island : End::hub, received_++);
  if (!is_same_hash(told, std::span(hash).first(kHashBytes)))
    fail("sends a message that somebody has changed on its way");
  message.erase(message.begin(), message.begin() + kHeadBytes);
  return {.kind = Kind(kind), .content = std::move(message)};
}

std::vector<std::byte> IslandChannel::receive_numbers(size_t bytes) {
  Message message = receive();
  if (message.kind != Kind::numbers || message.content.size() != bytes)
    fail(fmt::format("sends {} bytes of {} where {} of numbers are due", message.content.size(),
                     message.kind == Kind::numbers ? "numbers" : "words", bytes));
  return std::move(message.content);
}

std::string IslandChannel::receive_words() {
  const Message message = receive();
  if (message.kind != Kind::words) fail("sends numbers where words are due");
  return {reinterpret_cast<const char*>(message.content.data()), message.content.size()};
}

bool IslandChannel::is_readable(double within_s) const { return wait_for(socket_, POLLIN, within_s); }

void IslandChannel::cut() const { ::shutdown(socket_, SHUT_RDWR); }

void IslandChannel::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) fail(fmt::format("takes no more: {}", std::strerror(errno)));
    if (n < 0) {
      if (!wait(POLLOUT)) fail(fmt::format("has taken nothing for {:.3g} s", patience_s_));
      continue;
    }
    sent_bytes_ += n;
    bytes = bytes.subspan(size_t(n));
  }
}

void IslandChannel::read_all(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) fail("has ended the connection");
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) fail(fmt::format("is gone: {}", std::strerror(errno)));
    if (n < 0) {
      if (!wait(POLLIN)) fail(fmt::format("has said nothing for {:.3g} s", patience_s_));
      continue;
    }
    received_bytes_ += n;
    bytes = bytes.subspan(size_t(n));
    if (now_s() > until_s_) fail("takes too long");
  }
}

void IslandChannel::fail(const std::string& what) const { throw ChannelError(fmt::format("{} {}", peer_, what)); }

Listener listen_on(const std::string& address) {
  const Addresses all = addresses_of(address, true);
  int reason = 0;
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    Descriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    if (socket >= 0) ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (socket >= 0 && ::bind(socket, one->ai_addr, one->ai_addrlen) == 0 && ::listen(socket, 64) == 0) {
      sockaddr_storage bound = {};
      socklen_t length = sizeof bound;
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length);
      const uint16_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                                        : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
      return {.socket = std::move(socket), .port = ntohs(port)};
    }
    reason = errno;
  }
  throw ConfigError(fmt::format(
      "islands.address = \"{}\": nothing can listen there: {}; name an address of this host and a port that "
      "is free",
      address, std::strerror(reason)));
}

Descriptor accept_within(const Listener& listener, double seconds) {
  if (!wait_for(listener.socket, POLLIN, seconds)) return Descriptor();
  return Descriptor(::accept4(listener.socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::string peer_of(int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "somebody";
  return name_of_address(reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace weft
