// Numbers to GGUF blocks and back.
#pragma once
#include <cstddef>
#include <span>

#include "weft/gguf/gguf_type.h"

namespace weft {

// The largest magnitude that a block of any type but F32 and BF16 holds: that of f16, which block scales are.
inline constexpr float kLargestInBlocks = 65504;

// Both take whole blocks: `from` and `to` must fit each other, else CheckFailure. Any thread may call them.

// The numbers that blocks stand for. Any bytes are blocks: some stand for numbers that are not finite.
void decode_blocks(GgufType type, std::span<const std::byte> from, std::span<float> to);

// The blocks that stand for numbers near `from`, which must be finite, and at most kLargestInBlocks in magnitude unless
// the type is F32 or BF16. Q8_0, Q5_0 and Q4_0 take their scale from the number of the largest magnitude, as llama.cpp
// does, and MXFP4 its exponent; Q4_K and Q6_K try several scales and keep the one with the least sum of squared errors.
void encode_blocks(GgufType type, std::span<const float> from, std::span<std::byte> to);

}  // namespace weft
