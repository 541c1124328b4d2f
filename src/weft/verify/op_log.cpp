#include "weft/verify/op_log.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "weft/device/tensor_values.h"

namespace weft {
namespace {

std::string form_of(const AnyOp& op) {
  return op.visit([](const auto& o) -> std::string {
    if constexpr (requires { o.trans_a; }) return o.trans_a ? "a^T b" : o.trans_b ? "a b^T" : "a b";
    return "";
  });
}

}  // namespace

std::string to_string(const OperandName& n) {
  return fmt::format("operand `{}` of {} in {}, {} of micro-batch {}{}", n.field, n.op, n.region,
                     n.forward ? "forward" : "backward", n.micro_batch,
                     n.weight.empty() ? ""
                                      : fmt::format(", with {}{}", n.weight,
                                                    n.part > 0 ? fmt::format(" (part {} of it)", n.part + 1) : ""));
}

void OpRecorder::begin(int64_t micro_batch, bool forward) {
  at_.micro_batch = micro_batch;
  at_.forward = forward;
}

void OpRecorder::run(const AnyOp& op) {
  inner_.wait_all();
  at_.op = op.name();
  at_.form = form_of(op);
  const std::vector<OperandPart> parts = parts_of(op, accumulating(op.fields()));
  std::vector<OperandSums> before;
  for (const OperandPart& p : parts) before.push_back(p.field.role == Role::out ? OperandSums{} : sums_of(p));
  inner_.run(op);
  inner_.wait_all();
  for (size_t i = 0; i < parts.size(); ++i) {
    double summands = 0;
    if (const auto* sum = op.as<BiasGrad>())
      for (size_t j = 0; j < parts.size() && parts[i].field.role != Role::in; ++j)
        if (parts[j].part == parts[i].part && parts[j].field.role == Role::in)
          summands = sum->x ? (summands == 0 ? 1 : summands) * std::sqrt(before[j].squares)  // Cauchy's bound of it
                            : before[j].abs_sum;
    record(parts[i], before[i], summands);
  }
}

// A weight's gradient that is read and written again is one operand, that is added to.
std::vector<Field> OpRecorder::accumulating(std::span<const Field> fields) {
  std::vector<Field> all;
  for (const Field& f : fields) {
    const bool again =
        f.tensor->place.is_summed_over_data() && std::any_of(fields.begin(), fields.end(), [&](const Field& g) {
          return g.tensor != f.tensor && g.role != f.role && g.tensor->data == f.tensor->data;
        });
    if (again && f.role == Role::in) continue;
    all.push_back({f.name, f.tensor, again ? Role::inout : f.role});
  }
  return all;
}

// The weight in whose value or gradient a tensor lies. Units that are fetched one after the other have had the same
// memory: theirs is the one that the region is named after.
OpRecorder::Found OpRecorder::weight_of(const Tensor& t) const {
  Found found;
  size_t best = 0;
  for (const Param* p : params_.params(ParamStore::Copies::with)) {
    if (p->spec().in_codes()) continue;
    for (const Tensor* whole : {&p->value, &p->grad}) {
      // Unsigned: where t lies before, that is more than any size. Pointers of two allocations have no difference.
      const uintptr_t bytes = reinterpret_cast<uintptr_t>(t.data) - reinterpret_cast<uintptr_t>(whole->data);
      if (!t || !*whole || whole->dtype != t.dtype || bytes >= uintptr_t(whole->bytes())) continue;
      const std::string &name = p->spec().name, &region = path_.text();
      const auto common = std::mismatch(name.begin(), name.end(), region.begin(), region.end()).first - name.begin();
      const size_t fits = name.rfind("blocks.", 0) == 0 && common < 7 ? 1 : 2 + size_t(common);
      if (fits <= best) continue;
      best = fits;
      found = {p, whole == &p->grad, int64_t(bytes) / size_of(whole->dtype) / whole->row_stride};
    }
  }
  return found;
}

std::vector<OpRecorder::PartRows> OpRecorder::find_weight(std::span<const Field> fields, const Tensor*& weight) {
  at_.weight.clear();
  for (const Field& f : fields) {
    const Found found = weight_of(*f.tensor);
    if (found.param == nullptr) continue;
    weight = f.tensor;
    at_.weight = (found.gradient ? "the gradient of " : "") + found.param->spec().name;
    const std::vector<HeldPart>& held = found.param->parts();
    const int64_t end = found.row + f.tensor->rows();
    std::vector<PartRows> parts;
    for (size_t i = 0; i < held.size() && held.size() > 1; ++i) {
      const int64_t from = std::max(found.row, held[i].local_row);
      const int64_t count = std::min(end, held[i].local_row + held[i].rows.count) - from;
      if (count > 0) parts.push_back({int(i), {from - found.row, count}});
    }
    return parts;
  }
  return {};
}

// Where the weight's rows are stacked matrices: which rows or columns of the operands go with them.
std::vector<OperandPart> OpRecorder::parts_of(const AnyOp& op, const std::vector<Field>& fields) {
  const Tensor* weight = nullptr;
  const std::vector<PartRows> parts = find_weight(fields, weight);
  enum class Along : uint8_t { none, rows, columns };
  const auto along = [&](const Tensor* t) {
    if (parts.empty()) return Along::none;
    if (const auto* sum = op.as<BiasGrad>()) return t == &sum->db ? Along::rows : Along::columns;
    if (const auto* product = op.as<Matmul>()) {
      const auto& [a, b, out] = std::tie(product->a, product->b, product->out);
      if (weight == &b && product->trans_b)  // forward
        return t == &out ? Along::columns : t == &a ? Along::none : Along::rows;
      if (weight == &b) return t == &a ? Along::columns : t == &b ? Along::rows : Along::none;  // dgrad
      if (weight == &out && product->trans_a)                                                   // wgrad
        return t == &a ? Along::columns : t == &out ? Along::rows : Along::none;
    }
    return Along::none;
  };
  std::vector<OperandPart> all;
  for (const Field& f : fields) {
    if (!*f.tensor) continue;
    const Along how = along(f.tensor);
    if (how == Along::none) all.push_back({0, f, *f.tensor});
    for (size_t i = 0; i < parts.size() && how != Along::none; ++i) {
      const auto [part, rows] = parts[i];
      all.push_back({part, f,
                     how == Along::rows ? f.tensor->slice_rows(rows.first, rows.count)
                                        : f.tensor->slice_cols(rows.first, rows.count)});
    }
  }
  return all;
}

OperandSums OpRecorder::sums_of(const OperandPart& part) const {
  // Rows of experts on ranks of their own are of several ranks' micro-batches.
  const bool of_others = part.tensor.place.experts_are_cut() && params_.mesh().sizes.ep > 1;
  OperandSums s{
      .held = of_others ? Spmd::None : part.tensor.place.tp(), .role = part.field.role, .at = part.tensor.data};
  if (!holds_numbers(part.tensor)) return s;
  s.elements = part.tensor.elements();
  for_each_value(params_.memory(), part.tensor, [&](int64_t, int64_t, double x) {
    s.sum += x;
    s.abs_sum += std::abs(x);
    s.squares += x * x;
  });
  return s;
}

void OpRecorder::record(const OperandPart& part, const OperandSums& before, double summands) {
  if (path_.text().empty()) return;  // sums over micro-batches: another layout has others
  OperandSums now = part.field.role == Role::in ? before : sums_of(part);
  if (now.elements == 0) return;
  if (part.field.role == Role::inout) {
    now.sum -= before.sum;
    now.abs_sum += before.abs_sum;
  }
  now.summands = summands;
  OperandName name = at_;
  name.region = path_.text();
  name.field = part.field.name;
  name.part = part.part;
  all_.push_back({std::move(name), now});
}

void OpLog::add(const std::vector<Recorded>& of_a_rank) {
  const std::lock_guard lock(mutex_);
  std::map<OperandName, OfRank> all;
  for (const Recorded& r : of_a_rank) {
    OfRank& these = all[r.name];
    order_.push_back({r.name, these.size()});
    these.push_back(r.sums);
  }
  for (auto& [name, these] : all) operands_[name].push_back(std::move(these));
}

namespace {

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
    all.summands += r.summands;
    all.sum += r.sum;
    all.abs_sum += r.abs_sum;
    all.squares += r.squares;
  }
  return {all};
}

