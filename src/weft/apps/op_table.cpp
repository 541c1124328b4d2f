#include "weft/apps/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace weft {
namespace {

void add(OpTotals& to, const OpTotals& more) {
  to.count += more.count;
  to.s += more.s;
  to.cost += more.cost;
}

// Nanoseconds between `began` and `ended` that an event covers.
int64_t covered_ns(const std::vector<TraceEvent>& events, int64_t began, int64_t ended) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const TraceEvent& e : events) spans.emplace_back(e.start_ns, e.end_ns);
  std::sort(spans.begin(), spans.end());
  int64_t covered = 0, reached = began;
  for (const auto& [start, end] : spans) {
    covered += std::max<int64_t>(0, std::min(end, ended) - std::max(start, reached));
    reached = std::max(reached, end);
  }
  return covered;
}

// "    812.31        82.0%": a rate, and of what the machine reaches.
std::string rate_text(double amount, double s, double whole) {
  const double rate = s > 0 ? amount / s : 0;
  return fmt::format("{:>10.2f} {:>12}", rate, whole > 0 && s > 0 ? fmt::format("{:.1f}%", rate / whole * 100) : "-");
}

std::string line(const std::string& op, const std::string& shape, const OpTotals& o, double step_s,
                 const MachineRates& rates) {
  const bool computes = o.cost.flops > 0;
  const double bytes = double(o.cost.bytes_read + o.cost.bytes_written);
  return fmt::format("{:<20} {:<28} {:>7} {:>10.3f} {:>7.1f}% {}\n", op, shape, o.count, o.s * 1e3,
                     step_s > 0 ? o.s / step_s * 100 : 0,
                     computes ? rate_text(o.cost.flops / 1e12, o.s, rates.flops / 1e12)
                              : fmt::format("{:>23} {}", "", rate_text(bytes / 1e9, o.s, rates.bytes / 1e9)));
}

}  // namespace

StepParts parts_of_step(const std::vector<TraceEvent>& events, int64_t began_ns, int64_t ended_ns) {
  std::map<std::pair<std::string_view, ProductShape>, OpTotals> kinds;
  for (const TraceEvent& e : events)
    add(kinds[{e.op, e.product}], {.op = "", .count = 1, .s = double(e.end_ns - e.start_ns) * 1e-9, .cost = e.cost});
  StepParts parts;
  for (auto& [kind, totals] : kinds) {
    totals.op = kind.first;
    totals.product = kind.second;
    parts.ops.push_back(totals);
  }
  std::stable_sort(parts.ops.begin(), parts.ops.end(), [](const OpTotals& a, const OpTotals& b) { return a.s > b.s; });
  parts.step_s = double(ended_ns - began_ns) * 1e-9;
  parts.idle_s = parts.step_s - double(covered_ns(events, began_ns, ended_ns)) * 1e-9;
  return parts;
}

std::string to_table(const StepParts& parts, const MachineRates& rates) {
  std::string text =
      fmt::format("{:<20} {:<28} {:>7} {:>10} {:>8} {:>10} {:>12} {:>10} {:>12}\n", "op", "m x n x k (t: transposed)",
                  "count", "ms", "of step", "TFLOP/s", "of products", "GB/s", "of bandwidth");
  OpTotals products;
  int64_t num_shapes = 0;
  for (const OpTotals& o : parts.ops) {
    const bool is_product = o.op == Matmul::kName;
    text += line(o.op, is_product ? to_string(o.product) : "", o, parts.step_s, rates);
    if (!is_product) continue;
    add(products, o);
    ++num_shapes;
  }
  if (num_shapes > 1)
    text += line(std::string(Matmul::kName), fmt::format("all {} shapes", num_shapes), products, parts.step_s, rates);
  const auto end = [&](const char* what, double s) {
    text += fmt::format("{:<57} {:>10.3f} {:>7.1f}%\n", what, s * 1e3, parts.step_s > 0 ? s / parts.step_s * 100 : 0);
  };
  end("idle: no op ran", parts.idle_s);
  end("the step", parts.step_s);
  return text;
}

}  // namespace weft
