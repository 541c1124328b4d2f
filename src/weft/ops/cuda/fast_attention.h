// Attention by a library where it can, checked against weft's own kernels.
#pragma once
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "weft/ops/cuda/attention_batch.h"
#include "weft/ops/cuda/attention_library.h"
#include "weft/ops/cuda/pointwise.h"

namespace weft::gpu {

// Transposes between weft's [tokens, heads] and the libraries' [sequences, heads, length]. One block for each run of
// numbers.
struct NumbersTurned {
  Rows<float> by_token;
  float* by_head;
  int64_t heads, length, total;
  bool to_tokens;
  static constexpr int64_t kRun = kAtOnce * kThreads;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kRun, left = total - first;
    block.each(left < kRun ? left : kRun, [&](int64_t k) {
      const int64_t i = first + k, token = i / heads, head = i % heads;
      float* other = by_head + (token / length * heads + head) * length + token % length;
      if (to_tokens)
        by_token[token][head] = *other;
      else
        *other = by_token[token][head];
    });
  }
};

struct Zeros {
  WEFT_GPU float operator()(int64_t, int64_t) const { return 0; }
};

// A block for each row. Without `own` only the bits are looked at.
template <class T>
struct RowsCompared {
  Rows<const T> own, other;
  RowReport* reports;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t row = block.index(), n = other.cols;
    RowReport report = {};
    report.bits = block.fold(n, uint64_t{0}, AddUp(), [&](int64_t j) { return mixed(other[row] + j, row * n + j); });
    if (own) {
      const auto a = [&](int64_t j) { return load(own[row] + j); };
      const auto apart = [&](int64_t j) { return a(j) - load(other[row] + j); };
      report.largest = block.fold(n, 0.0f, Larger(), [&](int64_t j) { return size(a(j)); });
      report.apart = block.fold(n, 0.0f, Larger(), [&](int64_t j) { return size(apart(j)); });
      report.squares = block.fold(n, 0.0f, AddUp(), [&](int64_t j) { return a(j) * a(j); });
      report.apart_squares = block.fold(n, 0.0f, AddUp(), [&](int64_t j) { return apart(j) * apart(j); });
    }
    block.each(1, [&](int64_t) { reports[row] = report; });
  }

 private:
  static WEFT_GPU float size(float x) { return x - x == 0 ? fabsf(x) : INFINITY; }
  // A hash of the element's bits and place: a sum of hashes does not depend on the order.
  static WEFT_GPU uint64_t mixed(const T* at, int64_t place) {
    uint64_t x = 0;
    if constexpr (sizeof(T) == 2)
      x = *reinterpret_cast<const uint16_t*>(at);
    else
      x = *reinterpret_cast<const uint32_t*>(at);
    x = (x | uint64_t(place) << 32) ^ (uint64_t(place) >> 32) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return x ^ x >> 32;
  }
};

inline constexpr double kLeastSquares = 1e-30;  // of a sum in f32

// Whether a library computes one shape correctly, as far as is known.
enum class Trust { unknown, checked, refused };

// The allowed difference between a library's numbers and weft's own, relative to the largest number, and to the root
// mean square, which finds small errors everywhere. Both round as the kernels' tests allow, probabilities to 16 bits
// too.
inline double allowed_apart(DType stored, bool backward) {
  if (stored == DType::f32) return 1e-3;  // lse, of f32 sums
  return (stored == DType::bf16 ? 0x1p-8 : 0x1p-11) * 2 * (backward ? 5 : 3);
}

// L is a launcher (run_kernels.h) that also has
//   launcher.expect_to_wait()         throws, but no Error, where that cannot be now
//   launcher.fetch(to, from, bytes)   copies to the host, once all that was launched has run
template <class L>
class FastAttention {
 public:
  using Warn = std::function<void(const std::string&)>;
  FastAttention(std::unique_ptr<AttentionLibrary> library, Warn warn, const AttentionLimits& limits = {})
      : library_(std::move(library)), warn_(std::move(warn)), limits_(limits) {}

