// What threads are in is told by name, and one that does not answer is told too.
#include "weft/base/thread_stacks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "weft/base/code_names.h"

namespace weft {
namespace {

using std::chrono::steady_clock;

// Where the threads of these tests are: a function that is in no other's name, and does not end by a jump.
extern "C" __attribute__((noinline)) void weft_test_stays_here(const std::atomic<bool>& ends) {
  while (!ends) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  asm volatile("");
}

extern "C" __attribute__((noinline)) void weft_test_spins_here(const std::atomic<bool>& ends) {
  while (!ends) asm volatile("");
}
extern "C" __attribute__((noinline)) void weft_test_spins_there(const std::atomic<bool>& ends) {
  while (!ends) asm volatile("nop");
}

// A thread that stays there until the end of its life.
class Stayer {
 public:
  using Place = void (*)(const std::atomic<bool>& ends);
  explicit Stayer(
      std::function<void()> before = [] {}, Place place = weft_test_stays_here)
      : thread_([this, before, place] {
          before();
          id_ = int(::gettid());
          place(ends_);
        }) {
    while (id_ == 0) std::this_thread::yield();
  }
  ~Stayer() {
    ends_ = true;
    thread_.join();
  }
  int id() const { return id_; }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<int> id_{0};
  std::thread thread_;
};

std::string of_thread(const std::string& name, const std::string& all) {
  const size_t at = all.find(name + ", thread ");
  return at == std::string::npos ? "" : all.substr(at, all.find("\n\n", at) - at);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ThreadStacks, NameTheFunctionThatEachThreadIsIn) {
  ASSERT_TRUE(prepare_stacks());
  const Stayer first, second;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int again = 0; again < 3; ++again) {
    const std::string all = stacks_of_threads({{second.id(), "rank 1"}, {first.id(), "rank 0"}}, 10);
    EXPECT_TRUE(has(of_thread("rank 0", all), "weft_test_stays_here+0x")) << all;
    EXPECT_TRUE(has(of_thread("rank 1", all), "weft_test_stays_here+0x")) << all;
    EXPECT_LT(all.find("rank 1, thread"), all.find("rank 0, thread")) << "the order that was asked for\n" << all;
#ifndef __SANITIZE_THREAD__  // it calls handlers where it likes
    EXPECT_FALSE(has(all, "on_asked_for_stack")) << "begins where the thread was\n" << all;
#endif
    EXPECT_FALSE(has(all, "stacks_of_threads")) << "not of the thread that asks\n" << all;
  }
}

// More threads than cores, all of them busy, answer in another order than they were asked in.
TEST(ThreadStacks, EachThreadAnswersForItself) {
  ASSERT_TRUE(prepare_stacks());
  constexpr int kThreads = 12;
  std::vector<std::unique_ptr<Stayer>> threads;
  std::vector<NamedThread> named;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(std::make_unique<Stayer>([] {}, i % 2 ? weft_test_spins_there : weft_test_spins_here));
    named.push_back({threads.back()->id(), fmt::format("rank {}", i)});
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int again = 0; again < 3; ++again) {
    const std::string all = stacks_of_threads(named, 20);
    for (int i = 0; i < kThreads; ++i)
      EXPECT_TRUE(
          has(of_thread(named[size_t(i)].name, all), i % 2 ? "weft_test_spins_there+" : "weft_test_spins_here+"))
          << all;
  }
}

TEST(ThreadStacks, OfThreadsWithoutANameStandBehind) {
  ASSERT_TRUE(prepare_stacks());
  const Stayer named, other;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string all = stacks_of_threads({{named.id(), "rank 0"}}, 10);
  const size_t at = all.find(fmt::format("\nthread {} (", other.id()));
  ASSERT_NE(at, std::string::npos) << all;
  EXPECT_GT(at, all.find("rank 0, thread")) << all;
  EXPECT_TRUE(has(all.substr(at), "weft_test_stays_here+0x")) << all;
}

TEST(ThreadStacks, AThreadThatBlocksTheSignalIsToldAndNotWaitedFor) {
  ASSERT_TRUE(prepare_stacks());
  const Stayer blocks([] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  });
  const auto began = steady_clock::now();
  const std::string all = stacks_of_threads({{blocks.id(), "rank 0"}}, 10);
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(5));
  const std::string of = of_thread("rank 0", all);
  EXPECT_TRUE(has(of, "it blocks the signal that asks; state ")) << all;
  EXPECT_TRUE(has(of, "S (sleeping)") || has(of, "R (running)")) << all;
}

TEST(ThreadStacks, AThreadThatIsGoneIsToldAndNotWaitedFor) {
  ASSERT_TRUE(prepare_stacks());
  int id = 0;
  std::thread([&] { id = int(::gettid()); }).join();
  const auto began = steady_clock::now();
  const std::string all = stacks_of_threads({{id, "rank 0"}}, 10);
  EXPECT_LT(steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_TRUE(has(of_thread("rank 0", all), "it is gone; ")) << all;
}

TEST(CodeNames, AnAddressThatIsNoCodeIsItsOwnName) {
  CodeNames names;
  EXPECT_EQ(names.name(0x10), "0x10");
  EXPECT_TRUE(has(names.name(reinterpret_cast<uintptr_t>(&weft_test_stays_here)), "weft_test_stays_here+0x0 (/"));
}

}  // namespace
}  // namespace weft