// What several operations have of an operand. What one of them reads again is the same; what one adds to what another
// wrote is a summand.
OperandSums together(const std::vector<OperandSums>& operations) {
  OperandSums all{.held = operations[0].held, .role = operations[0].role};
  for (auto o = operations.begin(); o != operations.end(); ++o) {
    const auto same_place = [&](const OperandSums& x) { return x.at == o->at && x.elements == o->elements; };
    const auto before = std::find_if(operations.begin(), o, same_place);
    if (before != o && o->role == Role::in && before->sum == o->sum && before->squares == o->squares) continue;
    if (before == o || o->role != Role::inout) all.elements += o->elements;
    if (o->role == Role::inout) all.role = Role::inout;
    all.sum += o->sum;
    all.abs_sum += o->abs_sum;
    all.squares += o->squares;
    all.summands += o->summands;
  }
  return all;
}

bool differ(double a, double b, double allowed) { return !(std::abs(a - b) <= allowed); }

bool differ(const OperandSums& one, const OperandSums& many, double tolerance) {
  if (differ(one.sum, many.sum, tolerance * std::max({one.abs_sum, many.abs_sum, one.summands}))) return true;
  if (one.summands > 0 || one.role == Role::inout || many.role == Role::inout || many.held == Spmd::Partial)
    return false;
  return differ(one.abs_sum, many.abs_sum, tolerance * one.abs_sum) ||
         differ(one.squares, many.squares, 2 * tolerance * one.squares);
}

}  // namespace

