#include "weft/apps/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "weft/apps/commands.h"
#include "weft/apps/launcher_words.h"
#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int kNoProgram = 127, kBySignal = 128;
constexpr int kEnd_s = 5;  // from the wish to end at once to the kill
constexpr int kAskAgain_s = 1;

int number(const std::optional<std::string>& text, int otherwise) {
  return text ? std::atoi(text->c_str()) : otherwise;
}

std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& command, const Launched& launched) {
  // When a rank ends with a status other than 0, what is left of the others need not be waited for: all have finished,
  // or one has failed. (When asked to stop, they are asked by weft.)
  std::vector<std::string> all{"mpirun", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "0"};
  if (::geteuid() == 0) all.push_back("--allow-run-as-root");
  if (!launched.allocated) all.push_back("--oversubscribe");  // cores are shared by weft itself
  all.insert(all.end(), {"-n", std::to_string(ranks)});
  all.insert(all.end(), command.begin(), command.end());
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

// In a process group of its own: a terminal's Ctrl-C then reaches this process alone.
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
  int raw;
  bool asked;  // to save and stop
  bool ended_at_once;
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

Ended wait_and_forward(Launcher& launcher, int signals, LauncherWords& words) {
  bool asked = false, ending = false;
  for (;;) {
    int raw = 0;
    if (::waitpid(launcher.process, &raw, WNOHANG) == launcher.process) {
      if (launcher.errors >= 0) show_what_came(launcher.errors, words);
      show(words.rest());
      return {raw, asked, ending};
    }
    const int signal = wait_for_signal(signals, launcher, words, 1000 * (ending ? kEnd_s : kAskAgain_s));
    if (signal == 0 && ending) ::kill(-launcher.process, SIGKILL);
    if (signal == SIGINT && asked) {
      ::kill(launcher.process, SIGTERM);
      ending = true;
    } else if (signal != 0 && signal != SIGCHLD) {
      asked = true;
    }
    // And again: while it starts it may miss one.
    if (asked && !ending && signal != SIGCHLD) ::kill(launcher.process, SIGUSR1);
  }
}

}  // namespace

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

Launched launched_as(const Environment& env) {
  Launched l;
  l.allocated = env("SLURM_JOB_ID").has_value() || env("PBS_JOBID").has_value();
  if (env("OMPI_COMM_WORLD_SIZE")) {
    l.by = "mpirun";
    l.rank = number(env("OMPI_COMM_WORLD_RANK"), 0);
    l.world = number(env("OMPI_COMM_WORLD_SIZE"), 1);
    l.can_join = true;
  } else if (env("SLURM_STEP_ID") && env("SLURM_PROCID")) {  // the batch script itself has no step
    l.by = "srun";
    l.rank = number(env("SLURM_PROCID"), 0);
    l.world = number(env("SLURM_STEP_NUM_TASKS"), number(env("SLURM_NTASKS"), 1));
    l.can_join = env("PMIX_RANK").has_value();
  } else if (env("PMI_SIZE") && env("PMI_RANK")) {
    l.by = "a launcher of another MPI";
    l.rank = number(env("PMI_RANK"), 0);
    l.world = number(env("PMI_SIZE"), 1);
  }
  return l;
}

void check_launch(const Recipe& recipe, int layout_ranks, const Launched& l) {
  if (recipe.run.ranks != "mpi") {
    if (l.world > 1)
      throw ConfigError(
          fmt::format("{} has started {} processes, each of which would train the whole recipe, because "
                      "run.ranks = \"{}\"; set run.ranks = \"mpi\", or start one process",
                      l.by, l.world, recipe.run.ranks));
    if (layout_ranks > kMostThreadRanks)
      throw ConfigError(
          fmt::format("run.ranks = \"{}\" cannot run: {} ranks as threads of one process, which may have {}; the "
                      "nearest that works: run.ranks = \"mpi\"",
                      recipe.run.ranks, layout_ranks, kMostThreadRanks));
    return;
  }
  if (l.by.empty()) return;
  if (l.world != layout_ranks)
    throw ConfigError(
        fmt::format("the layout has {} rank{} (dp {}, pp {}, cp {}, tp {}), but {} has started {}; start "
                    "{}, or change [parallel]",
                    layout_ranks, layout_ranks == 1 ? "" : "s", recipe.parallel.dp, recipe.parallel.pp,
                    recipe.parallel.cp, recipe.parallel.tp, l.by, l.world, layout_ranks));
  if (!l.can_join && l.world > 1)
    throw ConfigError(
        fmt::format("{} has started {} processes that cannot find each other: use srun --mpi=pmix, or Open MPI's "
                    "mpirun, or start `weft train` plainly, which starts the ranks itself",
                    l.by, l.world));
}

std::vector<std::string> this_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) throw FileError("/proc/self/cmdline cannot be read: ranks cannot be started by this command");
  words[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

int run_ranks_by_mpirun(int ranks, const std::vector<std::string>& command, const Launched& launched) {
  const sigset_t signals = waited_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  Launcher launcher = start(mpirun_command(ranks, command, launched), before);
  const int coming = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (launcher.process < 0 || coming < 0) {
    if (launcher.process > 0) ::kill(-launcher.process, SIGKILL);
    throw Error("no process can be started: the system has too many, or too little memory");
  }
  LauncherWords words;
  const Ended ended = wait_and_forward(launcher, coming, words);
  ::close(coming);
  if (launcher.errors >= 0) ::close(launcher.errors);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  const int status = WIFEXITED(ended.raw) ? WEXITSTATUS(ended.raw) : kBySignal + WTERMSIG(ended.raw);
  if (status == kNoProgram)
    throw ConfigError(
        "run.ranks = \"mpi\" needs mpirun in the PATH (package openmpi-bin); or set run.ranks = \"local\": ranks as "
        "threads");
  const bool unheard = ended.asked && status == kBySignal + SIGUSR1;  // so early that a rank did not listen yet
  if (ended.ended_at_once || unheard) return kExitInterrupted;
  if (status > kBySignal && status != kExitInterrupted)
    throw Error(
        fmt::format("{} was ended by signal {}{}; the same command goes on from the last checkpoint, or begins again "
                    "where there is none",
                    words.ended_rank().empty() ? "a rank" : words.ended_rank(), status - kBySignal,
                    status == kBySignal + SIGKILL ? " (is memory short?)" : ""));
  return status;
}

}  // namespace weft