  // Issues `op` and returns true, or issues nothing and returns false. The first op of each shape is computed by the
  // library twice, which must give the same bits where the limits say so, and by own(op), and waits: where they differ,
  // or the library has no way, `warn` is told once and weft's own kernels have that shape from then on. `memory` has
  // library_bytes(op, limits).
  template <class Op, class Own>
  bool run(L& launcher, const Op& op, std::byte* memory, const Own& own) {
    const auto whole = shape_of(op, limits_);
    if (!whole || !begin_aligned(op)) return false;
    const auto batches = batches_of(*whole, limits_);
    if (!batches) return false;
    Trust& trust = trusts_[*whole];
    if (trust == Trust::refused) return false;
    const auto beyond = int64_t(reinterpret_cast<uintptr_t>(memory) % kRegionAlignment);
    const Task task{*whole, *batches, region_of(*batches, *whole),
                    memory + (kRegionAlignment - beyond) % kRegionAlignment};
    if (trust == Trust::checked) {
      compute(launcher, op, task);
      return true;
    }
    launcher.expect_to_wait();
    try {
      library_->plan(batches->batch, batches->workspace_bytes);
      trust = check(launcher, op, task, own);
    } catch (const CommError&) {  // of a rank that its device waits for
      throw;
    } catch (const Error& e) {
      trust = Trust::refused;
      warn_(fmt::format("{}: weft's own kernels are used: {}", name_of_shape(*whole), e.what()));
    }
    return trust == Trust::checked;
  }

 private:
  struct Task {
    AttentionShape whole;
    AttentionBatches batches;
    AttentionRegion region;
    std::byte* memory;
    template <class T>
    T* at(int64_t offset) const {
      return reinterpret_cast<T*>(memory + offset);
    }
  };
  struct Comparison {
    double largest = 0, apart = 0, squares = 0, apart_squares = 0;
    uint64_t bits = 0;
  };

  static std::string name_of_shape(const AttentionShape& s) {
    return fmt::format("attention{} of {} x {} tokens{}, {} heads ({} of keys) of {}, {}",
                       s.backward ? " backward" : "", s.sequences, s.length,
                       s.window > 0 ? fmt::format(" in a window of {}", s.window) : "", s.heads, s.kv_heads, s.dim,
                       weft::name_of(s.dtype));
  }
  static std::vector<Tensor> results(const Attention& op) { return {op.o, op.lse}; }
  static std::vector<Tensor> results(const AttentionBackward& op) { return {op.dq, op.dk, op.dv}; }
  static Attention with_results(Attention op, const std::vector<Tensor>& to) {
    op.o = to[0], op.lse = to[1];
    return op;
  }
  static AttentionBackward with_results(AttentionBackward op, const std::vector<Tensor>& to) {
    op.dq = to[0], op.dk = to[1], op.dv = to[2];
    return op;
  }

  // Arguments that are whole tensors, all of them tokens by heads.
  static std::map<Argument, Tensor> tensors(const Attention& op) {
    return {{Argument::q, op.q}, {Argument::k, op.k}, {Argument::v, op.v}, {Argument::o, op.o}};
  }
  static std::map<Argument, Tensor> tensors(const AttentionBackward& op) {
    return {{Argument::q, op.q},       {Argument::k, op.k},   {Argument::v, op.v},   {Argument::o, op.o},
            {Argument::dout, op.dout}, {Argument::dq, op.dq}, {Argument::dk, op.dk}, {Argument::dv, op.dv}};
  }
  static bool is_of_keys(Argument argument) {
    return argument == Argument::k || argument == Argument::v || argument == Argument::dk || argument == Argument::dv;
  }

