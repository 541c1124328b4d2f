#include "places.h"

#include <filesystem>

namespace weft::testing {

const char* const kSourceDir = WEFT_SOURCE_DIR;
const char* const kProgram = WEFT_PROGRAM;
const char* const kBareProgram = WEFT_BARE_PROGRAM;
const char* const kDiskLayer = WEFT_DISK_LAYER;
const char* const kRankProgram = WEFT_RANK_PROGRAM;

const char* cuda_module_file() { return std::filesystem::exists(WEFT_CUDA_MODULE_FILE) ? WEFT_CUDA_MODULE_FILE : ""; }

}  // namespace weft::testing
