#include "weft/apps/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "weft/apps/commands.h"
#include "weft/apps/cpu_machine.h"
#include "weft/apps/failure.h"
#include "weft/apps/launcher_words.h"
#include "weft/apps/rank_processes.h"
#include "weft/apps/start_watch.h"
#include "weft/apps/stop_signal.h"
#include "weft/apps/supervised_attempt.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kNoProgram = 127, kBySignal = 128;
constexpr int kEnd_s = 5;  // from the wish to end at once to the kill
constexpr int kAskAgain_s = 1;
constexpr int kAfterRanks_s = 5;  // later than the ranks' own watch, which knows more

// The daemon of a host that hears nothing of mpirun's host any more ends, and its ranks with it, after 5 + 5 x 2 s: so
// that none is left on the far side of a cut network when the run goes on without that host.
void add_hosts(const std::vector<Host>& hosts, std::vector<std::string>& all) {
  all.insert(all.end(), {"--host", to_string(hosts), "--mca", "oob_tcp_keepalive_time", "5", "--mca",
                         "oob_tcp_keepalive_intvl", "2", "--mca", "oob_tcp_keepalive_probes", "5"});
}

std::vector<std::string> mpirun_command(const RanksJob& job) {
  // When a rank ends with a status other than 0, what is left of the others need not be waited for: all have finished,
  // or one has failed. (When asked to stop, they are asked by weft.)
  std::vector<std::string> all{"mpirun", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "0"};
  if (::geteuid() == 0) all.push_back("--allow-run-as-root");
  if (!job.hosts.empty())
    add_hosts(job.hosts, all);
  else if (!job.launched.allocated)
    all.push_back("--oversubscribe");  // cores are shared by weft itself
  for (const char* name : {kAttempt, kFaults, kCpuIsaVariable, kStepsDone})
    if (environment(name)) all.insert(all.end(), {"-x", name});
  all.insert(all.end(), {"-x", kHasLauncher, "-n", std::to_string(job.ranks)});
  all.insert(all.end(), job.command.begin(), job.command.end());
  return all;
}

sigset_t waited_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now = {};
    if (::sigaction(s, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) sigaddset(&set, s);  // as nohup asked
  }
  return set;
}

struct Launcher {
  pid_t process = -1;
  int errors = -1;  // the end at which its standard error is read, without waiting
};

// Starts mpirun in its own process group, so that a terminal's Ctrl-C reaches only this process.
Launcher start(const std::vector<std::string>& command, const sigset_t& mask_of_child) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) {
    ::close(ends[1]);
    return {child, ends[0]};
  }
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNoProgram);
  ::sigprocmask(SIG_SETMASK, &mask_of_child, nullptr);
  ::setenv(kHasLauncher, "1", 1);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  ::execvp(argv[0], argv.data());
  ::_exit(kNoProgram);
}

// (Where standard error is closed there is nobody to show it to.)
void show(const std::string& text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

// False where nothing will come any more.
bool show_what_came(int errors, LauncherWords& words) {
  char bytes[4096];
  ssize_t n = 0;
  while ((n = ::read(errors, bytes, sizeof bytes)) > 0) show(words.pass({bytes, static_cast<size_t>(n)}));
  return n < 0 && (errno == EAGAIN || errno == EINTR);
}

struct Ended {
  int raw = 0;
  bool asked = false;  // to save and stop
  bool by_interrupt = false;
  bool ended_at_once = false;
  std::string why = {};  // the job was ended here, as its ranks did not start
};

// The next signal; 0 where none came within the limit. Meanwhile, what the launcher writes is shown.
int wait_for_signal(int signals, Launcher& launcher, LauncherWords& words, int limit_ms) {
  pollfd of[] = {{signals, POLLIN, 0}, {launcher.errors, POLLIN, 0}};
  if (::poll(of, 2, limit_ms) <= 0) return 0;
  if (of[1].revents != 0 && !show_what_came(launcher.errors, words)) {
    ::close(launcher.errors);
    launcher.errors = -1;  // which poll leaves out
  }
  signalfd_siginfo came = {};
  if (of[0].revents == 0 || ::read(signals, &came, sizeof came) != sizeof came) return SIGCHLD;  // look again
  return static_cast<int>(came.ssi_signo);
}

// Looks once a second, till the ranks have found each other: from then on they look after each other.
class StartOfRanks {
 public:
  StartOfRanks(const RanksJob& job, pid_t launcher) : job_(job), launcher_(launcher) {}

  // Why the job is to be ended; empty: it is not. Seconds in which this process was stopped do not count.
  std::string look() {
    if (Clock::now() < next_) return "";
    next_ = Clock::now() + std::chrono::seconds(1);
    ++looks_;
    const std::vector<RankProcessHere> all = processes_here();
    std::vector<RankProcessHere> watched = below(launcher_, all);
    any_rank_ = any_rank_ || std::any_of(watched.begin(), watched.end(), [](const auto& p) { return p.rank >= 0; });
    const auto mpirun = std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.id == launcher_; });
    if (mpirun != all.end()) watched.push_back(*mpirun);
    if (std::string text = stopped_.look(watched); !text.empty())
      return text + ", and the ranks have not found each other";
    if (any_rank_ || looks_ < job_.start_timeout_s) return "";
    return fmt::format(
        "mpirun has not started a rank in {:.3g} minutes (run.start_timeout_minutes), and was ended; what it says "
        "above, if anything, tells why: often it is short of files (ulimit -n), processes (ulimit -u) or room in its "
        "folder for temporary files (TMPDIR), or a host does not answer",
        job_.start_timeout_s / 60);
  }

 private:
  const RanksJob& job_;
  const pid_t launcher_;
  Clock::time_point next_ = Clock::now() + std::chrono::seconds(1);
  StoppedWatch stopped_{kStoppedRank_s + kAfterRanks_s};
  int looks_ = 0;
  bool any_rank_ = false;
};

