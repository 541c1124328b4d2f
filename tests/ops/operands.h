// Memory of one op's operands: each tensor beside a twin in fp64 that holds the same values.
#pragma once
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/base/rng.h"
#include "weft/base/threads.h"
#include "weft/device/arena.h"
#include "weft/ops/ops.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft::testing {

// Element `index` of the tensor whose random numbers are keyed by `key`.
using Fill = std::function<double(uint64_t key, int64_t index)>;
// random_normal. Cases draw the same numbers over and over: each is computed once.
inline double drawn_normal(uint64_t key, int64_t i) {
  static std::mutex mutex;
  static std::unordered_map<uint64_t, std::vector<double>> drawn;
  const std::lock_guard lock(mutex);
  std::vector<double>& numbers = drawn[key];
  while (int64_t(numbers.size()) <= i) numbers.push_back(random_normal(key, numbers.size()));
  return numbers[size_t(i)];
}
inline Fill normal(double stddev = 1, double mean = 0) {
  return [=](uint64_t key, int64_t i) { return mean + stddev * drawn_normal(key, i); };
}
inline Fill uniform(double low, double high) {
  return [=](uint64_t key, int64_t i) { return low + (high - low) * random_uniform(key, uint64_t(i)); };
}
// Fills outputs so that a kernel which reads them, or leaves elements unwritten, is found.
inline Fill unwritten() {
  return [](uint64_t, int64_t) { return std::numeric_limits<double>::quiet_NaN(); };
}

inline double load(const void* at, DType t, int64_t i) {
  switch (t) {
    case DType::f64:
      return static_cast<const double*>(at)[i];
    case DType::f32:
      return double(static_cast<const float*>(at)[i]);
    case DType::bf16:
      return double(float(static_cast<const bf16*>(at)[i]));
    case DType::f16:
      return double(float(static_cast<const f16*>(at)[i]));
    default:
      WEFT_CHECK(false, "no {} operands", name_of(t));
  }
}
inline void store(void* at, DType t, int64_t i, double x) {
  switch (t) {
    case DType::f64:
      static_cast<double*>(at)[i] = x;
      return;
    case DType::f32:
      static_cast<float*>(at)[i] = float(x);
      return;
    case DType::bf16:
      static_cast<bf16*>(at)[i] = bf16(float(x));
      return;
    case DType::f16:
      static_cast<f16*>(at)[i] = f16(float(x));
      return;
    default:
      WEFT_CHECK(false, "no {} operands", name_of(t));
  }
}

inline bool is_narrow(DType t) { return t == DType::bf16 || t == DType::f16; }
inline bool is_float(DType t) { return t == DType::f64 || t == DType::f32 || is_narrow(t); }

// On the heap, where the address sanitizer sees accesses behind a buffer's end.
class HeapMemory final : public Memory {
 public:
  std::byte* take(size_t bytes, const std::string&) override {
    auto* const p = static_cast<std::byte*>(operator new (bytes, std::align_val_t{kArenaAlignment}));
    std::memset(p, 0, bytes);
    return p;
  }
  void give(std::byte* memory, size_t) override { operator delete (memory, std::align_val_t{kArenaAlignment}); }
};

// Tensors stay valid as long as this, which does not move. Between strided rows lie NaNs that no op may touch.
// A buffer ends where its last element does. They lie in `memory`; of one that the host does not reach, on the host,
// with copies there.
class Operands {
 public:
  // gap: elements between the rows of matrices.
  Operands(DType compute, int64_t gap, std::shared_ptr<Memory> memory = std::make_shared<HeapMemory>())
      : compute_(compute),
        gap_(gap),
        memory_(std::move(memory)),
        here_(memory_->host_reaches() ? memory_ : std::make_shared<HeapMemory>()) {}
  Operands(const Operands&) = delete;

  DType compute() const { return compute_; }
  DType stat() const { return compute_ == DType::f64 ? DType::f64 : DType::f32; }

