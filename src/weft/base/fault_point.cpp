#include "weft/base/fault_point.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace weft {
namespace {

std::string faults, attempt;

// Ends this process by that signal, whatever handler (a sanitizer has one) stands before it.
void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

// Writes to where nothing may be, as a wrong pointer does.
void crash() {
  const volatile uintptr_t nowhere = 16;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

void fail(std::string_view kind) {
  if (kind == "kill") end_by(SIGKILL);
  if (kind == "abort") end_by(SIGABRT);
  if (kind == "segv") end_by(SIGSEGV);
  if (kind == "stop") ::raise(SIGSTOP);
  if (kind == "crash") crash();
  if (kind == "exit0") ::_exit(0);
  if (kind == "exit3") ::_exit(3);
  while (kind == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (kind == "slow") std::this_thread::sleep_for(std::chrono::seconds(2));
}

// Calls f(kind) for each fault of this point.
template <class F>
void for_each_planted(std::string_view point, int rank, int64_t step, const F& f) {
  if (faults.empty()) return;
  const std::string now = fmt::format("{}:{}:{}", point, rank, step);
  std::string_view left = faults;
  while (!left.empty()) {
    const std::string_view fault = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), fault.size() + 1));
    const size_t at = fault.find('@');
    if (at == std::string_view::npos) continue;
    const std::string_view where = fault.substr(at + 1);
    if (where == now + ":" + attempt || (where == now && attempt == "1")) f(fault.substr(0, at));
  }
}

}  // namespace

void plant_faults(const std::string& all, const std::string& number) {
  faults = all;
  attempt = number;
}

void fault_point(std::string_view point, int rank, int64_t step) { for_each_planted(point, rank, step, fail); }

bool is_planted(std::string_view kind, std::string_view point, int rank, int64_t step) {
  bool found = false;
  for_each_planted(point, rank, step, [&](std::string_view planted) { found = found || planted == kind; });
  return found;
}

void drag_if_planted(int rank, double computed_s) {
  if (is_planted("drag", "run", rank, 0)) std::this_thread::sleep_for(std::chrono::duration<double>(2 * computed_s));
}

}  // namespace weft
