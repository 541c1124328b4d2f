// Attention of blocks of rows with the keys that they see, vectorised.
#pragma once
#include <span>

#include "weft/ops/cpu/attention_blocks.h"

namespace weft::cpu {

// A head as tiles hold it: whole vectors of any CPU.
inline int64_t padded(int64_t dim) { return (dim + 15) / 16 * 16; }

inline constexpr int64_t kGroupBlocks = 4;  // of rows, that read a tile of keys together

// Up to kGroupBlocks blocks of one span and key head.
int64_t forward_floats(const AttentionHeads& h);
void forward_blocks(const Attention& op, std::span<const QueryBlock> blocks, float* memory);

// The heads of a block of one query, without dropout: what a text's next token needs. No tile of rows is filled for the
// one, and keys and values are read where they lie. Sums over a head's columns are in another order than those of
// forward_blocks.
int64_t one_query_floats(const AttentionHeads& h);
void one_query(const Attention& op, const QueryBlock& block, float* memory);

// Rows of k and v, and of their gradients, of one key head. Their copies in a thread's memory stay in its caches while
// blocks of rows pass by.
struct KeyChunk {
  int64_t kv = 0;
  Range rows;
  int64_t lead = 0;  // positions from the last multiple of kStripKeys / 2 to the first row, where dq is written
};
// At most so many rows make a chunk: a multiple of kStripKeys.
inline int64_t chunk_rows(const AttentionHeads& h) {
  return std::max(kStripKeys, (int64_t{1} << 17) / (padded(h.dim) + padded(h.value_dim())) / 64 * 64);
}

// The outputs of one visit of a block. Rows of dq that also see other chunks are kept in `unfinished`, f32, until their
// last key.
struct BackwardTask {
  KeyChunk chunk;
  bool key_sums = false;  // of dk and dv
  bool dq = false;
  Rows<float> unfinished = {};       // as dq
  const QueryBlock* next = nullptr;  // visited next with this memory, if known
};

int64_t backward_floats(const AttentionHeads& h, int64_t most_rows);
// Called before and after the visits of the blocks that see a chunk.
void begin_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory);
void backward_block(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory);
void end_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory);  // writes dk and dv

// All kernels of a kind.
struct AttentionKernels {
  decltype(&cpu::forward_floats) forward_floats;
  decltype(&cpu::forward_blocks) forward_blocks;
  decltype(&cpu::backward_floats) backward_floats;
  decltype(&cpu::begin_keys) begin_keys;
  decltype(&cpu::backward_block) backward_block;
  decltype(&cpu::end_keys) end_keys;
};

}  // namespace weft::cpu
