// Communicators that wait for the device: each call comes after the work that the device was given before.
#pragma once
#include <functional>

#include "weft/comm/process_mesh.h"

namespace weft {

// The same mesh, which calls `finish` before each call that moves data and is not ordered. `finish` returns when
// tensors hold what was computed; it must outlive the result.
ProcessMesh after(const ProcessMesh& mesh, const std::function<void()>& finish);

}  // namespace weft
