// One warp, as kernels with tensor cores see it: its 32 lanes hold fragments of matrices in their registers. On a GPU
// it is one; on a CPU it plays the lanes after each other, with the instructions as NVIDIA's PTX ISA defines them
// ("Matrix multiply-accumulate", mma.m16n8k16 and ldmatrix), so that the places of elements are tested too.
//   g = lane / 4   t = lane % 4
//   A [16, 16]  words 0..3: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8), each with its right neighbour
//   B [16, 8]   words 0, 1: (2t, g) (2t + 8, g), each with its lower neighbour
//   C [16, 8]   numbers 0..3: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
#pragma once
#include <array>
#include <bit>
#include <cstring>

#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

// Two 16-bit floats in a word, the first in its lower half.
template <class T>
WEFT_GPU uint32_t pack(float low, float high) {
  T pair[2];
  store(&pair[0], low);
  store(&pair[1], high);
  return uint32_t(pair[0].bits) | uint32_t(pair[1].bits) << 16;
}

template <class T>
WEFT_GPU float low_of(uint32_t word) {
  T x;
  x.bits = uint16_t(word);
  return load(&x);
}
template <class T>
WEFT_GPU float high_of(uint32_t word) {
  return low_of<T>(word >> 16);
}

class HostWarp {
 public:
  // N numbers of each lane.
  template <class X, int N>
  struct Registers {
    std::array<std::array<X, N>, kLanes> all = {};
    X* operator[](int lane) { return all[size_t(lane)].data(); }
    const X* operator[](int lane) const { return all[size_t(lane)].data(); }
  };
  explicit HostWarp(int index, HostOrder order = {}) : index_(index), order_(order) {}
  int index() const { return index_; }  // in its block
  template <class F>
  void lanes(const F& f) const {
    order_.play(kLanes, [&](int64_t lane) { f(int(lane)); });
  }
  // Four matrices of 8 x 8 16-bit numbers: at(lane) is row lane % 8 of matrix lane / 8. Word m of a lane are the two
  // numbers of matrix m at (g, 2t); of the transposed matrix where `transposed`.
  template <bool transposed, class At>
  void load(Registers<uint32_t, 4>& to, const At& at) const {
    const void* rows[kLanes];
    lanes([&](int lane) {
      rows[lane] = at(lane);
      WEFT_CHECK(reinterpret_cast<uintptr_t>(rows[lane]) % 16 == 0, "a row of a matrix begins between 16 bytes");
    });
    lanes([&](int lane) {
      const int g = lane / 4, t = lane % 4;
      for (int m = 0; m < 4; ++m) {
        const auto number = [&](int i, int j) {
          uint16_t x;
          std::memcpy(&x, static_cast<const std::byte*>(rows[8 * m + i]) + 2 * j, sizeof x);
          return uint32_t(x);
        };
        to[lane][m] =
            transposed ? number(2 * t, g) | number(2 * t + 1, g) << 16 : number(g, 2 * t) | number(g, 2 * t + 1) << 16;
      }
    });
  }
  // C += A B: words [a_at, a_at + 4) of a, [b_at, b_at + 2) of b, numbers [c_at, c_at + 4) of c.
  template <class T, int NA, int NC>
  void multiply(Registers<float, NC>& c, int c_at, const Registers<uint32_t, NA>& a, int a_at,
                const Registers<uint32_t, 4>& b, int b_at) const {
    const auto number = [](uint32_t word, int half) { return half != 0 ? high_of<T>(word) : low_of<T>(word); };
    float of_a[16][16], of_b[16][8];
    lanes([&](int lane) {
      const int g = lane / 4, t = lane % 4;
      for (int half = 0; half < 2; ++half) {
        for (int w = 0; w < 4; ++w) of_a[g + w % 2 * 8][2 * t + w / 2 * 8 + half] = number(a[lane][a_at + w], half);
        for (int w = 0; w < 2; ++w) of_b[2 * t + w * 8 + half][g] = number(b[lane][b_at + w], half);
      }
    });
    lanes([&](int lane) {
      for (int r = 0; r < 4; ++r) {
        float sum = c[lane][c_at + r];
        for (int k = 0; k < 16; ++k) sum += of_a[lane / 4 + r / 2 * 8][k] * of_b[k][2 * (lane % 4) + r % 2];
        c[lane][c_at + r] = sum;
      }
    });
  }
  // Every number becomes what join makes of it over the four lanes with the same g.
  template <int N, class Join>
  void across(Registers<float, N>& x, const Join& join) const {
    for (int other = 1; other < 4; other *= 2) {
      const Registers<float, N> before = x;
      lanes([&](int lane) {
        for (int i = 0; i < N; ++i) x[lane][i] = join(before[lane][i], before[lane ^ other][i]);
      });
    }
  }

