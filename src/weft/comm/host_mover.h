// Tensors of ranks that share memory, moved by their own threads.
#pragma once
#include <memory>

#include "weft/device/mover.h"

namespace weft {

const std::shared_ptr<const Mover>& host_mover();

}  // namespace weft
