// Which weights a folder holds.
#pragma once
#include <filesystem>
#include <string>

#include "weft/comm/communicator.h"

namespace weft {

// Names the weights of a folder or GGUF file by all their bytes: a hash of the tensors' names, types, shapes and
// numbers; of an adapter's folder, the adapter's alone. With `ranks` it is collective, and each of them reads a share.
// Throws FileError, on all ranks.
std::string fingerprint_of_weights(const std::filesystem::path& folder, Communicator* ranks = nullptr);

// Whether this fingerprint, which somebody has kept, is of these weights. Older checkpoints have one of the
// first and last 4 KiB of each tensor: that counts too.
bool has_fingerprint(const std::filesystem::path& folder, const std::string& kept);

}  // namespace weft
