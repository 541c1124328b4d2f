// Attention of bf16 heads by the matrix units of x86 CPUs (AMX). The kernels are those of attention_kernels.h, with the
// same cuts by position; a row's sums have one order, whatever blocks and chunks it is computed in.
//
// Products are of bf16, sums of f32. Between them probabilities and gradients of scores are rounded to bf16, as on GPUs
// (ops/cuda/attention_tiles.h): the sum of a row's probabilities, and so lse, is of those before rounding.
// Denormal values of bf16 count as zero.
#pragma once
#include "weft/ops/cpu/attention_kernels.h"

namespace weft::cpu {

// Null where this program is for another kind of CPU. They may be called where isa_of_kernels() is CpuIsa::amx.
const AttentionKernels* tile_kernels();

// Of elements, with the best vectors that this CPU has. Keys are those of the strip, rows all kBlockRows of a block.
// to [keys, kBlockRows]: 0 where a probability is dropped, else 1 / (1 - p).
void dropout_factors(const DropoutSpec& spec, const AttentionHeads& h, const QueryBlock& block, const Strip& strip,
                     float* to);
// x = tanh(factor x); n is a multiple of 16.
void tanh_of(float* x, int64_t n, float factor);

namespace amx {
int64_t forward_floats(const AttentionHeads& h);
void forward_blocks(const Attention& op, std::span<const QueryBlock> blocks, float* memory);
int64_t backward_floats(const AttentionHeads& h, int64_t most_rows);
void begin_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory);
void backward_block(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory);
void end_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory);
}  // namespace amx

}  // namespace weft::cpu
