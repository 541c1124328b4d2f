// Kernels: keys and values of latent attention, element by element.
//   n, r  own and shared columns of a head's key     u  of its value
#pragma once
#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

template <class T>
struct LatentKey {
  Rows<const T> kv, shared;
  int64_t n, r, u;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const int64_t head = j / (n + r), c = j % (n + r);
    return load(c < n ? kv[i] + head * (n + u) + c : shared[i] + c - n);
  }
};
template <class T>
struct LatentValue {
  Rows<const T> kv;
  int64_t n, u;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return load(kv[i] + j / u * (n + u) + n + j % u); }
};
template <class T>
struct LatentGradient {  // of kv
  Rows<const T> dk, dv;
  int64_t n, r, u;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const int64_t head = j / (n + u), c = j % (n + u);
    return load(c < n ? dk[i] + head * (n + r) + c : dv[i] + head * u + c - n);
  }
};
template <class T>
struct SharedGradient {
  Rows<const T> dk;
  int64_t n, r;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    float sum = 0;
    for (int64_t at = n + j; at < dk.cols; at += n + r) sum += load(dk[i] + at);
    return sum;
  }
};

}  // namespace weft::gpu
