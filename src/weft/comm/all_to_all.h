// Each rank of an axis has something for each other.
#pragma once
#include <span>
#include <vector>

#include "weft/comm/communicator.h"

namespace weft {

// sent[j] goes to rank j, where it becomes received[this rank]: it has as many elements there, or none on both sides,
// and then nothing moves. What a rank has for itself stays where it is. Messages, so counted and timed as such; all
// receives are issued before the sends, so that no order of arrival blocks. Blocks until all are there and gone.
// Throws CommError.
void wait_all_to_all(Communicator& ranks, std::span<const Tensor> sent, std::span<const Tensor> received,
                     Site site = Site::current());
// The same, begun: it has happened when all of these have been waited for.
[[nodiscard]] std::vector<Work> begin_all_to_all(Communicator& ranks, std::span<const Tensor> sent,
                                                 std::span<const Tensor> received, Site site = Site::current());

}  // namespace weft
