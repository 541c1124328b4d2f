#include "weft/apps/supervised_attempt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "weft/apps/rank_processes.h"
#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/memory_limits.h"
#include "weft/records/clock.h"

namespace weft {

void SectionLimits::has_lasted(RunSection section, double seconds) {
  double& longest = longest_s_[section];
  longest = std::max(longest, seconds);
}

double SectionLimits::limit_s(RunSection section) const {
  constexpr double kTimes = 10, kOfDisks = 6;
  const auto known = longest_s_.find(section);
  if (known == longest_s_.end()) return first_s_;
  const double least = section == RunSection::step ? least_s_ : kOfDisks * least_s_;
  return std::max(least, kTimes * known->second);
}

StopRequests::StopRequests() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction now = {};
    if (s == SIGCHLD || ::sigaction(s, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) sigaddset(&set, s);
  }
  ::sigprocmask(SIG_BLOCK, &set, &before_);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

StopRequests::~StopRequests() {
  ::close(signals_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int StopRequests::wait_ms(int ms) {
  pollfd of{signals_, POLLIN, 0};
  signalfd_siginfo came = {};
  if (::poll(&of, 1, ms) <= 0 || ::read(signals_, &came, sizeof came) != sizeof came) return 0;
  const int signal = static_cast<int>(came.ssi_signo);
  if (signal == SIGCHLD) return signal;
  if (asked_++ == 0) by_interrupt_ = signal == SIGINT;
  return signal;
}

namespace {

constexpr int kLook_ms = 100;
constexpr int kNoProgram = 127;

// Those that a launcher left behind have come to be this process's own.
void kill_all_below_this() {
  for (;;) {
    const std::vector<RankProcessHere> left = below(::getpid(), processes_here());
    for (const RankProcessHere& p : left) ::kill(p.id, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
    if (left.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

class Attempt {
 public:
  explicit Attempt(const AttemptSpec& spec, const sigset_t& mask)
      : beats_(::memfd_create("weft heartbeat", MFD_CLOEXEC)) {
    int ends[2] = {-1, -1};
    if (beats_ < 0 || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      throw Error("no process can be watched: too many files are open");
    errors_ = Descriptor(ends[0]);
    const Descriptor told(ends[1]);
    start(spec, mask, told);
  }
  ~Attempt() {
    if (process_ > 0) ::kill(process_, SIGKILL);
    kill_all_below_this();
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  bool has_ended(int& raw) {
    if (::waitpid(process_, &raw, WNOHANG) != process_) return false;
    process_ = -1;
    return true;
  }
  void ask_to_stop() const { ::kill(process_, SIGTERM); }
  void end_at_once() const { ::kill(-process_, SIGKILL); }
  Beat beat() const { return read_beat(beats_); }
  static std::string who_is_stopped() {
    std::string found;
    for (const RankProcessHere& p : below(::getpid(), processes_here()))
      if (p.stopped)
        found += fmt::format("{}{}process {} has been stopped by a signal", found.empty() ? "" : ", and ",
                             p.rank >= 0 ? fmt::format("rank {}, ", p.rank) : "", p.id);
    return found;
  }
  std::optional<ToldError> error() {
    LauncherWords words;
    char bytes[4096];
    for (ssize_t n = 0; (n = ::read(errors_, bytes, sizeof bytes)) > 0;) words.pass({bytes, size_t(n)});
    return words.error();
  }

 private:
  // In a process group of its own, so that a terminal's Ctrl-C reaches only the supervisor.
  void start(const AttemptSpec& spec, const sigset_t& mask, int told) {
    std::vector<char*> argv;
    for (const std::string& word : spec.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    const std::string beats = fmt::format("/proc/{}/fd/{}", parent, int(beats_)), number = std::to_string(spec.number),
                      errors = std::to_string(told);
    process_ = ::fork();
    if (process_ < 0) throw Error("no process can be started: the system has too many, or too little memory");
    if (process_ > 0) return;
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kNoProgram);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::fcntl(told, F_SETFD, 0);
    ::setenv(kHeartbeatFile, beats.c_str(), 1);
    ::setenv(kErrorsTo, errors.c_str(), 1);
    ::setenv(kAttempt, number.c_str(), 1);
    ::execvp(argv[0], argv.data());
    ::_exit(kNoProgram);
  }

  Descriptor beats_, errors_;
  pid_t process_ = -1;
};

// Since when the run is in its section.
class SectionWatch {
 public:
  // How long nothing has come for longer than allowed; none: all is well.
  std::optional<double> look(const Beat& now, SectionLimits& limits) {
    const double time = now_s();
    if (now != last_) {
      if (last_.number == 0) limits.has_lasted(RunSection::setup, time - since_);
      if (now.longest_s > 0) limits.has_lasted(now.section, now.longest_s);
      last_ = now;
      since_ = time;
    }
    const double waited = time - since_;
    return waited > limits.limit_s(last_.section) ? std::optional(waited) : std::nullopt;
  }

 private:
  Beat last_;
  double since_ = now_s();
};

}  // namespace

AttemptEnd run_attempt(const AttemptSpec& spec, SectionLimits& limits, StopRequests& requests) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::optional<int64_t> kills_before = kills_for_memory();
  AttemptEnd end;
  Attempt attempt(spec, requests.mask_before());
  SectionWatch watch;
  int passed_on = 0;
  while (!attempt.has_ended(end.raw)) {
    requests.wait_ms(kLook_ms);
    if (requests.times() > passed_on) {
      passed_on == 0 ? attempt.ask_to_stop() : attempt.end_at_once();
      passed_on = requests.times();
    }
    if (end.hang) continue;
    const Beat now = attempt.beat();
    const auto waited = watch.look(now, limits);
    if (!waited) continue;
    end.hang = Hang{.section = now.section, .seconds = *waited, .where = Attempt::who_is_stopped()};
    attempt.end_at_once();
  }
  end.last = attempt.beat();
  end.error = attempt.error();
  const std::optional<int64_t> kills = kills_for_memory();
  end.out_of_memory = kills && kills_before && *kills > *kills_before;
  end.asked = requests.asked();
  end.by_interrupt = requests.by_interrupt();
  return end;
}

}  // namespace weft
