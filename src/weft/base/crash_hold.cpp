#include "weft/base/crash_hold.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace weft {
namespace {

constexpr std::array<int, 4> kSignals = {SIGSEGV, SIGFPE, SIGILL, SIGABRT};
constexpr int kLooks = 500;
constexpr long kLook_ns = 10'000'000;
constexpr int kSignalBits = 8;

// A signal handler reaches nothing else.
std::atomic<uint64_t> first{0};  // the thread that crashed first, and its signal; 0: none
std::atomic<bool> is_released{true};
std::array<struct sigaction, kSignals.size()> before;

void restore(int signal) {
  for (size_t i = 0; i < kSignals.size(); ++i)
    if (kSignals[i] == signal) ::sigaction(signal, &before[i], nullptr);
}

extern "C" void on_crash(int signal, siginfo_t* info, void*) {
  uint64_t none = 0;
  first.compare_exchange_strong(none, uint64_t(::syscall(SYS_gettid)) << kSignalBits | uint64_t(signal));
  const timespec look{.tv_sec = 0, .tv_nsec = kLook_ns};
  for (int i = 0; i < kLooks && !is_released; ++i) ::nanosleep(&look, nullptr);
  restore(signal);
  if (info->si_code <= 0) ::raise(signal);  // it was sent, as abort() does; a fault comes again by itself
}

}  // namespace

CrashHold::CrashHold() {
  first = 0;
  is_released = false;
  struct sigaction action = {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

CrashHold::~CrashHold() {
  release();
  for (const int signal : kSignals) restore(signal);
}

std::optional<HeldCrash> CrashHold::held() const {
  const uint64_t word = first;
  if (word == 0) return {};
  return HeldCrash{.thread = int(word >> kSignalBits), .signal = int(word & ((1 << kSignalBits) - 1))};
}

void CrashHold::release() { is_released = true; }

}  // namespace weft
