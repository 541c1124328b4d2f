// Instead of cudnn_*.cpp, in a build that found no cuDNN.
#include "weft/base/error.h"
#include "weft/ops/cuda/attention_library.h"

namespace weft {

bool knows_cudnn() { return false; }
std::string cudnn_name() { throw Error("this build of weft found no cuDNN (docs/gpu.md)"); }
std::unique_ptr<AttentionLibrary> open_cudnn_attention(void*) {
  throw Error("this build of weft found no cuDNN (docs/gpu.md)");
}

}  // namespace weft