  Tensor make(DType dtype, Shape shape, Placement place, const Fill& fill) {
    Tensor t(nullptr, dtype, shape, place);
    if (shape.rank() > 1) t.row_stride += gap_;
    t.data = add_buffer(dtype, t.rows() * t.row_stride);
    const uint64_t key = rng_key(buffers_.size(), "operand");
    const Tensor twin = exact(t);
    for (int64_t i = 0; i < t.rows(); ++i)
      for (int64_t j = 0; j < t.cols(); ++j) put(t, twin, i, j, fill(key, i * t.cols() + j));
    return t;
  }
  template <class T>
  Tensor index(const std::vector<T>& values, Placement place) {
    void* data = add_buffer(dtype_of<T>, int64_t(values.size()));
    std::memcpy(data, values.data(), values.size() * sizeof(T));
    return {data, dtype_of<T>, Shape(int64_t(values.size())), place};
  }
  // Indices that an op writes; their twin holds i32 too.
  Tensor index_out(Shape shape) {
    Tensor t(add_buffer(DType::i32, shape.elements()), DType::i32, shape);
    Buffer& b = buffers_.back();
    b.exact.resize(size_t(std::max<int64_t>(1, shape.elements())));
    std::memset(b.data(), 0xa5, b.bytes.size());
    std::memset(b.exact.data(), 0x5a, b.exact.size() * sizeof(double));
    return t;
  }
  // Codes, which an op may write; their twin holds u8 too.
  Tensor codes(int64_t n, const std::function<int(int64_t)>& code) {
    const Tensor t(add_buffer(DType::u8, n), DType::u8, {n}, kWeights);
    Buffer& b = buffers_.back();
    b.exact.resize(size_t(std::max<int64_t>(1, (n + 7) / 8)));
    for (int64_t i = 0; i < n; ++i)
      t.as<uint8_t>()[i] = reinterpret_cast<uint8_t*>(b.exact.data())[i] = uint8_t(code(i));
    return t;
  }
  std::span<const AttentionSpan> keep(std::vector<AttentionSpan> spans) {
    return spans_.emplace_back(std::move(spans));
  }

  // Activations [t, n] and statistics of tokens; weights and their gradients; outputs of each kind.
  Tensor act(int64_t t, int64_t n, const Fill& f = normal()) { return make(compute_, {t, n}, kTokens, f); }
  Tensor act_out(int64_t t, int64_t n) { return act(t, n, unwritten()); }
  Tensor stats(int64_t t, const Fill& f = unwritten()) { return make(stat(), {t}, kTokens, f); }
  Tensor stats(int64_t t, int64_t n, const Fill& f = unwritten()) { return make(stat(), {t, n}, kTokens, f); }
  Tensor weight(Shape s, const Fill& f = normal()) { return make(compute_, s, kWeights, f); }
  Tensor stat_weight(Shape s, const Fill& f = normal()) { return make(stat(), s, kWeights, f); }
  Tensor gradient(Shape s, bool accumulate) {
    return make(stat(), s, kWeights.dual(), accumulate ? normal() : unwritten());
  }
  // The same of matrices that are read as one run of memory.
  Tensor make_together(Shape s, const Fill& f) {
    return together([&] { return weight(s, f); });
  }
  Tensor gradient_together(Shape s, bool accumulate) {
    return together([&] { return gradient(s, accumulate); });
  }
  Tensor scalar() { return make(DType::f64, {1}, kTokens, unwritten()); }

