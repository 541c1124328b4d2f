// A library that computes attention, and how to open the one there is: cuDNN.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "weft/ops/cuda/attention_graph.h"

namespace weft {

// The address of each argument: on the GPU, or on the host for the floats scale, lowest and one.
using AttentionData = std::map<gpu::Argument, void*>;

// Belongs to one queue; not thread-safe.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // Makes and keeps a plan for attention of this shape, with the same bits each time if the shape asks for it, in at
  // most so many bytes of workspace. Throws Error, which says why there is none.
  virtual void plan(const gpu::AttentionShape& shape, int64_t most_workspace) = 0;
  // Issues a shape that was planned. Throws Error.
  virtual void run(const gpu::AttentionShape& shape, const AttentionData& data, void* workspace) = 0;
};

// Whether this build knows cuDNN at all.
bool knows_cudnn();
// "cuDNN 9.19.0". Throws Error that says what is missing.
std::string cudnn_name();
// For `queue` (a cudaStream_t) of the GPU in use. Throws Error that says what is missing.
std::unique_ptr<AttentionLibrary> open_cudnn_attention(void* queue);

}  // namespace weft
