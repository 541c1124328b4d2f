// Kernels of AmxMatmul, for the matrix units (AMX) of x86-64 CPUs.
//
//   panel  32 rows of a, or 32 columns of b       step  32 values of k       item  what a panel has in one step, packed
//
// An item is two tiles of 16 rows of 64 bytes, as TDPBF16PS takes them. Of a: a row for each row of a, 32 values of
// k. Of b: a row for each two values of k, which are neighbours there, for 16 columns. Zeros fill what is beyond the
// operand. A product of two panels is a square of 32 x 32 sums in f32, kept as four tiles (4 KB) in memory.
//
// TDPBF16PS takes denormal bf16 values for zero, and so do sums that would be denormal; NaN and infinity pass.
#pragma once
#include <cstddef>
#include <cstdint>

namespace weft {

constexpr int64_t kAmxPanel = 32, kAmxStep = 32, kAmxItemBytes = 2048;
constexpr int64_t kAmxSquareFloats = kAmxPanel * kAmxPanel;

// A panel's values, to be packed item by item. Value (lane, p) lies at from[lane * stride + p * k_stride]; a lane is a
// row of a or a column of b. One of the strides is 1.
struct AmxPacking {
  const uint16_t* from = nullptr;
  int64_t stride = 0, k_stride = 0;
  int lanes = 0;  // 1..32
  int64_t k = 0;  // values of k that are left
  bool of_a = true;
  std::byte* to = nullptr;
  int64_t next_panel = 0;  // from here to the panel that follows, in elements: it is prefetched. 0: none is
};

// A finished square on its way to out[rows, cols], row by row:
//   out[i, j] = start[i, j] + sums[i, j], start is out itself, the bias, or zero.
struct AmxResult {
  const float* sums = nullptr;
  std::byte* out = nullptr;
  int64_t row_bytes = 0;   // from one row of out to the next
  int rows = 0, cols = 0;  // 1..32
  bool narrow = false;     // out is bf16, else f32
  bool add_to_out = false;
  const uint16_t* bias = nullptr;  // bf16 [cols] or null
  int next_row = 0;                // done up to here
};

// What is done beside a product, between its instructions: results are written, and the next panel is packed. The
// matrix unit is busy longer than that takes, and neither waits for the other.
struct AmxChores {
  AmxResult result;                                            // all of it during the next product
  AmxPacking packing;                                          // an item now and then
  int64_t packing_share = 0, packing_of = 1, packing_due = 0;  // so many items in so many steps; carried over
};

// sums (+)= a b over so many steps.
struct AmxProduct {
  const std::byte *a, *b;  // packed
  float* sums;             // a square
  int64_t steps;           // > 0
  bool from_zero;
  const AmxResult* ahead;  // out that this square will be written to: it is prefetched. Or null
};

// A product of up to 16 rows of a with the transpose of b: its squares are transposed, so that tiles are filled from
// b's rows as they lie, and b is read once.
struct AmxFewRows {
  const std::byte* a;             // packed as columns of b: the first tile of each item
  const uint16_t* b;              // [cols, 32 steps]
  int64_t b_stride, cols, steps;  // cols: a multiple of 16
  AmxResult result;               // of all cols, without `sums`
};

// The functions of a thread's part of a product. Only where isa_of_kernels() is CpuIsa::amx: in a program for
// another kind of CPU they do nothing, and amx_begin ends it.
void amx_begin();  // configures the tiles of the calling thread
void amx_end();    // and releases them
void amx_pack_all(AmxPacking packing);
void amx_multiply(const AmxProduct& product, AmxChores& chores);
void amx_multiply_few(const AmxFewRows& product);
void amx_finish_packing(AmxChores& chores);  // packs what is left
void amx_finish(AmxChores& chores);          // and writes the result

}  // namespace weft
