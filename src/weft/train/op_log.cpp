#include "weft/train/op_log.h"

#include <algorithm>
#include <cmath>

#include "weft/train/tensor_values.h"

namespace weft {

std::string to_string(const OperandName& n) {
  return fmt::format("operand `{}` of {}{} in {}, {} of micro-batch {}", n.field, n.op,
                     n.which > 0 ? fmt::format(" ({} of this region)", n.which + 1) : "", n.region,
                     n.forward ? "forward" : "backward", n.micro_batch);
}

void OpRecorder::begin(int64_t micro_batch, bool forward) {
  at_.micro_batch = micro_batch;
  at_.forward = forward;
}

void OpRecorder::enter(std::string_view region) {
  path_.enter(region);
  inner_.enter(region);
}

void OpRecorder::leave() {
  path_.leave();
  inner_.leave();
}

// A weight's gradient that is read and written again is one operand, that is added to.
std::vector<Field> OpRecorder::accumulating(std::span<const Field> fields) {
  std::vector<Field> all;
  for (const Field& f : fields) {
    const bool again =
        f.tensor->place[Axis::dp] == Spmd::Partial && std::any_of(fields.begin(), fields.end(), [&](const Field& g) {
          return g.tensor != f.tensor && g.role != f.role && g.tensor->data == f.tensor->data;
        });
    if (again && f.role == Role::in) continue;
    all.push_back({f.name, f.tensor, again ? Role::inout : f.role});
  }
  return all;
}

OperandSums OpRecorder::sums_of(const Field& field) const {
  OperandSums s{.held = field.tensor->place[Axis::tp], .role = field.role};
  if (!*field.tensor || !holds_numbers(*field.tensor)) return s;
  s.elements = field.tensor->elements();
  for_each_value(memory_, *field.tensor, [&](int64_t, int64_t, double x) {
    s.sum += x;
    s.abs_sum += std::abs(x);
    s.squares += x * x;
  });
  return s;
}

int OpRecorder::count(std::string_view op) {
  OperandName name = at_;
  name.region = path_.text();
  name.op = op;
  return counts_[name]++;
}

void OpRecorder::record(std::string_view op, int which, const Field& field, const OperandSums& before) {
  if (path_.text().empty()) return;  // sums over micro-batches: another layout has others
  OperandSums now = field.role == Role::in ? before : sums_of(field);
  if (now.elements == 0) return;
  if (field.role == Role::inout) {
    now.sum -= before.sum;
    now.abs_sum += before.abs_sum;
  }
  OperandName name = at_;
  name.region = path_.text();
  name.op = op;
  name.which = which;
  name.field = field.name;
  all_.push_back({std::move(name), now});
}

void OpLog::add(std::vector<Recorded> of_a_rank) {
  const std::lock_guard lock(mutex_);
  for (Recorded& r : of_a_rank) {
    operands_[r.name].push_back(r.sums);
    order_.push_back(std::move(r.name));
  }
}

namespace {

bool is_cut(Spmd held) { return held == Spmd::Shard0 || held == Spmd::Shard1; }

int64_t elements_of(const std::vector<OperandSums>& ranks) {
  int64_t all = 0;
  for (const OperandSums& r : ranks) all += r.elements;
  return all;
}

// An operand's ranks as one: the sum of shards and of summands. None where they are no such thing, or of another size.
std::vector<OperandSums> comparable(const OperandSums& one, const std::vector<OperandSums>& ranks) {
  const Spmd held = ranks[0].held;
  const bool same_size =
      std::all_of(ranks.begin(), ranks.end(), [&](const OperandSums& r) { return r.elements == one.elements; });
  if (is_cut(held) ? elements_of(ranks) != one.elements : !same_size || held == Spmd::None) return {};
  if (!is_cut(held) && held != Spmd::Partial) return ranks;
  OperandSums all{.held = held, .role = ranks[0].role};
  for (const OperandSums& r : ranks) {
    all.sum += r.sum;
    all.abs_sum += r.abs_sum;
    all.squares += r.squares;
  }
  return {all};
}

bool differ(double a, double b, double allowed) { return !(std::abs(a - b) <= allowed); }

bool differ(const OperandSums& one, const OperandSums& many, double tolerance) {
  if (differ(one.sum, many.sum, tolerance * std::max(one.abs_sum, many.abs_sum))) return true;
  if (one.role == Role::inout || many.role == Role::inout || many.held == Spmd::Partial) return false;
  return differ(one.abs_sum, many.abs_sum, tolerance * one.abs_sum) ||
         differ(one.squares, many.squares, 2 * tolerance * one.squares);
}

}  // namespace

std::optional<OpLog::Difference> OpLog::first_difference(const OpLog& one, double tolerance) const {
  for (const OperandName& name : one.order_) {
    const auto found = operands_.find(name);
    if (found == operands_.end()) continue;
    const OperandSums& a = one.operands_.at(name)[0];
    for (const OperandSums& b : comparable(a, found->second))
      if (differ(a, b, tolerance)) return Difference{name, a.role == Role::in, a.sum, b.sum};
  }
  return {};
}

int64_t OpLog::num_comparable(const OpLog& one) const {
  return std::count_if(one.order_.begin(), one.order_.end(), [&](const OperandName& name) {
    const auto found = operands_.find(name);
    return found != operands_.end() && !comparable(one.operands_.at(name)[0], found->second).empty();
  });
}

}  // namespace weft
