// Communicators behind a device: each call comes after what the device was given before.
#pragma once
#include <functional>

#include "weft/comm/process_mesh.h"

namespace weft {

// The same mesh. `finish` is called before each call that moves something and is not ordered, and returns when tensors
// hold what was computed; it must outlive the result.
ProcessMesh after(const ProcessMesh& mesh, const std::function<void()>& finish);

}  // namespace weft
