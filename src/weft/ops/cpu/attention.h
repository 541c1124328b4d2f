// Attention without a buffer of queries times keys.   Dao et al. 2022
#pragma once
#include <cstddef>

#include "weft/ops/ops.h"

namespace weft::cpu {

// Temporary memory of an op, in bytes: grows with the tokens, not with their square.
int64_t attention_bytes(const Attention& op, int threads);
int64_t attention_bytes(const AttentionBackward& op, int threads);

void attention(const Attention& op, int threads, std::byte* workspace);
void attention_backward(const AttentionBackward& op, int threads, std::byte* workspace);

}  // namespace weft::cpu
