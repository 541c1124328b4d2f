// Moves a device's tensors through communicators that only know host memory, or do not wait for the device.
#pragma once
#include <functional>

#include "weft/comm/process_mesh.h"
#include "weft/device/mover.h"

namespace weft {

// The same mesh. Tensors that the host does not reach are copied to it before each call, and back when it has been
// waited for. `mover` must outlive the result.
ProcessMesh through_host(const ProcessMesh& mesh, const Mover& mover);

// The same mesh, which waits for the device: it calls `finish` before each call that moves data and is not ordered, so
// that the call comes after the work that the device was given before. `finish` returns when
// tensors hold what was computed; it must outlive the result.
ProcessMesh after(const ProcessMesh& mesh, const std::function<void()>& finish);

}  // namespace weft