 private:
  int index_;
  HostOrder order_;
};

#ifdef __CUDACC__
class GpuWarp {
 public:
  template <class X, int N>
  struct Registers {
    X mine[N] = {};
    __device__ X* operator[](int) { return mine; }
    __device__ const X* operator[](int) const { return mine; }
  };
  __device__ int index() const { return int(threadIdx.x) / kLanes; }
  template <class F>
  __device__ void lanes(const F& f) const {
    f(int(threadIdx.x) % kLanes);
  }
  template <bool transposed, class At>
  __device__ void load(Registers<uint32_t, 4>& to, const At& at) const {
    const auto row = unsigned(__cvta_generic_to_shared(at(int(threadIdx.x) % kLanes)));
    uint32_t* w = to.mine;
    if constexpr (transposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "r"(row));
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "r"(row));
  }
  template <class T, int NA, int NC>
  __device__ void multiply(Registers<float, NC>& c_all, int c_at, const Registers<uint32_t, NA>& a_all, int a_at,
                           const Registers<uint32_t, 4>& b_all, int b_at) const {
    float* c = c_all.mine + c_at;
    const uint32_t *a = a_all.mine + a_at, *b = b_all.mine + b_at;
    if constexpr (std::is_same_v<T, bf16>)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
          "{%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
          "{%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  template <int N, class Join>
  __device__ void across(Registers<float, N>& x, const Join& join) const {
    WEFT_UNROLL
    for (int other = 1; other < 4; other *= 2) {
      WEFT_UNROLL
      for (int i = 0; i < N; ++i) x.mine[i] = join(x.mine[i], __shfl_xor_sync(~0u, x.mine[i], other));
    }
  }
};
#endif

// C [16, N] += A [16, K] B^T: fragment(k, to) gives words of A's columns [16 k, 16 k + 16); the rows of B [N, K] lie in
// shared memory, `stride` apart.
template <class T, int N, int K, class Warp, class Fragment>
WEFT_GPU void multiply_rows(const Warp& warp, typename Warp::template Registers<float, N / 2>& c,
                            const Fragment& fragment, const T* b, int stride) {
  WEFT_UNROLL
  for (int k = 0; k < K / 16; ++k) {
    typename Warp::template Registers<uint32_t, 4> of_a, of_b;
    fragment(k, of_a);
    WEFT_UNROLL
    for (int n = 0; n < N / 16; ++n) {
      warp.template load<false>(
          of_b, [&](int lane) { return b + (16 * n + lane % 8 + lane / 16 * 8) * stride + 16 * k + lane / 8 % 2 * 8; });
      warp.template multiply<T>(c, 8 * n, of_a, 0, of_b, 0);
      warp.template multiply<T>(c, 8 * n + 4, of_a, 0, of_b, 2);
    }
  }
}

// C [16, N] += A [16, K] B: A is what a C [16, K] holds; the rows of B [K, N] lie in shared memory, `stride` apart.
template <class T, int N, int K, class Warp>
WEFT_GPU void multiply_columns(const Warp& warp, typename Warp::template Registers<float, N / 2>& c,
                               const typename Warp::template Registers<float, K / 2>& a, const T* b, int stride) {
  WEFT_UNROLL
  for (int k = 0; k < K / 16; ++k) {
    typename Warp::template Registers<uint32_t, 4> of_a, of_b;
    warp.lanes([&](int lane) {
      WEFT_UNROLL
      for (int w = 0; w < 4; ++w) of_a[lane][w] = pack<T>(a[lane][8 * k + 2 * w], a[lane][8 * k + 2 * w + 1]);
    });
    WEFT_UNROLL
    for (int n = 0; n < N / 16; ++n) {
      warp.template load<true>(of_b,
                               [&](int lane) { return b + (16 * k + lane % 16) * stride + 16 * n + lane / 16 * 8; });
      warp.template multiply<T>(c, 8 * n, of_a, 0, of_b, 0);
      warp.template multiply<T>(c, 8 * n + 4, of_a, 0, of_b, 2);
    }
  }
}

// The fragment of A's columns [16 k, 16 k + 16) of 16 rows in shared memory.
template <class Warp, class T>
WEFT_GPU void load_fragment(const Warp& warp, typename Warp::template Registers<uint32_t, 4>& to, const T* rows,
                            int stride, int k) {
  warp.template load<false>(to, [&](int lane) { return rows + lane % 16 * stride + 16 * k + lane / 16 * 8; });
}

}  // namespace weft::gpu