Ended wait_and_forward(const RanksJob& job, Launcher& launcher, int signals, LauncherWords& words) {
  Ended end;
  StartOfRanks start(job, launcher.process);
  Clock::time_point asked_at, kill_at = Clock::time_point::max();
  const auto end_job = [&] {
    ::kill(launcher.process, SIGTERM);
    if (kill_at == Clock::time_point::max()) kill_at = Clock::now() + std::chrono::seconds(kEnd_s);
  };
  for (;;) {
    if (::waitpid(launcher.process, &end.raw, WNOHANG) == launcher.process) {
      if (launcher.errors >= 0) show_what_came(launcher.errors, words);
      show(words.rest());
      return end;
    }
    const int signal = wait_for_signal(signals, launcher, words, 1000 * kAskAgain_s);
    if (Clock::now() >= kill_at) ::kill(-launcher.process, SIGKILL);
    const bool by_hand = signal == SIGINT || signal == SIGTERM;
    if (end.asked && by_hand &&
        is_second_wish(signal, std::chrono::duration<double>(Clock::now() - asked_at).count())) {
      end.ended_at_once = true;
      end_job();
    } else if (by_hand || signal == SIGHUP) {
      end.by_interrupt = end.by_interrupt || (!end.asked && signal == SIGINT);
      end.asked = true;
    }
    if (by_hand) asked_at = Clock::now();
    // And again: while it starts it may miss one.
    const bool ending = kill_at != Clock::time_point::max();
    if (end.asked && !ending && signal != SIGCHLD) ::kill(launcher.process, SIGUSR1);
    if (ending || words.started()) continue;
    end.why = start.look();
    if (!end.why.empty()) end_job();
  }
}

// Ranks that mpirun has left behind, as it was killed itself, have come to be this process's own.
void end_those_left() {
  for (int i = 0; i < 20; ++i) {
    bool any = false;
    for (const RankProcessHere& p : below(::getpid(), processes_here())) {
      if (p.rank < 0 && !p.stopped) continue;
      any = ::kill(p.id, SIGKILL) == 0 || any;
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
    if (!any) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// mpirun waits for ever where it is out of files. What it needs was counted with Open MPI 4.1.
void require_files(const RanksJob& job) {
  constexpr rlim_t kOwn = 40, kOfRank = 4;
  if (job.launched.allocated) return;  // the ranks may be on many hosts
  const rlim_t need = kOwn + kOfRank * rlim_t(job.hosts.empty() ? job.ranks : job.hosts[0].slots);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= need) return;
  if (files.rlim_max < need)
    throw ConfigError(
        fmt::format("mpirun needs about {} open files for {} ranks, and {} are allowed (ulimit -n): raise that, or set "
                    "run.ranks = \"local\": ranks as threads",
                    need, job.ranks, files.rlim_max));
  files.rlim_cur = need;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

constexpr const char* kGoOn = "the same command goes on from the last checkpoint, or begins again where there is none";

// The exit status; prints weft's own message about the end last.
int status_of(const RanksJob& job, const Ended& ended, const LauncherWords& words, pid_t mpirun) {
  if (!ended.why.empty()) throw Error(ended.why);
  if (WIFSIGNALED(ended.raw)) {
    const int signal = WTERMSIG(ended.raw);
    const bool unheard = ended.asked && signal == SIGUSR1;  // so early that it did not listen yet
    if (ended.ended_at_once) return kExitInterrupted;
    if (unheard) return ended.by_interrupt ? kExitInterrupted : kExitPreempted;
    throw Error(
        fmt::format("mpirun (process {} on host {}), which had started the ranks, was ended by signal {}, and the "
                    "ranks with it{}; {}",
                    mpirun, name_of_host(), signal, signal == SIGKILL ? job.about_kill() : "", kGoOn));
  }
  const int status = WEXITSTATUS(ended.raw);
  if (status == kNoProgram)
    throw ConfigError(
        "run.ranks = \"mpi\" needs mpirun in the PATH (package openmpi-bin); or set run.ranks = \"local\": ranks as "
        "threads");
  const bool unheard = ended.asked && status == kBySignal + SIGUSR1;  // so early that a rank did not listen yet
  if (ended.ended_at_once) return kExitInterrupted;
  if (unheard) return ended.by_interrupt ? kExitInterrupted : kExitPreempted;
  if (status == kExitPreempted && ended.by_interrupt) return kExitInterrupted;  // ranks were asked by another signal
  if (status > kBySignal && status != kExitInterrupted)
    throw Error(fmt::format("{} was ended by signal {}{}; {}",
                            words.ended_rank().empty() ? "a rank" : words.ended_rank(), status - kBySignal,
                            status == kBySignal + SIGKILL ? job.about_kill() : "", kGoOn));
  if (status != kExitOk && words.error()) return say_error(words.error()->command, words.error()->message, status);
  return status;
}

}  // namespace

int run_ranks_by_mpirun(const RanksJob& job) {
  require_files(job);
  const sigset_t signals = waited_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Launcher launcher = start(mpirun_command(job), before);
  const int coming = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (launcher.process < 0 || coming < 0) {
    if (launcher.process > 0) ::kill(-launcher.process, SIGKILL);
    throw Error("no process can be started: the system has too many, or too little memory");
  }
  LauncherWords words;
  const Ended ended = wait_and_forward(job, launcher, coming, words);
  end_those_left();
  ::close(coming);
  if (launcher.errors >= 0) ::close(launcher.errors);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return status_of(job, ended, words, launcher.process);
}

}  // namespace weft
