// What ends the recording of a queue.
#pragma once

namespace weft::gpu {

// Thrown while a queue is recorded as a CUDA graph, by an op that still searches for its fastest way, must wait for
// the queue, or has more to keep than there is room for. No error: the ops run one by one, and are recorded later.
struct CannotRecord {};

}  // namespace weft::gpu
