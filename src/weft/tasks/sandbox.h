// Runs programs that a model wrote, apart from everything else.
#pragma once
#include <cstdint>
#include <string>

namespace weft {

struct SandboxLimits {
  double seconds = 3;  // of wall clock and of computing
  int64_t bytes = int64_t{1} << 30;
};
// Whether the Python program runs to its end, without an error or an early exit. It is a process of its own which may
// read files, but write, create, rename or remove none, open no socket, start no process or thread, and send no signal;
// its output goes nowhere. Throws Error where this system cannot hold it to that, or the interpreter cannot be started.
// Blocks.
bool runs_to_its_end(const std::string& python, const std::string& program, const SandboxLimits& limits = {});

// The path of python3; empty: there is none.
std::string find_python();
// Tries whether it can be held to that. Throws Error where it cannot.
void require_sandbox(const std::string& python);

}  // namespace weft
