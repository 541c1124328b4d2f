#include "weft/forecast/measured.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "weft/base/error.h"
#include "weft/plan/step_data.h"

namespace weft {
namespace {

constexpr double kSameBytes = 1.02;  // points of a curve that are nearer become one
constexpr double kLeastSeconds = 1e-9;

// Where a size lies among ascending ones: between `low` and `low + 1`, `part` of the way by powers.
struct Between {
  size_t low = 0;
  double part = 0;
};
Between find_between(const std::vector<double>& sizes, double size) {
  if (sizes.size() == 1 || size <= sizes.front()) return {};
  if (size >= sizes.back()) return {sizes.size() - 2, 1};
  const size_t high = size_t(std::upper_bound(sizes.begin(), sizes.end(), size) - sizes.begin());
  return {high - 1, std::log(size / sizes[high - 1]) / std::log(sizes[high] / sizes[high - 1])};
}

const StepOp::Operand& operand_of(const StepOp& op, std::string_view field) {
  for (const StepOp::Operand& o : op.operands)
    if (o.field == field) return o;
  WEFT_CHECK(false, "{} has no operand {}", op.name, field);
}

double rows_of_expert(const StepOp& op, std::string_view rows) {
  const double experts = double(std::max<int64_t>(1, operand_of(op, "offsets").shape[0] - 1));
  return std::max(1.0, double(operand_of(op, rows).shape[0]) / experts);
}

RatedOp rated_attention(const StepOp& op, bool forward) {
  const Shape q = operand_of(op, "q").shape, lse = operand_of(op, "lse").shape;
  const double heads = double(std::max<int64_t>(1, lse[1])), width = double(q[1]) * double(q[2]) / heads;
  const double queries = double(std::max<int64_t>(1, q[0])) * heads;
  const double keys = op.flops / ((forward ? 4 : 8) * width * queries);
  return {.op = op.name,
          .dtype = std::string(name_of(operand_of(op, "q").dtype)),
          .form = "",
          .m = 1,
          .n = std::max(1.0, 2 * keys),
          .k = width};
}

// Points of one kind of op, ascending: those that are nearly as large are one, and none is quicker than one below.
Curve curve_of(std::vector<std::pair<double, double>> points) {
  std::sort(points.begin(), points.end());
  struct Pool {
    double log_bytes = 0, seconds = 0, count = 0;
    double mean() const { return seconds / count; }
  };
  std::vector<Pool> pools;
  double first = 0;  // bytes of the pool's smallest
  for (const auto& [bytes, seconds] : points) {
    if (pools.empty() || bytes > first * kSameBytes) {
      pools.push_back({});
      first = bytes;
    }
    pools.back().log_bytes += std::log(bytes);
    pools.back().seconds += seconds;
    pools.back().count += 1;
  }
  Curve curve;
  for (const Pool& p : pools) {
    curve.at.push_back(std::exp(p.log_bytes / p.count));
    curve.seconds.push_back(p.mean());
  }
  // Neighbours in the wrong order take their mean, until there are none (pool adjacent violators).
  std::vector<std::pair<double, size_t>> level;  // seconds, of so many points
  for (const double s : curve.seconds) {
    level.emplace_back(s, 1);
    while (level.size() > 1 && level[level.size() - 2].first > level.back().first) {
      const auto [seconds, count] = level.back();
      level.pop_back();
      auto& [before, many] = level.back();
      before = (before * double(many) + seconds * double(count)) / double(many + count);
      many += count;
    }
  }
  size_t at = 0;
  for (const auto& [seconds, count] : level)
    for (size_t i = 0; i < count; ++i) curve.seconds[at++] = std::max(kLeastSeconds, seconds);
  return curve;
}

}  // namespace

double Curve::of(double size) const {
  if (size <= at.front()) return seconds.front();
  if (size >= at.back()) return std::max(seconds.back(), seconds.back() * (size / at.back()));
  const Between b = find_between(at, size);
  const double low = seconds[b.low], high = seconds[b.low + 1];
  return std::clamp(std::exp(std::lerp(std::log(low), std::log(high), b.part)), low, high);  // whatever is rounded
}

double RateGrid::of(double m_size, double n_size, double k_size) const {
  const Between bm = find_between(m, m_size), bn = find_between(n, n_size), bk = find_between(k, k_size);
  const auto corner = [&](size_t i, size_t j, size_t l) {
    const size_t mi = std::min(bm.low + i, m.size() - 1), ni = std::min(bn.low + j, n.size() - 1),
                 ki = std::min(bk.low + l, k.size() - 1);
    return std::log(flops_per_s[(mi * n.size() + ni) * k.size() + ki]);
  };
  const auto along_k = [&](size_t i, size_t j) { return std::lerp(corner(i, j, 0), corner(i, j, 1), bk.part); };
  const auto along_n = [&](size_t i) { return std::lerp(along_k(i, 0), along_k(i, 1), bn.part); };
  return std::exp(std::lerp(along_n(0), along_n(1), bm.part));
}

std::optional<RatedOp> rated_op(const StepOp& op) {
  if (op.name == "matmul") {
    const ProductShape& p = op.product;
    return RatedOp{.op = op.name,
                   .dtype = std::string(name_of(operand_of(op, "a").dtype)),
                   .form = fmt::format("{}{}", p.trans_a ? 't' : 'n', p.trans_b ? 't' : 'n'),
                   .m = double(p.m),
                   .n = double(p.n),
                   .k = double(p.k)};
  }
  if (op.name == "grouped_matmul") {
    const StepOp::Operand& x = operand_of(op, "x");
    return RatedOp{.op = op.name,
                   .dtype = std::string(name_of(x.dtype)),
                   .form = "",
                   .m = rows_of_expert(op, "x"),
                   .n = double(operand_of(op, "out").shape[1]),
                   .k = double(x.shape[1])};
  }
  if (op.name == "grouped_weight_grad") {
    const StepOp::Operand& x = operand_of(op, "x");
    return RatedOp{.op = op.name,
                   .dtype = std::string(name_of(x.dtype)),
                   .form = "",
                   .m = double(operand_of(op, "dy").shape[1]),
                   .n = double(x.shape[1]),
                   .k = rows_of_expert(op, "x")};
  }
  if (op.flops > 0 && op.name == "attention") return rated_attention(op, true);
  if (op.flops > 0 && op.name == "attention_backward") return rated_attention(op, false);
  return {};
}

std::string dtypes_of(const StepOp& op) {
  std::vector<std::string_view> names;
  for (const StepOp::Operand& o : op.operands)
    if (std::find(names.begin(), names.end(), name_of(o.dtype)) == names.end()) names.push_back(name_of(o.dtype));
  return fmt::format("{}", fmt::join(names, ","));
}

std::optional<double> MeasuredRanks::seconds_of(const StepOp& op) const {
  if (const auto rated = rated_op(op)) {
    const RateGrid* grid = nullptr;
    for (const RateGrid& g : rates) {  // a form that was not measured: as one that was
      if (g.op != rated->op || g.dtype != rated->dtype) continue;
      if (grid == nullptr || g.form == rated->form) grid = &g;
    }
    if (grid == nullptr) return {};
    return op.flops / grid->of(rated->m, rated->n, rated->k);
  }
  const Curve* curve = nullptr;
  const std::string dtypes = dtypes_of(op);
  for (const OpCurve& c : ops) {  // of other types: by bytes all the same
    if (c.op != op.name) continue;
    if (curve == nullptr || c.dtypes == dtypes) curve = &c.curve;
  }
  if (curve == nullptr) return {};
  return curve->of(op.bytes);
}

const Curve* MeasuredRanks::collective(Traffic::Kind kind, int among, bool far) const {
  const CollectiveCurve* nearest = nullptr;
  for (const CollectiveCurve& c : collectives) {
    if (c.kind != kind || c.far != far) continue;
    if (nearest == nullptr || std::abs(c.ranks - among) < std::abs(nearest->ranks - among)) nearest = &c;
  }
  return nearest != nullptr ? &nearest->curve : nullptr;
}

double MeasuredRanks::best_rate(std::string_view dtype) const {
  double best = 0;
  for (const RateGrid& g : rates)
    if (g.op == "matmul" && g.dtype == dtype)
      best = std::max(best, *std::max_element(g.flops_per_s.begin(), g.flops_per_s.end()));
  return best;
}

std::vector<OpCurve> curves_of(const std::vector<TimedOp>& ops) {
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<double, double>>> kinds;
  for (const TimedOp& op : ops)
    if (op.bytes > 0) kinds[{op.op, op.dtypes}].emplace_back(op.bytes, op.seconds);
  std::vector<OpCurve> curves;
  for (auto& [kind, points] : kinds)
    curves.push_back({.op = kind.first, .dtypes = kind.second, .curve = curve_of(std::move(points))});
  return curves;
}

}  // namespace weft
