// Checks of one case that every backend must pass.
#pragma once
#include <gtest/gtest.h>

#include "ops/cases.h"
#include "weft/base/threads.h"
#include "weft/ops/replayed.h"
#include "weft/train/machine.h"

namespace weft::testing {

// A trial in the machine's memory, and a backend whose workspace is what the model of a dry run planned for it, to the
// byte.
struct TrialOn {
  TrialOn(const Machine& machine, const OpCase& c)
      : trial(c.make_in(machine.memory)),
        workspace("workspace", trial->workspace_bytes(*machine.workspace_model), machine.memory),
        backend(machine.make_backend(workspace)) {}
  std::unique_ptr<Trial> trial;
  Arena workspace;
  std::unique_ptr<Backend> backend;
};

inline void expect_equals_reference(const Machine& machine, const OpCase& c) {
  TrialOn on(machine, c);
  RefBackend ref(usable_cores());
  on.trial->run(*on.backend);
  on.trial->run_exact(ref);
  EXPECT_EQ(on.trial->difference(), "") << c.name;
  EXPECT_EQ(on.trial->trespass(), "") << c.name;
  EXPECT_EQ(on.workspace.used(), 0) << c.name;
  EXPECT_LT(on.workspace.capacity() - on.workspace.peak(), 1) << c.name << ": planned more than was used";
}

// On the same backend, and on another one that has run nothing before.
inline void expect_gives_the_same_bits_again(const Machine& machine, const OpCase& c) {
  TrialOn on(machine, c), another(machine, c);
  on.trial->run(*on.backend);
  const std::vector<std::byte> bits = on.trial->outputs();
  on.trial->reset();
  on.trial->run(*on.backend);
  another.trial->run(*another.backend);
  EXPECT_EQ(on.trial->outputs(), bits) << c.name;
  EXPECT_EQ(another.trial->outputs(), bits) << c.name;
}

// One after the other, and by one call from the third time on, or later where an op has something to find out first. Of
// a machine whose backend is a Replayed.
inline void expect_gives_the_same_bits_replayed(const Machine& machine, const OpCase& c) {
  TrialOn on(machine, c);
  const auto& backend = dynamic_cast<const Replayed&>(*on.backend);
  std::vector<std::byte> bits;
  constexpr int kTimes = 20;
  for (int time = 0; time < kTimes && backend.num_replays() < 2; ++time) {
    on.trial->reset();
    on.trial->run_times(*on.backend, int(Replayed::kLeastOps));
    if (time == 0) bits = on.trial->outputs();
    EXPECT_EQ(on.trial->outputs(), bits) << c.name << ", time " << time;
  }
  EXPECT_EQ(backend.num_replays(), 2) << c.name;
}

}  // namespace weft::testing
