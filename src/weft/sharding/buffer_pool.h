// A few buffers that many users take turns with.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "weft/device/arena.h"

namespace weft {

// Not thread-safe.
class BufferPool {
 public:
  // Adds a buffer of `elements`.
  void add(Arena& arena, DType dtype, int64_t elements) {
    buffers_.push_back(arena.alloc(dtype, {elements}));
    busy_.push_back(false);
  }
  // The smallest free one that holds `elements`. WEFT_CHECK where there is none: the plan was wrong.
  int take(int64_t elements) {
    int best = -1;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (busy_[i] || buffers_[i].rows() < elements) continue;
      if (best < 0 || buffers_[i].rows() < buffers_[size_t(best)].rows()) best = int(i);
    }
    WEFT_CHECK(best >= 0, "none of {} buffers is free for {} elements", buffers_.size(), elements);
    busy_[size_t(best)] = true;
    return best;
  }
  // The same, but -1 where that means to take a larger one than is needed, or none is free.
  int take_spare(int64_t elements) {
    int64_t fits = INT64_MAX;
    for (const Tensor& b : buffers_)
      if (b.rows() >= elements) fits = std::min(fits, b.rows());
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (!busy_[i] && buffers_[i].rows() == fits) return take(elements);
    return -1;
  }
  int64_t num_holding(int64_t elements) const {
    return std::count_if(buffers_.begin(), buffers_.end(), [&](const Tensor& b) { return b.rows() >= elements; });
  }
  bool has_free(int64_t elements) const {
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (!busy_[i] && buffers_[i].rows() >= elements) return true;
    return false;
  }
  void give(int buffer) { busy_[size_t(buffer)] = false; }
  const Tensor& operator[](int buffer) const { return buffers_[size_t(buffer)]; }
  size_t size() const { return buffers_.size(); }

 private:
  std::vector<Tensor> buffers_;
  std::vector<bool> busy_;
};

}  // namespace weft