// One rank has a tied weight's gradient in memory that is not the weight's, where a stage of a pipeline has its own.
const std::vector<OpLog::OfRank>* OpLog::find(const OperandName& name) const {
  if (const auto found = operands_.find(name); found != operands_.end()) return &found->second;
  if (!name.weight.empty()) return nullptr;
  auto next = operands_.upper_bound(name);
  OperandName like = next != operands_.end() ? next->first : OperandName{};
  like.weight.clear();
  return like == name ? &next->second : nullptr;
}

template <class F>
void OpLog::for_each_comparable(const OpLog& one, const F& f) const {
  for (const auto& [name, which] : one.order_) {
    const std::vector<OfRank>* ranks = find(name);
    if (ranks == nullptr) continue;
    const OfRank& of_one = one.operands_.at(name)[0];
    const bool alike =
        std::all_of(ranks->begin(), ranks->end(), [&](const OfRank& r) { return r.size() == of_one.size(); });
    if (!alike && which + 1 < of_one.size()) continue;  // with the last of them
    const OperandSums a = alike ? of_one[which] : together(of_one);
    std::vector<OperandSums> many;
    for (const OfRank& r : *ranks) many.push_back(alike ? r[which] : together(r));
    many = comparable(a, many);
    if (!many.empty() && !f(Compared{name, a, many})) return;
  }
}

std::optional<OpLog::Difference> OpLog::first_difference(const OpLog& one, double tolerance) const {
  std::optional<Difference> first;
  for_each_comparable(one, [&](const Compared& c) {
    for (const OperandSums& b : c.many)
      if (!first && differ(c.one, b, tolerance)) first = {c.name, c.one.role == Role::in, c.one.sum, b.sum};
    return !first;
  });
  return first;
}

int64_t OpLog::num_comparable(const OpLog& one) const {
  int64_t count = 0;
  for_each_comparable(one, [&](const Compared&) { return ++count > 0; });
  return count;
}

}  // namespace weft
