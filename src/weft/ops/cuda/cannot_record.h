// What ends the recording of a stream.
#pragma once

namespace weft::gpu {

// Thrown while a stream is recorded as a CUDA graph, by an op that still searches for its fastest way, must wait for
// the stream, or has more to keep than there is room for. No error: the ops run one by one, and are recorded later.
struct CannotRecord {};

}  // namespace weft::gpu