  template <class Op>
  void compute(L& launcher, const Op& op, const Task& task) {
    const AttentionShape &whole = task.whole, &batch = task.batches.batch;
    float scale = float(op.heads.scale), lowest = -std::numeric_limits<float>::infinity(), one = 1;
    auto window = float(whole.window);
    auto* const lse = task.template at<float>(task.region.lse);
    const NumbersTurned turned{rows<float>(op.lse), lse, whole.heads, whole.length, op.lse.rows() * whole.heads,
                               !whole.backward};
    const int64_t runs = (turned.total + turned.kRun - 1) / turned.kRun;
    if (whole.backward) launcher.launch(runs, turned);
    if (!whole.repeats) {
      const EachElement<float, Zeros> zeros{{task.template at<float>(task.region.sums), turned.total * whole.dim}, {}};
      launcher.launch(zeros.runs_of_row(), zeros);
    }
    const auto all = tensors(op);
    for (int64_t first = 0; first < whole.sequences; first += batch.sequences) {
      for (int64_t head = 0; head < whole.heads; head += batch.heads) {
        const int64_t numbers = (first * whole.heads + head) * whole.length;
        AttentionData data{{Argument::scale, &scale}, {Argument::lowest, &lowest}, {Argument::lse, lse + numbers}};
        if (window > 0) data[Argument::window] = &window;
        if (whole.backward) {
          data[Argument::one] = &one;
          if (!whole.repeats) data[Argument::sums] = task.template at<float>(task.region.sums);
          data[Argument::weighted] = task.template at<float>(task.region.weighted) + numbers;
        }
        for (const auto& [argument, tensor] : all) {
          const int64_t column = (is_of_keys(argument) ? head / (whole.heads / whole.kv_heads) : head) * whole.dim;
          const int64_t element = first * whole.length * tensor.row_stride + column;
          data[argument] = static_cast<std::byte*>(tensor.data) + element * size_of(tensor.dtype);
        }
        library_->run(batch, data, task.template at<void>(task.region.shared));
      }
    }
    if (!whole.backward) launcher.launch(runs, turned);
  }

  template <class Op, class Own>
  Trust check(L& launcher, const Op& op, const Task& task, const Own& own) {
    const std::vector<Tensor> out = results(op);
    std::vector<uint64_t> bits;
    for (int time = 0; time < 2; ++time) {
      compute(launcher, op, task);
      for (const Tensor& x : out) bits.push_back(compare(launcher, {}, x, task).bits);
    }
    if (task.whole.repeats &&
        !std::equal(bits.begin(), bits.begin() + int64_t(out.size()), bits.begin() + int64_t(out.size())))
      throw Error("the library does not give the same bits twice");
    std::vector<Tensor> owns;
    std::byte* place = task.template at<std::byte>(task.region.shared);  // the library is done with it
    for (const Tensor& x : out) {
      owns.emplace_back(place, x.dtype, x.shape);
      place += (x.bytes() + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
    }
    own(with_results(op, owns));
    Trust trust = Trust::checked;
    for (size_t i = 0; i < out.size(); ++i)
      if (!agree(compare(launcher, owns[i], out[i], task), out[i], op, task)) trust = Trust::unknown;
    return trust;
  }

  // False if weft's own numbers are all 0, too small to be squared or not finite, which proves nothing. Throws if the
  // library's differ.
  template <class Op>
  static bool agree(const Comparison& c, const Tensor& x, const Op& op, const Task& task) {
    if (!std::isfinite(c.largest) || !std::isfinite(c.squares) || c.squares < kLeastSquares) return false;
    const double allowed = allowed_apart(x.dtype, task.whole.backward);
    const double apart = c.apart / c.largest, rms = std::sqrt(c.apart_squares / c.squares);
    if (apart <= allowed && rms <= allowed) return true;
    std::string_view name;
    for (const Field& f : op.fields())
      if (f.tensor->data == x.data) name = f.name;
    throw Error(fmt::format(
        "the library's {} differs from weft's by {:.2g} of the largest number, {:.2g} in the root of the mean square; "
        "{:.2g} is allowed",
        name, apart, rms, allowed));
  }

  Comparison compare(L& launcher, const Tensor& own, const Tensor& other, const Task& task) const {
    auto* const there = task.template at<RowReport>(task.region.reports);
    const auto of = [&](auto t) {
      using T = decltype(t);
      launcher.launch(other.rows(), RowsCompared<T>{rows<const T>(own), rows<const T>(other), there});
    };
    by_float(other.dtype, of);
    std::vector<RowReport> reports(static_cast<size_t>(other.rows()));
    launcher.fetch(reports.data(), there, int64_t(reports.size() * sizeof(RowReport)));
    Comparison all;
    for (const RowReport& r : reports) {
      all.largest = std::max(all.largest, double(r.largest)), all.apart = std::max(all.apart, double(r.apart));
      all.squares += double(r.squares), all.apart_squares += double(r.apart_squares);
      all.bits = all.bits * 0x9e3779b97f4a7c15u + r.bits;
    }
    return all;
  }

  std::unique_ptr<AttentionLibrary> library_;
  Warn warn_;
  AttentionLimits limits_;
  std::map<AttentionShape, Trust> trusts_;
};

}  // namespace weft::gpu
