#include "weft/base/thread_stacks.h"

#include <execinfo.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>
#include <thread>

#include "weft/base/code_names.h"

namespace weft {

namespace {

constexpr int kDeepest = 64;
constexpr int kMostThreads = 512;

enum class Asks : uint64_t { nobody, asked, answering, answered };

uint64_t word_of(int thread, Asks is) { return uint64_t(thread) << 2 | uint64_t(is); }
Asks asks_of(uint64_t word) { return Asks(word & 3); }

struct StackRoom {
  std::atomic<uint64_t> word{0};  // whose it is, and how far that has come
  int frames = 0;
  void* interrupted = nullptr;  // where the signal came; before it are the handler's own frames
  std::array<void*, kDeepest> at{};
};

// A signal handler reaches nothing else, and may not allocate.
std::array<StackRoom, kMostThreads> rooms;
std::atomic<bool> can_ask{false};
std::mutex one_asks;

int stack_signal() { return SIGRTMAX - 2; }

// Where a signal came; null on other kinds of machines, whose stacks then begin with the handler's frames.
void* place_of([[maybe_unused]] const ucontext_t& context) {
#if defined(__x86_64__)
  return reinterpret_cast<void*>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(context.uc_mcontext.pc);
#else
  return nullptr;
#endif
}

// Answers if it was asked: one that comes too late finds no room of its own.
extern "C" void on_asked_for_stack(int, siginfo_t*, void* context) {
  const int error = errno;
  const int self = int(::syscall(SYS_gettid));
  for (StackRoom& room : rooms) {
    uint64_t expected = word_of(self, Asks::asked);
    if (!room.word.compare_exchange_strong(expected, word_of(self, Asks::answering))) continue;
    room.frames = ::backtrace(room.at.data(), kDeepest);
    room.interrupted = place_of(*static_cast<ucontext_t*>(context));
    room.word = word_of(self, Asks::answered);
    break;
  }
  errno = error;
}

std::string of_task(int thread, const char* what) {
  std::ifstream file(fmt::format("/proc/self/task/{}/{}", thread, what));
  std::string line;
  std::getline(file, line);
  return line;
}

// A line of its status, behind the key.
std::string status_of_task(int thread, std::string_view key) {
  std::ifstream file(fmt::format("/proc/self/task/{}/status", thread));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(std::min(line.size(), line.find_first_not_of(" \t", key.size())));
  return "";
}

bool blocks_signal(int thread) {
  const std::string mask = status_of_task(thread, "SigBlk:");
  return (std::strtoull(mask.c_str(), nullptr, 16) >> (stack_signal() - 1) & 1) != 0;
}

struct AskedThread {
  NamedThread thread;
  StackRoom* room = nullptr;  // null: it was not asked
  std::string why_not = {};
};

std::vector<AskedThread> threads_to_ask(const std::vector<NamedThread>& named) {
  std::vector<AskedThread> all;
  for (const NamedThread& t : named) all.push_back({t});
  std::error_code unknown;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", unknown)) {
    const int id = std::atoi(entry.path().filename().c_str());
    if (std::none_of(named.begin(), named.end(), [&](const NamedThread& t) { return t.id == id; }))
      all.push_back({{id, ""}});
  }
  const int self = int(::gettid());
  std::erase_if(all, [&](const AskedThread& t) { return t.thread.id == self; });
  return all;
}

// A room that one is answering in still, since an earlier call, is not used again.
void ask(AskedThread& asked) {
  const int id = asked.thread.id;
  const auto room =
      std::find_if(rooms.begin(), rooms.end(), [](const StackRoom& r) { return asks_of(r.word) == Asks::nobody; });
  if (!can_ask)
    asked.why_not = "was not asked: its signal has another handler";
  else if (room == rooms.end())
    asked.why_not = "was not asked: there are too many threads";
  else if (blocks_signal(id))
    asked.why_not = "blocks the signal that asks";
  if (!asked.why_not.empty()) return;
  room->word = word_of(id, Asks::asked);
  asked.room = &*room;
  if (::syscall(SYS_tgkill, ::getpid(), id, stack_signal()) == 0) return;
  room->word = 0;
  asked.room = nullptr;
  asked.why_not = "is gone";
}

bool has_answered(const AskedThread& t) { return t.room == nullptr || asks_of(t.room->word) == Asks::answered; }

std::string stack_text(const StackRoom& room, CodeNames& names) {
  const auto end = room.at.begin() + room.frames;
  auto first = std::find(room.at.begin(), end, room.interrupted);
  if (first == end) first = room.at.begin();
  std::string text;
  for (auto frame = first; frame != end; ++frame)  // a return address is behind its call
    text += fmt::format("  #{} {}\n", frame - first,
                        names.name(reinterpret_cast<uintptr_t>(*frame) - (*frame == room.interrupted ? 0 : 1)));
  return text;
}

// Takes the room back, except from one that is answering just now.
std::string answer_of(const AskedThread& asked, CodeNames& names) {
  const int id = asked.thread.id;
  std::string why = asked.why_not;
  if (StackRoom* room = asked.room) {
    uint64_t expected = word_of(id, Asks::asked);
    room->word.compare_exchange_strong(expected, 0);
    if (asks_of(room->word) == Asks::answered) {
      const std::string text = stack_text(*room, names);
      room->word = 0;
      return text;
    }
    why = "does not answer";
  }
  return fmt::format("  it {}; state {}; blocked signals {}; waits in the kernel's {}; system call {}\n", why,
                     status_of_task(id, "State:"), status_of_task(id, "SigBlk:"), of_task(id, "wchan"),
                     of_task(id, "syscall"));
}

}  // namespace

bool prepare_stacks() {
  const std::lock_guard lock(one_asks);
  if (can_ask) return true;
  void* here[2];
  ::backtrace(here, 2);  // loads the unwinder, which a handler must not do
  struct sigaction action = {}, before = {};
  if (::sigaction(stack_signal(), nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return false;
  action.sa_sigaction = on_asked_for_stack;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  can_ask = ::sigaction(stack_signal(), &action, nullptr) == 0;
  return can_ask;
}

std::string stacks_of_threads(const std::vector<NamedThread>& named, double wait_s) {
  const std::lock_guard lock(one_asks);
  std::vector<AskedThread> all = threads_to_ask(named);
  for (AskedThread& t : all) ask(t);
  const auto till = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (!std::all_of(all.begin(), all.end(), has_answered) && std::chrono::steady_clock::now() < till)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CodeNames names;
  std::string text;
  for (const AskedThread& t : all)
    text += fmt::format("{}{}thread {} ({}):\n{}\n", t.thread.name, t.thread.name.empty() ? "" : ", ", t.thread.id,
                        of_task(t.thread.id, "comm"), answer_of(t, names));
  return text;
}

}  // namespace weft
