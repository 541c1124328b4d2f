// Kinds of CPU that the vectorised kernels are not compiled for; included before Highway.
#pragma once

// Vectors of unknown length cannot be held in arrays of registers; NEON serves those CPUs. The other targets listed
// differ from a compiled one only in instructions not used here.
#define WEFT_DISABLED_TARGETS                                                                                 \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_AVX3_DL | (HWY_AVX3_DL >> 1) | \
   (HWY_AVX3_DL >> 2) | (HWY_AVX3_DL >> 3))
// The kernels are the same lines for every kind. Sanitizers take long to compile, and see what is wrong in any kind of
// each length of vectors; what threads do is the same in all kinds.
#if defined(WEFT_SANITIZES_THREADS)
#define HWY_DISABLED_TARGETS (WEFT_DISABLED_TARGETS | HWY_SSE4 | HWY_AVX3)
#elif defined(WEFT_SANITIZES)
#define HWY_DISABLED_TARGETS (WEFT_DISABLED_TARGETS | HWY_SSE4)
#else
#define HWY_DISABLED_TARGETS WEFT_DISABLED_TARGETS
#endif
