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

#include "weft/apps/hosts.h"
#include "weft/apps/rank_processes.h"
#include "weft/apps/stop_signal.h"
#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/base/memory_limits.h"
#include "weft/records/clock.h"

namespace weft {

double SectionLimits::limit_s(const Beat& beat) const {
  constexpr double kTimes = 10, kOfOthers = 1.0 / 6;
  if (beat.section == RunSection::setup || beat.longest_s == 0) return first_s;
  return std::max(beat.section == RunSection::step ? least_s : kOfOthers * first_s, kTimes * beat.longest_s);
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
  const double now = now_s(), after = last_s_ > 0 ? now - last_s_ : 0;
  if (signal == SIGINT || signal == SIGTERM) last_s_ = now;
  if (!asked_) by_interrupt_ = signal == SIGINT;
  at_once_ = at_once_ || (asked_ && is_second_wish(signal, after));
  asked_ = true;
  return signal;
}

namespace {

constexpr int kLook_ms = 100;
constexpr int kNoProgram = 127;

// All that descends from this process, less what strangers do.
std::vector<RankProcessHere> all_of_run(const std::set<pid_t>& strangers) {
  const std::vector<RankProcessHere> all = processes_here();
  std::set<pid_t> not_of_run = strangers;
  for (const pid_t stranger : strangers)
    for (const RankProcessHere& p : below(stranger, all)) not_of_run.insert(p.id);
  std::vector<RankProcessHere> of_run = below(::getpid(), all);
  std::erase_if(of_run, [&](const RankProcessHere& p) { return not_of_run.contains(p.id); });
  return of_run;
}

// Those that a launcher left behind have come to be this process's own. One that waits for a dead disk cannot end: it
// is left.
void kill_all_of_run(const std::set<pid_t>& strangers) {
  constexpr int kLooks = 500;
  for (int look = 0; look < kLooks; ++look) {
    const std::vector<RankProcessHere> left = all_of_run(strangers);
    for (const RankProcessHere& p : left) {
      ::kill(p.id, SIGKILL);
      ::waitpid(p.id, nullptr, WNOHANG);
    }
    if (left.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

class Attempt {
 public:
  explicit Attempt(const AttemptSpec& spec, const sigset_t& mask)
      : strangers_(spec.strangers), beats_(::memfd_create("weft heartbeat", MFD_CLOEXEC)) {
    int ends[2] = {-1, -1};
    if (beats_ < 0 || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      throw Error("no process can be watched: too many files are open");
    errors_ = Descriptor(ends[0]);
    const Descriptor told(ends[1]);
    start(spec, mask, told);
  }
  ~Attempt() {
    if (process_ > 0) ::kill(process_, SIGKILL);
    kill_all_of_run(strangers_);
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
  std::string who_is_stopped() const {
    std::string found;
    for (const RankProcessHere& p : all_of_run(strangers_))
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
                      errors = std::to_string(told), hang = std::to_string(spec.hang_s), host = name_of_host();
    process_ = ::fork();
    if (process_ < 0) throw Error("no process can be started: the system has too many, or too little memory");
    if (process_ > 0) return;
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kNoProgram);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::fcntl(told, F_SETFD, 0);
    ::setenv(kHeartbeatFile, beats.c_str(), 1);
    ::setenv(kSupervisorHost, host.c_str(), 1);
    ::setenv(kErrorsTo, errors.c_str(), 1);
    ::setenv(kAttempt, number.c_str(), 1);
    if (!spec.hosts.empty()) ::setenv(kHosts, spec.hosts.c_str(), 1);
    ::setenv(kHangSeconds, hang.c_str(), 1);
    ::execvp(argv[0], argv.data());
    ::_exit(kNoProgram);
  }

  const std::set<pid_t> strangers_;
  Descriptor beats_, errors_;
  pid_t process_ = -1;
};

// Since when the run is in its section.
class SectionWatch {
 public:
  // How long nothing has come for longer than allowed; none: all is well.
  std::optional<double> look(const Beat& now, const SectionLimits& limits) {
    const double time = now_s();
    if (now != last_) last_ = now, since_ = time;
    const double waited = time - since_;
    return waited > limits.limit_s(last_) ? std::optional(waited) : std::nullopt;
  }

 private:
  Beat last_;
  double since_ = now_s();
};

}  // namespace

std::set<pid_t> children_here() {
  std::set<pid_t> children;
  for (const RankProcessHere& p : below(::getpid(), processes_here())) children.insert(p.id);
  return children;
}

AttemptEnd run_attempt(const AttemptSpec& spec, const SectionLimits& limits, StopRequests& requests) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::optional<int64_t> kills_before = kills_for_memory();
  AttemptEnd end;
  Attempt attempt(spec, requests.mask_before());
  SectionWatch watch;
  bool is_told = false;
  while (!attempt.has_ended(end.raw)) {
    requests.wait_ms(kLook_ms);
    if (requests.at_once())
      attempt.end_at_once();
    else if (requests.asked() && !is_told)
      attempt.ask_to_stop(), is_told = true;
    if (end.hang) continue;
    const Beat now = attempt.beat();
    if (!is_told && now.section != RunSection::setup && now.section != RunSection::finished && spec.is_to_move())
      attempt.ask_to_stop(), is_told = end.to_move = true;
    const auto waited = watch.look(now, limits);
    if (!waited) continue;
    end.hang = Hang{.section = now.section, .seconds = *waited, .where = attempt.who_is_stopped()};
    attempt.end_at_once();
  }
  end.last = attempt.beat();
  end.error = attempt.error();
  const std::optional<int64_t> kills = kills_for_memory();
  end.out_of_memory = kills && kills_before && *kills > *kills_before;
  end.asked = requests.asked();
  end.by_interrupt = requests.by_interrupt();
  end.at_once = requests.at_once();
  return end;
}

}  // namespace weft
