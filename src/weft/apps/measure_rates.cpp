#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "weft/apps/measure_machine.h"
#include "weft/apps/ordinary_numbers.h"
#include "weft/base/error.h"
#include "weft/comm/communicator.h"
#include "weft/ops/cost.h"

namespace weft {
namespace {

constexpr int64_t kOutOfCache = int64_t{1} << 24;  // bytes of operands that repetitions go through in turn, so that a
constexpr int64_t kMostCopies = 8;                 // core's own cache has lost them
constexpr double kLongEnough = 2e-3, kLongEnoughCrowded = 20e-3;  // of all repetitions; crowded: many turns of a core
constexpr double kTooLong = 20;                                   // times so long: a second repetition is enough
constexpr int64_t kMostRepetitions = 2000;
constexpr double kTimedExperts = 4, kTimedHeads = 4;
const std::vector<double> kProductSizes{16, 64, 256, 768, 2048}, kExpertRows{16, 64, 256},
    kExpertWidths{128, 512, 1536}, kSequences{64, 256, 1024, 2048}, kHeadWidths{32, 64, 128};

std::vector<double> up_to(std::vector<double> sizes, double most) {
  std::erase_if(sizes, [&](double s) { return s > most && s > sizes.front(); });
  return sizes;
}

// Times one op at a time.
class OpTimer {
 public:
  explicit OpTimer(const MeasuringRank& rank) : rank_(rank) {}

  // `make(arena)` makes the op with its operands in an arena, which may only count.
  template <class Make>
  double seconds_of(const Make& make) {
    const Machine& machine = rank_.machine;
    Arena counted("operands");
    make(counted);
    const int64_t bytes = counted.peak() + kArenaAlignment;
    const int64_t copies = std::clamp<int64_t>(kOutOfCache / bytes, 1, kMostCopies);
    Arena& arena = filled_arena(bytes * copies);
    std::vector<decltype(make(arena))> ops;
    for (int64_t i = 0; i < copies; ++i) ops.push_back(make(arena));
    Arena workspace("workspace", machine.workspace_model->of(ops[0]), machine.memory);
    const auto backend = machine.make_backend(workspace);
    backend->run(ops[0]);
    std::vector<double> took;
    const double began = rank_.now_s(), enough = rank_.crowded ? kLongEnoughCrowded : kLongEnough;
    for (int64_t i = 0; i < kMostRepetitions; ++i) {
      const double start = rank_.now_s();
      backend->run(ops[size_t(i % copies)]);
      const double end = rank_.now_s();
      took.push_back(end - start);
      if (end - began >= (i + 1 >= rank_.iters ? enough : kTooLong * enough) && i > 0) break;
    }
    return typical_s(std::move(took), rank_.crowded);
  }

  // A grid whose point (m, n, k) is what `make(m, n, k)` makes in an arena.
  template <class Make>
  RateGrid grid(RateGrid grid, const Make& make) {
    barrier(*rank_.mesh.world);
    for (const double m : grid.m)
      for (const double n : grid.n)
        for (const double k : grid.k) {
          const auto make_op = [&](Arena& arena) { return make(arena, int64_t(m), int64_t(n), int64_t(k)); };
          Arena counted("operands");
          grid.flops_per_s.push_back(flops_of(make_op(counted)) / seconds_of(make_op));
        }
    mean_of_ranks(grid.flops_per_s);
    return grid;
  }

