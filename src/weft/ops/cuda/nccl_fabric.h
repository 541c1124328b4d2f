// Connects the GPUs of processes, each with one of its own.
#pragma once
#include <memory>

#include "weft/device/fabric.h"

namespace weft {

// For GPU `ordinal`: NCCL moves the bytes, weft's own kernel adds them. Throws Error, which says what is missing, if
// there is no NCCL.
std::shared_ptr<Fabric> make_nccl_fabric(int ordinal);

}  // namespace weft
