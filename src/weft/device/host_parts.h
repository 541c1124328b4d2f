// Lets the host read and write tensors that it cannot reach, by copying a part at a time.
#pragma once
#include <functional>

#include "weft/device/memory.h"
#include "weft/tensor/tensor.h"

namespace weft {

// Rows [first_row, first_row + part.rows()) of a tensor, where the host may touch them.
using HostPart = std::function<void(const Tensor& part, int64_t first_row)>;

// Calls f for parts of x, in order, until it has had every row. x lies in `memory`; where the host reaches that, the
// one part is x itself, else a part has a few MiB, or one row where that is longer. Blocks.
void read_parts(const Memory& memory, const Tensor& x, const HostPart& f);
// The same, and what f leaves in a part is then in x. f writes all of it: what it finds there is not what x holds.
void write_parts(const Memory& memory, const Tensor& x, const HostPart& f);

}  // namespace weft
