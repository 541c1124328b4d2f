// From a recipe to a finished run: a Trainer on each rank.
#pragma once
#include <functional>

#include "weft/train/trainer.h"

namespace weft {

// Runs the ranks of a mesh: calls body with the mesh of each rank in this process, and returns when all have returned.
// `mover` moves their tensors, between ranks that share memory or to the host. Rethrows the error of the first rank to
// fail.
using RunRanks =
    std::function<void(const MeshSizes&, const Mover& mover, const std::function<void(const ProcessMesh&)>& body)>;
// All ranks as threads of this process; the caller's where there is one rank.
void run_on_threads(const MeshSizes& sizes, const Mover& mover, const std::function<void(const ProcessMesh&)>& body);

// Trains as the recipe says, on as many ranks as its layout has. Returns true when all steps are done, false when
// stopped before. Throws what the first rank to fail has thrown; the others end too.
struct RanksSetup {
  const Recipe& recipe;
  const Machine& machine;  // of all ranks of this process
  const std::atomic<bool>& stop;
  int terminal_fd = 2;
  RunRanks run = run_on_threads;
  std::string heartbeat = {};  // as Trainer has it
  // HangWatch's, of the ranks of this process: how long a step may last at least; who is told, and ends the process.
  double hang_s = 900;
  std::function<void(const std::string&)> hung = {};
  std::function<void(const std::string&)> crashed = {};  // likewise, of a thread that crashed
  const IslandSetup* islands = nullptr;                  // null: the run is no island
  const RunData* rows = nullptr;                         // the data that is open already, if the objective reads rows
};
bool train_on_ranks(const RanksSetup& setup);

}  // namespace weft
