#include "places.h"

namespace weft::testing {

const char* const kSourceDir = WEFT_SOURCE_DIR;
const char* const kProgram = WEFT_PROGRAM;
const char* const kBareProgram = WEFT_BARE_PROGRAM;
const char* const kRankProgram = WEFT_RANK_PROGRAM;
const char* const kCudaModuleFile = WEFT_CUDA_MODULE_FILE;

}  // namespace weft::testing
