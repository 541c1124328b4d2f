// Starts programs as the ranks of an MPI job.
#pragma once
#include <fmt/format.h>

#include <cstdlib>

#include "apps/program.h"

namespace weft::testing {

inline bool has_program(const std::string& name) {
  return run({.args = {"-c", "command -v " + name}, .program = "sh"}).status == 0;
}

// mpirun and its arguments before those of its program, under a limit of a minute.
inline std::vector<std::string> mpirun(int ranks, const std::vector<std::string>& options = {}) {
  std::vector<std::string> args{
      "-k", "5", "60", "mpirun", "-q", "--oversubscribe", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout",
      "1"};
  if (geteuid() == 0) args.push_back("--allow-run-as-root");
  args.insert(args.end(), options.begin(), options.end());
  args.insert(args.end(), {"-n", std::to_string(ranks)});
  return args;
}

inline Finished mpi_job(int ranks, const std::vector<std::string>& command) {
  std::vector<std::string> args = mpirun(ranks);
  args.insert(args.end(), command.begin(), command.end());
  return run({.args = args, .program = "timeout"});
}

}  // namespace weft::testing

// Ends a test with a message where MPI is not there. (Open MPI leaks when it ends, which a leak sanitizer takes for
// ours.)
#define WEFT_NEEDS_MPIRUN()                                         \
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);                      \
  if (std::string(::weft::testing::kRankProgram).empty())           \
    GTEST_SKIP() << "this build has found no MPI (libopenmpi-dev)"; \
  if (!::weft::testing::has_program("mpirun")) GTEST_SKIP() << "needs mpirun (openmpi-bin)"
