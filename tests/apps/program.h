// Runs the program under test as a process.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support.h"

namespace weft::testing {

struct Finished {
  int status = -1;  // of exit; 128 + signal where one ended it
  std::string out, err;
};

struct Command {
  std::vector<std::string> args;  // after the program's name
  std::string program = testing::kProgram;
  rlim_t largest_file = RLIM_INFINITY;  // bytes: writing beyond fails, as on a full disk
};

// A running child; killed by the destructor if it has not been waited for.
class Process {
 public:
  explicit Process(const Command& command) {
    std::vector<char*> argv{const_cast<char*>(command.program.c_str())};
    for (const auto& a : command.args) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    const std::string out = (dir_ / "out").string(), err = (dir_ / "err").string();
    pid_ = fork();
    if (pid_ != 0) return;
    redirect(out, STDOUT_FILENO);
    redirect(err, STDERR_FILENO);
    const rlimit limit{command.largest_file, command.largest_file};
    if (command.largest_file != RLIM_INFINITY) {
      signal(SIGXFSZ, SIG_IGN);  // then write fails with EFBIG instead
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    for (const int sent : {SIGHUP, SIGINT, SIGTERM}) signal(sent, SIG_DFL);  // a shell's background job ignores some
    execvp(argv[0], argv.data());
    _exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t id() const { return pid_; }
  void send(int signal_number) const {
    if (pid_ > 0) kill(pid_, signal_number);  // kill(-1) would be for everybody
  }
  bool running() {
    if (pid_ > 0 && waitpid(pid_, &raw_, WNOHANG) == pid_) pid_ = -1;
    return pid_ > 0;
  }
  Finished wait() {
    if (pid_ > 0) waitpid(pid_, &raw_, 0);
    pid_ = -1;
    return {.status = WIFEXITED(raw_) ? WEXITSTATUS(raw_) : 128 + WTERMSIG(raw_),
            .out = slurp(dir_ / "out"),
            .err = slurp(dir_ / "err")};
  }

 private:
  static void redirect(const std::string& file, int fd) {
    const int to = open(file.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(to, fd);
    close(to);
  }
  TempDir dir_;
  pid_t pid_ = -1;
  int raw_ = 0;
};

inline Finished run(const Command& command) { return Process(command).wait(); }
inline Finished weft(std::vector<std::string> args) { return run({.args = std::move(args)}); }

// `text` with `dir` in place of each DIR. A folder's random name may hold DIR itself: what was put in is not looked at.
inline std::string placed_in(const std::filesystem::path& dir, std::string text) {
  for (size_t at = 0; (at = text.find("DIR", at)) != std::string::npos; at += dir.string().size())
    text.replace(at, 3, dir.string());
  return text;
}

// A test with a recipe in its folder, whose runs lie beside it under names of their own.
class RecipeTest : public ::testing::Test {
 protected:
  Finished run(const std::string& command, const std::vector<std::string>& more, const std::string& name = "run") {
    std::vector<std::string> all{command, (dir_ / "r.toml").string(), "run.dir=" + (dir_ / name).string()};
    all.insert(all.end(), more.begin(), more.end());
    return weft(all);
  }
  // The lines of a run's metrics.
  std::vector<nlohmann::json> steps_of(const std::string& name) {
    std::vector<nlohmann::json> lines;
    std::istringstream in(slurp(dir_ / name / "metrics.jsonl"));
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  TempDir dir_;
};

}  // namespace weft::testing