  // The same view of the twin; of indices, the view itself.
  Tensor exact(Tensor t) {
    const Place at = locate(t);
    std::vector<double>& twin = buffers_[at.buffer].exact;
    if (t.dtype == DType::i32 && !twin.empty()) t.data = reinterpret_cast<int32_t*>(twin.data()) + at.element;
    if (t.dtype == DType::u8 && !twin.empty()) t.data = reinterpret_cast<uint8_t*>(twin.data()) + at.element;
    if (!is_float(t.dtype)) return t;
    t.data = twin.data() + at.element;
    t.dtype = DType::f64;
    return t;
  }
  template <class Op>
  Op exact(Op op) {
    for (const Field& f : op.fields())
      if (*f.tensor) const_cast<Tensor&>(*f.tensor) = exact(*f.tensor);
    return op;
  }
  // Calls f(op) with the op on the tensors in `memory`, which are then as they were here, and leaves here what it made
  // of them.
  template <class Op, class F>
  void run_there(Op op, const F& f) {
    if (here_ == memory_) return f(op);
    for (const Field& field : op.fields()) {
      if (!*field.tensor) continue;
      const Place at = locate(*field.tensor);
      const_cast<Tensor&>(*field.tensor).data =
          buffers_[at.buffer].there.get() + at.element * size_of(field.tensor->dtype);
    }
    for (const Buffer& b : buffers_) memory_->copy(b.there.get(), b.bytes.data(), b.bytes.size());
    f(op);
    for (const Buffer& b : buffers_) memory_->copy(b.bytes.data(), b.there.get(), b.bytes.size());
  }
  // Where a tensor begins, and all values of a buffer's twin, gaps included.
  struct Place {
    size_t buffer;
    int64_t element;
  };
  Place locate(const Tensor& t) const {
    const auto* data = static_cast<const std::byte*>(t.data);
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const std::span<std::byte> b = buffers_[i].bytes;
      if (data >= b.data() && data < b.data() + b.size()) return {i, (data - b.data()) / size_of(t.dtype)};
    }
    WEFT_CHECK(false, "{} is not of this case", t.to_string());
  }
  std::span<const double> exact_values(size_t buffer) const { return buffers_[buffer].exact; }

  // Operands that another op computes (statistics of a forward pass): exactly, then rounded to their own type.
  template <class Op>
  void derive(const Op& op) {
    RefBackend(usable_cores()).run(exact(op));
    for (const Field& f : op.fields()) {
      if (f.role == Role::in || !*f.tensor) continue;
      const Tensor x = exact(*f.tensor);
      for (int64_t i = 0; i < x.rows(); ++i)
        for (int64_t j = 0; j < x.cols(); ++j) put(*f.tensor, x, i, j, x.as<double>()[i * x.row_stride + j]);
    }
  }

  // Everything made so far is how a trial begins; `reset` returns to it.
  void freeze() {
    for (Buffer& b : buffers_) b.before.assign(b.bytes.begin(), b.bytes.end()), b.exact_before = b.exact;
  }
  void reset() {
    for (Buffer& b : buffers_) {
      std::copy(b.before.begin(), b.before.end(), b.bytes.begin());
      std::copy(b.exact_before.begin(), b.exact_before.end(), b.exact.begin());
    }
  }
  // Is every byte as frozen, but for those of the tensors in `written`?
  bool unchanged_but(const std::vector<Tensor>& written) const {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const Buffer& b = buffers_[i];
      std::vector<std::byte> allowed = b.before;
      for (const Tensor& t : written) {
        const Place at = locate(t);
        if (at.buffer != i) continue;
        const int64_t size = size_of(t.dtype);
        for (int64_t row = 0; row < t.rows(); ++row) {
          const int64_t begin = (at.element + row * t.row_stride) * size;
          std::copy_n(b.bytes.data() + begin, t.cols() * size, allowed.data() + begin);
        }
      }
      if (!std::equal(allowed.begin(), allowed.end(), b.bytes.begin())) return false;
    }
    return true;
  }

 private:
  static constexpr Placement kTokens = tokens(Spmd::Invariant), kWeights = weights(Spmd::Invariant);
  struct Buffer {
    std::shared_ptr<std::byte> owner, there;
    std::span<std::byte> bytes;
    std::vector<std::byte> before;
    std::vector<double> exact, exact_before;
    void* data() { return bytes.data(); }
  };

  template <class F>
  Tensor together(const F& make) {
    const int64_t gap = std::exchange(gap_, 0);
    const Tensor t = make();
    gap_ = gap;
    return t;
  }

  void* add_buffer(DType dtype, int64_t elements) {
    Buffer& b = buffers_.emplace_back();
    const size_t bytes = size_t(std::max<int64_t>(1, elements * size_of(dtype)));
    b.owner = taken(here_, bytes);
    if (here_ != memory_) b.there = taken(memory_, bytes);
    b.bytes = {b.owner.get(), bytes};
    if (is_float(dtype)) {
      b.exact.resize(size_t(std::max<int64_t>(1, elements)), std::numeric_limits<double>::quiet_NaN());
      for (int64_t i = 0; i < elements; ++i) store(b.data(), dtype, i, b.exact[size_t(i)]);
    }
    return b.data();
  }
  static std::shared_ptr<std::byte> taken(const std::shared_ptr<Memory>& memory, size_t bytes) {
    return {memory->take(bytes, "an operand"), [memory, bytes](std::byte* p) { memory->give(p, bytes); }};
  }
  static void put(const Tensor& t, const Tensor& twin, int64_t i, int64_t j, double x) {
    const int64_t at = i * t.row_stride + j;
    store(t.data, t.dtype, at, x);
    twin.as<double>()[at] = load(t.data, t.dtype, at);
  }

  DType compute_;
  int64_t gap_;
  std::shared_ptr<Memory> memory_, here_;
  std::deque<Buffer> buffers_;
  std::deque<std::vector<AttentionSpan>> spans_;
};

}  // namespace weft::testing
