// Ranks as threads of one process: each reads its peers' memory directly. A collective makes progress whenever its rank
// is in a call of any communicator, or polls its mesh. Ranks that meet in different collectives, or wait for each other
// without end, all throw a CommError that says who was where, within five seconds.
#pragma once
#include <functional>

#include "weft/comm/host_mover.h"
#include "weft/comm/process_mesh.h"

namespace weft {

// Runs body(communicator) on `size` threads and joins them. If one throws, all others throw at their next call; the
// original exception is rethrown.
void run_local(int size, const std::function<void(Communicator&)>& body);
// The same with a mesh of these sizes: a thread for each of sizes.world() ranks, whose tensors `mover` moves.
void run_local(const MeshSizes& sizes, const std::function<void(const ProcessMesh&)>& body,
               const Mover& mover = *host_mover());

}  // namespace weft
