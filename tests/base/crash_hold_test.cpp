// A thread that crashes waits until it is released, and its process then ends as if nobody had held it.
#include "weft/base/crash_hold.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

#include "places.h"

namespace weft {
namespace {

// Says what is held while a thread does that, and lets it go on.
void say_held(const std::function<void()>& crash) {
  CrashHold hold;
  std::atomic<int> id{0};
  std::thread thread([&] {
    id = int(::gettid());
    crash();
  });
  while (!hold.held()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::cerr << fmt::format("held {} of the thread: {}\n", hold.held()->signal, hold.held()->thread == id) << std::flush;
  hold.release();
  thread.join();
  ::_exit(0);
}

void write_to_nowhere() {
  const volatile uintptr_t nowhere = 16;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

TEST(CrashHold, AThreadThatCrashesWaitsAndItsSignalEndsTheProcess) {
  if (std::string(testing::kDiskLayer).empty()) GTEST_SKIP() << "sanitizers end a process by themselves";
  EXPECT_EXIT(say_held(write_to_nowhere), ::testing::KilledBySignal(SIGSEGV), "^held 11 of the thread: true\n$");
  EXPECT_EXIT(say_held([] { ::abort(); }), ::testing::KilledBySignal(SIGABRT), "^held 6 of the thread: true\n$");
  EXPECT_EXIT(say_held([] { ::raise(SIGFPE); }), ::testing::KilledBySignal(SIGFPE), "^held 8 of the thread: true\n$");
}

TEST(CrashHold, AHandlerOfBeforeIsCalledThen) {
  const auto crash = [] {
    ::signal(SIGILL, [](int) { ::_exit(7); });
    say_held([] { ::raise(SIGILL); });
  };
  EXPECT_EXIT(crash(), ::testing::ExitedWithCode(7), "held 4 of the thread: true");
}

TEST(CrashHold, BehindItsLifeNobodyIsHeld) {
  const auto crash = [] {
    { const CrashHold hold; }
    ::raise(SIGILL);
  };
  EXPECT_EXIT(crash(), ::testing::KilledBySignal(SIGILL), "");
}

}  // namespace
}  // namespace weft
