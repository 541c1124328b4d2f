// What the threads of this process are in, for a report of why nothing goes on.
#pragma once
#include <string>
#include <vector>

namespace weft {

struct NamedThread {
  int id = 0;  // as gettid() has it
  std::string name;
};

// From now on a thread that gets the signal SIGRTMAX - 2 notes its stack, if it is asked to, and goes on; loads what
// that needs. False where the program has a handler of its own for it: stacks_of_threads then asks nobody.
bool prepare_stacks();

// The stacks of this process's threads but the calling one: the named first, in their order. Waits for at most `wait_s`
// for answers. Of a thread that does not answer, that blocks the signal, or that is gone, it says that, with what the
// kernel tells of it. Takes no lock that another thread may hold but the allocator's. One call at a time; others wait.
std::string stacks_of_threads(const std::vector<NamedThread>& named, double wait_s);

}  // namespace weft
