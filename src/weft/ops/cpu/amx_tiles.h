// Instructions of AMX's matrix units, and of AVX-512 beside them: what products and attention share.
// The functions are compiled for these instructions one by one: the rest of the program runs on any x86-64.
#pragma once
#if defined(__x86_64__)
// g++ 12 warns of its own intrinsics, which pass an undefined register where a mask leaves nothing of it (GCC
// PR105593).
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

#define WEFT_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define WEFT_AMX_INLINE \
  inline __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"), always_inline))

namespace weft::cpu::amx {

inline constexpr int kTileRows = 16;
inline constexpr int64_t kTileBytes = 1024, kRowBytes = 64;

// The intrinsics of tiles do not tell g++ which memory they read and write.
inline void memory_is_used() { asm volatile("" ::: "memory"); }

// The eight tiles are this thread's, all of 16 rows of 64 bytes, until end_tiles.
WEFT_AMX inline void begin_tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 8; ++i) config.row_bytes[i] = kRowBytes, config.rows[i] = kTileRows;
  asm volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
}
WEFT_AMX inline void end_tiles() { _tile_release(); }

// Transposes 16 x 16 values of 32 bits in registers.
WEFT_AMX_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

WEFT_AMX_INLINE void store_tile(const __m512i (&r)[16], void* to) {
  for (int i = 0; i < kTileRows; ++i) _mm512_storeu_si512(static_cast<char*>(to) + i * kRowBytes, r[i]);
}

}  // namespace weft::cpu::amx
#endif
