#include "weft/apps/child_command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "weft/base/error.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr int kNoSuchProgram = 127;

// A file in memory that holds the text, to be read from its beginning.
Descriptor file_of(const std::string& text) {
  Descriptor file(::memfd_create("input", MFD_CLOEXEC));
  size_t written = 0;
  while (file >= 0 && written < text.size()) {
    const ssize_t n = ::write(file, text.data() + written, text.size() - written);
    if (n <= 0) throw Error("a command cannot be run: there is no memory for its input");
    written += size_t(n);
  }
  if (file < 0 || ::lseek(file, 0, SEEK_SET) != 0) throw Error("a command cannot be run: too many files are open");
  return file;
}

[[noreturn]] void become(char** argv, pid_t parent, int input, int output, bool quiet) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNoSuchProgram);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(input >= 0 ? input : nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  if (quiet) ::dup2(nothing, STDERR_FILENO);
  ::execvp(argv[0], argv);
  ::_exit(kNoSuchProgram);
}

}  // namespace

ChildCommand::ChildCommand(const std::vector<std::string>& words, double limit_s, bool quiet, const std::string& input)
    : limit_s_(limit_s), till_s_(now_s() + limit_s) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error("a command cannot be run: too many files are open");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  output_ = Descriptor(ends[0]);
  const Descriptor printed(ends[1]), given = input.empty() ? Descriptor(-1) : file_of(input);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ == 0) become(argv.data(), parent, given, printed, quiet);
  if (process_ < 0) throw Error("no process can be started: the system has too many, or too little memory");
}

ChildCommand::ChildCommand(ChildCommand&& other) noexcept
    : output_(std::move(other.output_)),
      process_(std::exchange(other.process_, -1)),
      limit_s_(other.limit_s_),
      till_s_(other.till_s_),
      text_(std::move(other.text_)),
      answer_(std::move(other.answer_)) {}

ChildCommand::~ChildCommand() {
  if (process_ <= 0) return;
  ::kill(-process_, SIGKILL);
  ::kill(process_, SIGKILL);  // which may not have its group yet
  ::waitpid(process_, nullptr, 0);
}

void ChildCommand::read_what_came() {
  char bytes[4096];
  for (ssize_t n = 0; (n = ::read(output_, bytes, sizeof bytes)) > 0;)
    text_.append(bytes, std::min(size_t(n), kLongest - std::min(kLongest, text_.size())));
}

ChildCommand::Answer ChildCommand::end(const std::string& why) {
  answer_ = Answer{why.empty(), why.empty() ? text_ : why};
  return *answer_;
}

std::optional<ChildCommand::Answer> ChildCommand::poll() {
  if (answer_) return answer_;
  read_what_came();
  int raw = 0;
  const pid_t ended = ::waitpid(process_, &raw, WNOHANG);
  if (ended == 0 && now_s() < till_s_) return {};
  if (ended == 0) return end(fmt::format("gave no answer within {:g} s", limit_s_));
  const pid_t group = std::exchange(process_, -1);
  ::kill(-group, SIGKILL);  // what it left behind
  read_what_came();
  if (ended < 0) return end("was ended");
  if (WIFSIGNALED(raw)) return end(fmt::format("was ended by signal {}", WTERMSIG(raw)));
  return end(WEXITSTATUS(raw) == 0 ? "" : fmt::format("ended with status {}", WEXITSTATUS(raw)));
}

ChildCommand::Answer ChildCommand::wait(const std::function<bool()>& is_asked_to_stop) {
  for (;;) {
    if (const auto answer = poll()) return *answer;
    if (is_asked_to_stop()) return end("was not waited for");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace weft