 private:
  // Empty, with so many bytes of ordinary numbers. The same memory each time: to get new is slow.
  Arena& filled_arena(int64_t bytes) {
    if (!arena_ || arena_->capacity() < bytes) arena_.emplace("operands", bytes, rank_.machine.memory);
    arena_->rewind();
    fill_with_ordinary_numbers(static_cast<std::byte*>(arena_->alloc(DType::u8, {bytes}).data), size_t(bytes));
    arena_->rewind();
    return *arena_;
  }
  // Of the times that they took, of which these are the inverse.
  void mean_of_ranks(std::vector<double>& rates) const {
    Communicator& world = *rank_.mesh.world;
    for (double& r : rates) r = 1 / r;
    world.all_reduce({rates.data(), DType::f64, {int64_t(rates.size())}}).wait();
    for (double& r : rates) r = world.size() / r;
  }
  const MeasuringRank& rank_;
  std::optional<Arena> arena_;
};

void write_offsets(const Tensor& offsets, int64_t rows) {
  if (offsets.data == nullptr) return;
  for (int64_t i = 0; i < offsets.rows(); ++i) offsets.as<int32_t>()[i] = int32_t(i * rows);
}

RateGrid product_grid(OpTimer& timer, const Precision& p, const std::string& form, double most) {
  const auto sizes = up_to(kProductSizes, most);
  const bool turned_a = form[0] == 't', turned_b = form[1] == 't';
  return timer.grid({.op = "matmul",
                     .dtype = std::string(name_of(p.compute)),
                     .form = form,
                     .m = sizes,
                     .n = sizes,
                     .k = sizes,
                     .flops_per_s = {}},
                    [&](Arena& arena, int64_t m, int64_t n, int64_t k) {
                      const auto matrix = [&](DType dtype, int64_t rows, int64_t cols, bool turned) {
                        return turned ? arena.alloc(dtype, {cols, rows}) : arena.alloc(dtype, {rows, cols});
                      };
                      return Matmul{.a = matrix(p.compute, m, k, turned_a),
                                    .b = matrix(p.compute, k, n, turned_b),
                                    .out = matrix(turned_a ? p.stat : p.compute, m, n, false),
                                    .trans_a = turned_a,
                                    .trans_b = turned_b,
                                    .accumulate = turned_a};  // a weight's gradient
                    });
}

RateGrid expert_grid(OpTimer& timer, const Precision& p, double most) {
  const auto widths = up_to(kExpertWidths, most);
  return timer.grid({.op = "grouped_matmul",
                     .dtype = std::string(name_of(p.compute)),
                     .form = "",
                     .m = up_to(kExpertRows, most),
                     .n = widths,
                     .k = widths,
                     .flops_per_s = {}},
                    [&](Arena& arena, int64_t m, int64_t n, int64_t k) {
                      const auto experts = int64_t(kTimedExperts);
                      const GroupedMatmul op{.x = arena.alloc(p.compute, {experts * m, k}),
                                             .w = arena.alloc(p.compute, {experts * n, k}),
                                             .offsets = arena.alloc(DType::i32, {experts + 1}),
                                             .out = arena.alloc(p.compute, {experts * m, n})};
                      write_offsets(op.offsets, m);
                      return op;
                    });
}

RateGrid expert_gradient_grid(OpTimer& timer, const Precision& p, double most) {
  const auto widths = up_to(kExpertWidths, most);
  return timer.grid({.op = "grouped_weight_grad",
                     .dtype = std::string(name_of(p.compute)),
                     .form = "",
                     .m = widths,
                     .n = widths,
                     .k = up_to(kExpertRows, most),
                     .flops_per_s = {}},
                    [&](Arena& arena, int64_t m, int64_t n, int64_t k) {
                      const auto experts = int64_t(kTimedExperts);
                      const GroupedWeightGrad op{.dy = arena.alloc(p.compute, {experts * k, m}),
                                                 .x = arena.alloc(p.compute, {experts * k, n}),
                                                 .offsets = arena.alloc(DType::i32, {experts + 1}),
                                                 .dw = arena.alloc(p.stat, {experts * m, n}),
                                                 .accumulate = true};
                      write_offsets(op.offsets, k);
                      return op;
                    });
}

// Sequences of `length` tokens, one or more, of heads of `width`.
struct AttentionCase {
  std::vector<AttentionSpan> spans;
  int64_t tokens = 0;
  AttentionCase(int64_t length, int64_t most) : tokens(std::max(length, most / length * length)) {
    for (int64_t at = 0; at < tokens; at += length)
      spans.push_back({.q_row = at, .q_count = length, .k_row = at, .k_count = length});
  }
  Attention op(Arena& arena, const Precision& p, int64_t width) const {
    const auto heads = int64_t(kTimedHeads);
    const auto rows = [&] { return arena.alloc(p.compute, {tokens, heads * width}); };
    return {.q = rows(),
            .k = rows(),
            .v = rows(),
            .o = rows(),
            .lse = arena.alloc(p.stat, {tokens, heads}),
            .spans = spans,
            .heads = {.q = heads, .kv = heads, .dim = width, .total = heads, .scale = 1 / std::sqrt(double(width))}};
  }
};

std::vector<RateGrid> attention_grids(OpTimer& timer, const Precision& p, int64_t most) {
  const auto lengths = up_to(kSequences, 2 * double(most));
  const RateGrid plain{.op = "attention",
                       .dtype = std::string(name_of(p.compute)),
                       .form = "",
                       .m = {1},
                       .n = lengths,
                       .k = kHeadWidths,
                       .flops_per_s = {}};
  std::vector<AttentionCase> cases;
  for (const double length : lengths) cases.emplace_back(int64_t(length), std::min<int64_t>(most, 1024));
  const auto case_of = [&](int64_t length) -> const AttentionCase& {
    return cases[size_t(std::find(lengths.begin(), lengths.end(), double(length)) - lengths.begin())];
  };
  RateGrid back = plain;
  back.op = "attention_backward";
  return {timer.grid(plain, [&](Arena& arena, int64_t, int64_t n, int64_t k) { return case_of(n).op(arena, p, k); }),
          timer.grid(back, [&](Arena& arena, int64_t, int64_t n, int64_t k) {
            const Attention f = case_of(n).op(arena, p, k);
            const auto like = [&](const Tensor& x) { return arena.alloc(x.dtype, x.shape); };
            return AttentionBackward{.q = f.q,
                                     .k = f.k,
                                     .v = f.v,
                                     .o = f.o,
                                     .lse = f.lse,
                                     .dout = like(f.o),
                                     .dq = like(f.q),
                                     .dk = like(f.k),
                                     .dv = like(f.v),
                                     .spans = f.spans,
                                     .heads = f.heads};
          })};
}

}  // namespace

double typical_s(std::vector<double> seconds, bool crowded) {
  WEFT_CHECK(!seconds.empty(), "no repetition was timed");
  if (crowded) return std::accumulate(seconds.begin(), seconds.end(), 0.0) / double(seconds.size());
  const auto middle = seconds.begin() + std::ptrdiff_t(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

std::vector<RateGrid> measure_rates(const MeasuringRank& rank, const Precision& precision) {
  OpTimer timer(rank);
  const auto most = double(rank.most_tokens);
  std::vector<RateGrid> grids;
  for (const char* form : {"nt", "nn", "tn"}) grids.push_back(product_grid(timer, precision, form, most));
  grids.push_back(expert_grid(timer, precision, most));
  grids.push_back(expert_gradient_grid(timer, precision, most));
  for (RateGrid& grid : attention_grids(timer, precision, rank.most_tokens)) grids.push_back(std::move(grid));
  return grids;
}

}  // namespace weft
