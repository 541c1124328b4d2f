#include "weft/apps/sweep_children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"

namespace weft {

std::vector<int> cores_of_place(const std::vector<int>& cores, int64_t place, int64_t jobs) {
  const auto at = [&](int64_t p) { return cores.begin() + int64_t(cores.size()) * p / jobs; };
  return {at(place), at(place + 1)};
}

namespace {

constexpr int kNoTrialProgram = 127, kTrialLook_ms = 50;

std::vector<int> cores_here() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// The last "...error: ..." that the log has from a place on.
std::string last_error_in(const std::filesystem::path& log, int64_t from) {
  std::ifstream in(log, std::ios::binary);
  in.seekg(from);
  std::string found;
  for (std::string line; std::getline(in, line);)
    if (const size_t at = line.find("error: "); at != line.npos) found = line.substr(at + 7);
  return found;
}

class TrialPlaces {
 public:
  TrialPlaces(const std::vector<TrialProcess>& trials, int64_t jobs, StopRequests& requests)
      : trials_(trials), cores_(cores_here()), places_(static_cast<size_t>(jobs)), requests_(requests) {}
  ~TrialPlaces() {
    for (Place& place : places_)
      if (place.process > 0) {
        end_at_once(place);
        ::waitpid(place.process, nullptr, 0);
      }
  }
  TrialPlaces(const TrialPlaces&) = delete;
  TrialPlaces& operator=(const TrialPlaces&) = delete;

  bool any_goes() const {
    return std::any_of(places_.begin(), places_.end(), [](const Place& p) { return p.process > 0; });
  }
  void fill() {
    for (size_t p = 0; p < places_.size() && next_ < trials_.size(); ++p)
      if (places_[p].process <= 0) start(p, next_++);
  }
  void ask_to_stop() {
    for (const Place& place : places_)
      if (place.process > 0) ::kill(place.process, SIGTERM);
  }
  void end_all_at_once() {
    for (const Place& place : places_)
      if (place.process > 0) end_at_once(place);
  }
  void reap(const std::function<void(size_t, const TrialEnd&)>& ended) {
    for (Place& place : places_) {
      int raw = 0;
      if (place.process <= 0 || ::waitpid(place.process, &raw, WNOHANG) != place.process) continue;
      ::kill(-place.process, SIGKILL);  // what it left behind
      place.process = -1;
      if (requests_.at_once()) continue;
      ended(place.trial, {.status = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw),
                          .error = last_error_in(trials_[place.trial].log, place.log_begin)});
    }
  }

 private:
  struct Place {
    pid_t process = -1;
    size_t trial = 0;
    int64_t log_begin = 0;
  };

  static void end_at_once(const Place& place) {
    ::kill(-place.process, SIGKILL);
    ::kill(place.process, SIGKILL);  // which may not have its group yet
  }

  void start(size_t p, size_t trial) {
    const TrialProcess& t = trials_[trial];
    std::vector<char*> argv;
    for (const std::string& word : t.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const Descriptor log(::open(t.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (log < 0) throw FileError(fmt::format("{}: cannot be opened: is the disk full, or not yours?", t.log.string()));
    cpu_set_t set;
    CPU_ZERO(&set);
    const std::vector<int> cores = cores_of_place(cores_, int64_t(p), int64_t(places_.size()));
    for (const int core : cores) CPU_SET(core, &set);
    const pid_t parent = ::getpid();
    const int64_t begin = ::lseek(log, 0, SEEK_END);
    const pid_t process = ::fork();
    if (process < 0) throw Error("no trial can be started: the system has too many processes, or too little memory");
    if (process > 0) {
      places_[p] = {.process = process, .trial = trial, .log_begin = begin};
      return;
    }
    ::setpgid(0, 0);  // a terminal's Ctrl-C reaches the sweep alone
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kNoTrialProgram);
    ::sigprocmask(SIG_SETMASK, &requests_.mask_before(), nullptr);
    if (!cores.empty()) ::sched_setaffinity(0, sizeof set, &set);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(kNoTrialProgram);
  }

  const std::vector<TrialProcess>& trials_;
  const std::vector<int> cores_;
  std::vector<Place> places_;
  StopRequests& requests_;
  size_t next_ = 0;
};

}  // namespace

void run_trials(const std::vector<TrialProcess>& trials, int64_t jobs, StopRequests& requests,
                const std::function<void(size_t, const TrialEnd&)>& ended) {
  TrialPlaces places(trials, jobs, requests);
  bool is_told = false;
  for (;;) {
    if (!requests.asked()) places.fill();
    if (!places.any_goes()) return;
    requests.wait_ms(kTrialLook_ms);
    if (requests.at_once())
      places.end_all_at_once();
    else if (requests.asked() && !is_told)
      places.ask_to_stop(), is_told = true;
    places.reap(ended);
  }
}

}  // namespace weft
