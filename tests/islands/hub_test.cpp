// The hub, beside islands that say what a test wants.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cmath>
#include <future>
#include <limits>
#include <thread>

#include "support.h"
#include "weft/checkpoint/word_sum.h"
#include "weft/islands/island_hub.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

using Numbers = std::vector<float>;
constexpr const char *kHubSecret = "a secret of sixteen bytes", *kSettings = "islands.count = 2\ntrain.seed = 1\n";

// A hub of two islands and fragments of three weights and one, at work.
class WorkingHub {
 public:
  explicit WorkingHub(double timeout_s = 5, OuterSpec outer = {}, int64_t count = 2)
      : hub_({.address = "127.0.0.1:0",
              .secret = kHubSecret,
              .count = count,
              .settings = kSettings,
              .model = "a model",
              .outer = outer,
              .sizes = {3, 1},
              .timeout_s = timeout_s,
              .tell =
                  [this](const std::string& text) {
                    const std::lock_guard lock(mutex_);
                    told_ += text + "\n";
                  }}),
        served_(std::async(std::launch::async, [this] { return hub_.serve(stop_); })) {}
  ~WorkingHub() { stop_ = true; }
  std::string address() const { return fmt::format("127.0.0.1:{}", hub_.port()); }
  std::string told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  void wait_told(const std::string& text) const {
    for (int i = 0; i < 1000 && told().find(text) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_SAYS(told(), text);
  }
  int port() const { return hub_.port(); }
  bool ended() { return served_.get(); }
  int64_t rounds() const { return hub_.rounds(); }

 private:
  mutable std::mutex mutex_;
  std::string told_;
  std::atomic<bool> stop_{false};
  IslandHub hub_;
  std::future<bool> served_;
};

std::string state_of(const std::vector<Numbers>& outer) {
  uint64_t sum = 0;
  int64_t begin = 0;
  for (const Numbers& fragment : outer) {
    sum += word_sum(std::as_bytes(std::span(fragment)), begin);
    begin += int64_t(fragment.size());
  }
  return state_text(sum);
}

class FakeIsland {
 public:
  FakeIsland(const WorkingHub& hub, int64_t number, int64_t rounds, std::vector<Numbers> outer)
      : channel_(IslandChannel::connect(hub.address(), kHubSecret, 5)),
        hello_{.number = number,
               .age = {.rounds = rounds, .step = 2 * rounds, .since = rounds},
               .state = state_of(outer),
               .settings = kSettings,
               .model = "a model",
               .data = "data"},
        outer_(std::move(outer)) {}
  Hello& hello() { return hello_; }
  IslandChannel& channel() { return channel_; }
  const std::vector<Numbers>& outer() const { return outer_; }

  Welcome meet(bool with_momentum = false) {
    say(channel_, hello_);
    std::optional<Welcome> heard;
    while (!(heard = hear_welcome(channel_))) ++waits_;
    const Welcome welcome = *heard;
    if (welcome.what == Welcome::Do::give) give(with_momentum && hello_.age.rounds > 0);
    if (welcome.what == Welcome::Do::take) take(with_momentum);
    return welcome;
  }
  void give(bool with_momentum = false) {
    for (const Numbers& fragment : outer_) {
      send(fragment);
      if (with_momentum) send(Numbers(fragment.size(), 0));
    }
  }
  int64_t step() const { return step_; }  // of the last mean
  int waits() const { return waits_; }
  void take(bool with_momentum = false) {
    for (Numbers& fragment : outer_) {
      fragment = receive(fragment.size());
      if (with_momentum) receive(fragment.size());
    }
  }
  Reply offer(int64_t round, const Numbers& numbers, int64_t step = 0) {
    say(channel_, RoundOffer{.round = round, .step = step > 0 ? step : 2 * round});
    const Reply reply = hear_reply(channel_);
    if (!reply.is_late) send(numbers);
    return reply;
  }
  Numbers mean(int64_t round, size_t size, int64_t islands) {
    Mean mean;
    while (mean.round == 0) mean = hear_mean(channel_);
    step_ = mean.step;
    EXPECT_EQ(mean.round, round);
    EXPECT_EQ(mean.islands, islands);
    return receive(size);
  }
  void send(const Numbers& numbers) { channel_.send(IslandChannel::Kind::numbers, std::as_bytes(std::span(numbers))); }
  Numbers receive(size_t size) {
    const auto bytes = channel_.receive_numbers(4 * size);
    Numbers numbers(size);
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }

 private:
  IslandChannel channel_;
  Hello hello_;
  std::vector<Numbers> outer_;
  int waits_ = 0;
  int64_t step_ = 0;
};

const std::vector<Numbers> kFirst{{1, 2, 3}, {4}};

TEST(IslandHub, GivesAllTheMeanFragmentByFragment) {
  WorkingHub hub;
  FakeIsland a(hub, 0, 0, kFirst), b(hub, 1, 0, kFirst);
  EXPECT_EQ(a.meet().what, Welcome::Do::give);
  EXPECT_EQ(b.meet().what, Welcome::Do::go);
  EXPECT_FALSE(a.offer(1, {1, 1, 1}).is_late);
  EXPECT_FALSE(b.offer(1, {3, 0, -1}).is_late);
  EXPECT_EQ(a.mean(1, 3, 2), (Numbers{2, 0.5, 0}));
  EXPECT_EQ(b.mean(1, 3, 2), (Numbers{2, 0.5, 0}));
  a.offer(2, {8});
  b.offer(2, {10});
  EXPECT_EQ(b.mean(2, 1, 2), Numbers{9});
  EXPECT_EQ(a.mean(2, 1, 2), Numbers{9});
  say_farewell(a.channel());
  say_farewell(b.channel());
  EXPECT_TRUE(hub.ended());
}

TEST(IslandHub, BeginsWithTheWeightsOfTheFirstThatComes) {
  WorkingHub hub;
  FakeIsland a(hub, 0, 0, kFirst), b(hub, 1, 0, {{5, 6, 7}, {8}});
  a.meet();
  EXPECT_EQ(b.meet().what, Welcome::Do::take);
  EXPECT_EQ(b.outer(), kFirst);
}

// However long that takes: it is told to wait.
TEST(IslandHub, LetsOthersWaitWhileTheFirstGivesItsWeights) {
  WorkingHub hub(0.1);
  FakeIsland a(hub, 0, 0, kFirst), b(hub, 1, 0, kFirst);
  say(a.channel(), a.hello());
  EXPECT_EQ(hear_welcome(a.channel())->what, Welcome::Do::give);
  auto other = std::async(std::launch::async, [&] { return b.meet().what; });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  a.give();
  EXPECT_EQ(other.get(), Welcome::Do::go);
  EXPECT_GT(b.waits(), 0);
}

// Islands that were without the hub are not at the same step: all go on at the furthest.
TEST(IslandHub, TellsTheStepOfTheFurthestIsland) {
  WorkingHub hub;
  FakeIsland a(hub, 0, 0, kFirst), b(hub, 1, 0, kFirst);
  a.meet();
  b.meet();
  a.offer(1, {1, 1, 1}, 8);
  b.offer(1, {1, 1, 1}, 6);
  a.mean(1, 3, 2);
  b.mean(1, 3, 2);
  EXPECT_EQ(a.step(), 8);
  EXPECT_EQ(b.step(), 8);
  a.offer(2, {1}, 8);
  b.offer(2, {1}, 8);
  a.mean(2, 1, 2);
  FakeIsland again(hub, 1, 0, kFirst);
  EXPECT_EQ(again.meet().age, (OuterAge{.rounds = 2, .step = 8, .since = 1}));
}

// Strangers that connect and say nothing, more than the hub bears, and are still there when it ends.
TEST(IslandHub, IsNotHeldByStrangersThatSayNothing) {
  std::vector<Descriptor> strangers;
  const double began = now_s();
  {
    WorkingHub hub;
    for (int i = 0; i < 80; ++i) {
      Descriptor fd(::socket(AF_INET, SOCK_STREAM, 0));
      sockaddr_in to = {};
      to.sin_family = AF_INET;
      to.sin_port = htons(uint16_t(hub.port()));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
      strangers.push_back(std::move(fd));
    }
    FakeIsland a(hub, 0, 0, kFirst);
    EXPECT_EQ(a.meet().what, Welcome::Do::give);
  }
  EXPECT_LT(now_s() - began, 8);  // each may be silent for 10 s
}

// With momentum, what a late island takes is the outer step by torch's formula (outer_step_test.cpp).
TEST(IslandHub, MakesTheOuterStepForThoseThatComeLate) {
  WorkingHub hub(0.1, {.lr = 0.5, .momentum = 0.5});
  FakeIsland a(hub, 0, 0, kFirst);
  a.meet(true);
  a.offer(1, {0, 2, 3});
  a.mean(1, 3, 1);  // g = 1 of the first weight: m = 1, w = 1 - 0.5 (1 + 0.5)
  hub.wait_told("round 1: island 1 is absent");
  FakeIsland b(hub, 1, 0, kFirst);
  const Welcome welcome = b.meet(true);
  EXPECT_EQ(welcome.what, Welcome::Do::take);
  EXPECT_EQ(welcome.age, (OuterAge{.rounds = 1, .step = 2, .since = 1}));
  EXPECT_EQ(welcome.counted, 0);
  EXPECT_EQ(b.outer(), (std::vector<Numbers>{{0.25, 2, 3}, {4}}));
}

TEST(IslandHub, GoesOnWithoutAnIslandThatIsAbsentAndWithItAgain) {
  WorkingHub hub(0.25);
  FakeIsland a(hub, 0, 0, kFirst), b(hub, 1, 0, kFirst);
  a.meet();
  b.meet();
  a.offer(1, {7, 7, 7});
  EXPECT_EQ(a.mean(1, 3, 1), (Numbers{7, 7, 7}));
  const Reply late = b.offer(1, {});
  EXPECT_TRUE(late.is_late);
  EXPECT_EQ(late.age.rounds, 1);
  b.take();
  EXPECT_EQ(b.outer()[0], (Numbers{7, 7, 7}));
  a.offer(2, {1});
  b.offer(2, {2});
  EXPECT_EQ(a.mean(2, 1, 2), Numbers{1.5});
  EXPECT_EQ(b.mean(2, 1, 2), Numbers{1.5});
}

// Its numbers are in the mean: it must not add them once more to what it takes.
TEST(IslandHub, TellsAnIslandWhoseLinkVanishedThatItsNumbersCounted) {
  WorkingHub hub;
  FakeIsland a(hub, 0, 0, kFirst), b(hub, 1, 0, kFirst);
  a.meet();
  b.meet();
  b.offer(1, {3, 3, 3});
  a.offer(1, {1, 1, 1});
  EXPECT_EQ(a.mean(1, 3, 2), (Numbers{2, 2, 2}));
  b.channel().cut();  // before it has heard the mean
  FakeIsland again(hub, 1, 0, kFirst);
  const Welcome welcome = again.meet();
  EXPECT_EQ(welcome.what, Welcome::Do::take);
  EXPECT_EQ(welcome.counted, 1);
  EXPECT_EQ(again.outer()[0], (Numbers{2, 2, 2}));
}

TEST(IslandHub, ThatBeginsAnewTakesTheStateOfMostRounds) {
  WorkingHub hub;
  FakeIsland a(hub, 0, 2, kFirst), b(hub, 1, 3, {{5, 6, 7}, {8}});
  EXPECT_EQ(a.meet().what, Welcome::Do::give);
  EXPECT_EQ(b.meet().what, Welcome::Do::give);
  for (int i = 0; i < 1000 && hub.rounds() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(a.offer(3, {}).is_late);
  a.take();
  EXPECT_EQ(a.outer(), b.outer());
}

TEST(IslandHub, RefusesWhoIsOfAnotherRunAndSaysWhy) {
  WorkingHub hub;
  FakeIsland first(hub, 0, 0, kFirst);
  first.meet();
  const auto why = [&](const std::function<void(Hello&)>& change) {
    FakeIsland other(hub, 1, 0, kFirst);
    change(other.hello());
    return testing::error_of<RefusedIsland>([&] { other.meet(); });
  };
  EXPECT_SAYS(why([](Hello& h) { h.number = 2; }), "islands.number = 2: the hub knows 2");
  EXPECT_SAYS(why([](Hello& h) { h.settings = "islands.count = 2\ntrain.seed = 3\n"; }),
              "train.seed = 3 there, train.seed = 1 at the hub");
  EXPECT_SAYS(why([](Hello& h) { h.model = "another"; }), "trains another model");
  EXPECT_SAYS(why([](Hello& h) { h.data = "others"; }), "reads other training data");
  EXPECT_SAYS(hub.told(), "refused: 127.0.0.1:");
}

TEST(IslandHub, RefusesNumbersThatAreNotFinite) {
  WorkingHub hub;
  FakeIsland a(hub, 0, 0, kFirst);
  a.meet();
  a.offer(1, {1, std::numeric_limits<float>::quiet_NaN(), 1});
  EXPECT_SAYS(testing::error_of<RefusedIsland>([&] { a.mean(1, 3, 1); }), "not finite");
  EXPECT_EQ(hub.rounds(), 0);
}

// Who knows the secret and yet says what is not due loses the connection alone.
TEST(IslandHub, OutlivesIslandsThatSayWhatIsNotDue) {
  WorkingHub hub;
  const auto talk = [&](const std::function<void(IslandChannel&)>& f) {
    IslandChannel channel = IslandChannel::connect(hub.address(), kHubSecret, 5);
    f(channel);
    EXPECT_THROW(channel.receive(), ChannelError);
  };
  for (const char* words :
       {"", "{", "[]", "{}", "{\"say\": 3}", "{\"say\": \"hello\"}",
        "{\"say\": \"hello\", \"format\": 2, \"number\": 0}", "{\"say\": \"hello\", \"format\": 1, \"number\": -1}"})
    talk([&](IslandChannel& c) { c.send_words(words); });
  talk([](IslandChannel& c) { c.send(IslandChannel::Kind::numbers, {}); });
  talk([](IslandChannel& c) { c.send_words(std::string(100 << 10, ' ')); });
  {
    FakeIsland tall(hub, 0, 0, {{1, 2, 3, 4}, {5}});  // a weight too many
    say(tall.channel(), tall.hello());
    hear_welcome(tall.channel());
    tall.send({1, 2, 3, 4});
    EXPECT_THROW(tall.channel().receive(), ChannelError);
  }
  FakeIsland good(hub, 0, 0, kFirst);
  EXPECT_EQ(good.meet().what, Welcome::Do::give);
}

}  // namespace
}  // namespace weft
