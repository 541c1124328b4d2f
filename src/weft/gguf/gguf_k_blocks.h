// Blocks of 256 numbers whose parts have scales of their own, which are codes beside an f16 scale of the block.
#pragma once
#include <cstddef>

namespace weft {

// Q4_K, 144 bytes: f16 d, f16 dmin, 12 bytes of scales and minima (6 bits each), 128 bytes of codes q of 4 bits. The
// block has eight parts of 32 numbers; x = d scale q - dmin minimum.
void decode_q4_k(const std::byte* from, float* x);
void encode_q4_k(const float* x, std::byte* to);

// Q6_K, 210 bytes: 128 bytes with the low 4 bits of codes q, 64 bytes with their high 2 bits, 16 signed bytes of
// scales, f16 d. The block has sixteen parts of 16 numbers; x = d scale (q - 32).
void decode_q6_k(const std::byte* from, float* x);
void encode_q6_k(const float* x, std::byte* to);

}  // namespace weft
