// Attention without a buffer of queries times keys.   Dao et al. 2022
#pragma once
#include <cstddef>

#include "weft/ops/ops.h"

namespace weft::cpu {

// What multiplies bf16 heads: vectors of f32, or the tiles of matrix units where the CPU has them. Others: vectors.
enum class AttentionUnits { vectors, tiles };

// Tiles where they are wanted and kernels of this process may use them.
AttentionUnits attention_units(bool tiles);

// Temporary memory of an op, in bytes: grows with the tokens, not with their square.
int64_t attention_bytes(const Attention& op, int threads, AttentionUnits units);
int64_t attention_bytes(const AttentionBackward& op, int threads, AttentionUnits units);

void attention(const Attention& op, int threads, AttentionUnits units, std::byte* workspace);
void attention_backward(const AttentionBackward& op, int threads, AttentionUnits units, std::byte* workspace);

}  // namespace weft::cpu
