// Moves a device's tensors through communicators that only know host memory.
#pragma once
#include "weft/comm/process_mesh.h"
#include "weft/device/mover.h"

namespace weft {

// The same mesh. Tensors that the host does not reach are copied to it before each call, and back when it has been
// waited for. `mover` must outlive the result.
ProcessMesh through_host(const ProcessMesh& mesh, const Mover& mover);

}  // namespace weft
