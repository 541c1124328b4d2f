// Connections between islands and their hub: who knows the secret, and what comes of messages that somebody has
// touched.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <optional>
#include <thread>

#include "support.h"
#include "weft/islands/island_channel.h"

namespace weft {
namespace {

constexpr const char *kSecret = "a secret of sixteen bytes", *kOther = "the secret of somebody else";
constexpr double kPatience_s = 0.5;

std::string address_of(const Listener& listener) { return fmt::format("127.0.0.1:{}", listener.port); }

// Both ends of a connection, of which the island calls at `port`.
struct Ends {
  explicit Ends(const Listener& listener, int port = 0, double patience_s = 5) {
    std::thread hub([&] { at_hub.emplace(IslandChannel::accept(accept_within(listener, 5), kSecret, patience_s)); });
    at_island.emplace(
        IslandChannel::connect(fmt::format("127.0.0.1:{}", port > 0 ? port : listener.port), kSecret, patience_s));
    hub.join();
  }
  std::optional<IslandChannel> at_island, at_hub;
};

Descriptor plain_connection(int port) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(uint16_t(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}

// All that comes till the end of the connection.
std::string read_to_end(int fd) {
  std::string all;
  char part[4096];
  for (ssize_t n; (n = ::recv(fd, part, sizeof part, 0)) > 0;) all.append(part, size_t(n));
  return all;
}

TEST(IslandChannel, MessagesArriveAsTheyWereSent) {
  const Listener listener = listen_on("127.0.0.1:0");
  Ends ends(listener);
  std::vector<std::byte> most(IslandChannel::kMostBytes);
  for (size_t i = 0; i < most.size(); ++i) most[i] = std::byte(i * 7);
  std::thread sender([&] {
    ends.at_island->send_words("hello");
    ends.at_island->send(IslandChannel::Kind::numbers, most);
    ends.at_island->send(IslandChannel::Kind::numbers, {});
  });
  EXPECT_EQ(ends.at_hub->receive_words(), "hello");
  EXPECT_TRUE(ends.at_hub->receive_numbers(most.size()) == most);
  EXPECT_TRUE(ends.at_hub->receive_numbers(0).empty());
  sender.join();
  ends.at_hub->send_words("and back");
  EXPECT_EQ(ends.at_island->receive_words(), "and back");
  EXPECT_EQ(ends.at_island->sent_bytes(), ends.at_hub->received_bytes());
}

TEST(IslandChannel, AStrangerIsRefusedOnBothSidesAndNamed) {
  const Listener listener = listen_on("127.0.0.1:0");
  std::string at_hub;
  std::thread hub([&] {
    at_hub = testing::error_of<StrangerError>(
        [&] { IslandChannel::accept(accept_within(listener, 5), kSecret, kPatience_s); });
  });
  const std::string at_island =
      testing::error_of<StrangerError>([&] { IslandChannel::connect(address_of(listener), kOther, kPatience_s); });
  hub.join();
  EXPECT_SAYS(at_hub, "127.0.0.1:");
  EXPECT_SAYS(at_hub, "does not know the secret of these islands");
  EXPECT_SAYS(at_island, "has it the same secret?");
}

// A greeting and 32 random bytes, whatever it says: nothing that the secret went into.
TEST(IslandChannel, AStrangerHearsNothingOfTheSecret) {
  const Listener listener = listen_on("127.0.0.1:0");
  std::thread hub(
      [&] { EXPECT_THROW(IslandChannel::accept(accept_within(listener, 5), kSecret, kPatience_s), StrangerError); });
  const Descriptor stranger = plain_connection(listener.port);
  const std::string guess(64, 'x');
  ASSERT_EQ(::send(stranger, guess.data(), guess.size(), 0), 64);
  const std::string heard = read_to_end(stranger);
  hub.join();
  EXPECT_EQ(heard.size(), std::string("weft islands 1\n").size() + 32) << heard;
}

// The island proves itself first, so it is told apart from the hub: what it has said is no proof of a hub.
TEST(IslandChannel, AFalseHubThatSaysWhatItHasHeardIsRefused) {
  const Listener listener = listen_on("127.0.0.1:0");
  std::thread hub([&] {
    const Descriptor fd = accept_within(listener, 5);
    const std::string greeting = "weft islands 1\n" + std::string(32, 'x');
    EXPECT_EQ(::send(fd, greeting.data(), greeting.size(), 0), ssize_t(greeting.size()));
    char heard[64];
    size_t n = 0;
    while (n < sizeof heard) {
      pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
      ::poll(&one, 1, 5000);
      n += size_t(std::max<ssize_t>(0, ::recv(fd, heard + n, sizeof heard - n, 0)));
    }
    EXPECT_EQ(::send(fd, heard + 32, 32, MSG_NOSIGNAL), 32);
    char rest;
    while (::recv(fd, &rest, 1, 0) < 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  const std::string error =
      testing::error_of<StrangerError>([&] { IslandChannel::connect(address_of(listener), kSecret, 5); });
  hub.join();
  EXPECT_SAYS(error, "does not know the secret");
}

// Stands between an island and its hub, and does this to what the island sends, of which messages begin at byte 64.
struct Mischief {
  int64_t changed = -1;  // that byte
  std::byte change = {};
  int64_t torn = -1;      // ends the connection behind so many bytes
  bool is_twice = false;  // sends the first message, of 32 bytes, once more
};
class Meddler {
 public:
  Meddler(int hub_port, const Mischief& does) : door_(listen_on("127.0.0.1:0")) {
    thread_ = std::thread([this, hub_port, does] { stand_between(hub_port, does); });
  }
  ~Meddler() { thread_.join(); }
  int port() const { return door_.port; }

 private:
  static constexpr size_t kBegin = 64, kEnd = 96;
  void stand_between(int hub_port, const Mischief& does) {
    const Descriptor island = accept_within(door_, 5), hub = plain_connection(hub_port);
    std::vector<std::byte> all;  // of the island
    for (bool done = false;;) {
      pollfd both[2] = {{.fd = island, .events = POLLIN, .revents = 0}, {.fd = hub, .events = POLLIN, .revents = 0}};
      ::poll(both, 2, 5000);
      std::byte part[4096];
      if (both[1].revents != 0) {
        const ssize_t n = ::recv(hub, part, sizeof part, MSG_DONTWAIT);
        if (n <= 0 || ::send(island, part, size_t(n), MSG_NOSIGNAL) != n) return;
      }
      if (both[0].revents == 0) continue;
      ssize_t n = ::recv(island, part, sizeof part, MSG_DONTWAIT);
      if (n <= 0) return;
      const auto before = int64_t(all.size());
      all.insert(all.end(), part, part + n);
      if (does.changed >= before && does.changed < before + n) part[does.changed - before] ^= does.change;
      const bool tears = does.torn >= 0 && before + n > does.torn;
      if (tears) n = does.torn - before;
      if (::send(hub, part, size_t(n), MSG_NOSIGNAL) != n || tears) return;
      if (!does.is_twice || done || all.size() < kEnd) continue;
      done = true;
      ::send(hub, all.data() + kBegin, kEnd - kBegin, MSG_NOSIGNAL);
    }
  }

  Listener door_;
  std::thread thread_;
};

// What the hub says of a message of 8 bytes in which one byte was changed.
std::string error_of_changed(int64_t at, std::byte change) {
  const Listener listener = listen_on("127.0.0.1:0");
  Meddler meddler(listener.port, {.changed = 64 + at, .change = change});
  Ends ends(listener, meddler.port(), kPatience_s);
  ends.at_island->send_words("8 bytes.");
  return testing::error_of<ChannelError>([&] { ends.at_hub->receive(); });
}

TEST(IslandChannel, AMessageThatWasChangedOnItsWayEndsTheConnection) {
  for (const int64_t at : {8, 15, 16, 31})  // content; hash
    EXPECT_SAYS(error_of_changed(at, std::byte{1}), "somebody has changed on its way") << at;
  EXPECT_SAYS(error_of_changed(0, std::byte{3}), "changed on its way");  // words become numbers
  EXPECT_SAYS(error_of_changed(0, std::byte{8}), "a message of kind 9");
  EXPECT_SAYS(error_of_changed(7, std::byte{0x7f}), "announces a message of");  // two GiB, of which none is taken
  EXPECT_SAYS(error_of_changed(4, std::byte{4}), "has said nothing");           // it seems longer: the rest never comes
}

TEST(IslandChannel, AMessageThatComesTwiceEndsTheConnection) {
  const Listener listener = listen_on("127.0.0.1:0");
  Meddler meddler(listener.port, {.is_twice = true});
  Ends ends(listener, meddler.port(), kPatience_s);
  ends.at_island->send_words("8 bytes.");
  EXPECT_EQ(ends.at_hub->receive_words(), "8 bytes.");
  EXPECT_SAYS(testing::error_of<ChannelError>([&] { ends.at_hub->receive(); }), "changed on its way");
}

TEST(IslandChannel, AMessageThatIsTornIsNone) {
  for (const int64_t end : {0, 3, 8, 12, 31}) {
    const Listener listener = listen_on("127.0.0.1:0");
    Meddler meddler(listener.port, {.torn = 64 + end});
    Ends ends(listener, meddler.port(), kPatience_s);
    ends.at_island->send_words("8 bytes.");
    EXPECT_SAYS(testing::error_of<ChannelError>([&] { ends.at_hub->receive(); }), "has ended the connection") << end;
  }
}

TEST(IslandChannel, SilenceIsWaitedForAsLongAsWasSaid) {
  const Listener listener = listen_on("127.0.0.1:0");
  Ends ends(listener, 0, 0.05);
  EXPECT_SAYS(testing::error_of<ChannelError>([&] { ends.at_hub->receive(); }), "has said nothing for 0.05 s");
  EXPECT_FALSE(ends.at_hub->is_readable(0.01));
}

TEST(IslandChannel, NumbersOfAnotherLengthAreRefused) {
  const Listener listener = listen_on("127.0.0.1:0");
  Ends ends(listener);
  const std::vector<std::byte> numbers(12);
  ends.at_island->send(IslandChannel::Kind::numbers, numbers);
  EXPECT_SAYS(testing::error_of<ChannelError>([&] { ends.at_hub->receive_numbers(8); }),
              "sends 12 bytes of numbers where 8 of numbers are due");
  ends.at_island->send_words("words");
  EXPECT_THROW(ends.at_hub->receive_numbers(5), ChannelError);
}

TEST(IslandChannel, AnAddressThatIsNoneIsRefused) {
  for (const char* address : {"", "localhost", ":7171", "127.0.0.1:", "127.0.0.1:port"})
    EXPECT_THROW(listen_on(address), ConfigError) << address;
  const Listener listener = listen_on("127.0.0.1:0");
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { listen_on(address_of(listener)); }), "nothing can listen there");
}

}  // namespace
}  // namespace weft
