// What every operation of a step read and wrote, as sums that can be compared between layouts.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/device/memory.h"
#include "weft/ops/backend.h"
#include "weft/ops/region_path.h"

namespace weft {

// An operand of an operation, as one rank held it. What is added to (Role::inout) counts as what was added.
struct OperandSums {
  Spmd held = Spmd::None;  // on tp
  Role role = Role::in;
  int64_t elements = 0;
  double sum = 0, abs_sum = 0, squares = 0;
};

// Where an operand is: the same on every layout.
struct OperandName {
  int64_t micro_batch = 0;  // of the global batch
  bool forward = true;
  std::string region, op;  // "blocks.3.attn", "matmul"
  int which = 0;           // among the operations of this name there
  std::string field;       // "out"
  auto operator<=>(const OperandName&) const = default;
};
// "operand `out` of matmul 2 in blocks.3.attn, forward of micro-batch 0"
std::string to_string(const OperandName& name);

struct Recorded {
  OperandName name;
  OperandSums sums;
};

// A backend around a backend that sums what goes in and what comes out of every operation within a region. Waits for
// each. The inner backend is borrowed, and the memory that the operands lie in.
class OpRecorder final : public UniformBackend<OpRecorder> {
 public:
  OpRecorder(Backend& inner, const Memory& memory) : inner_(inner), memory_(memory) {}

  // What follows belongs to this micro-batch's forward or backward.
  void begin(int64_t micro_batch, bool forward);
  template <class Op>
  void apply(const Op& op) {
    const auto all = op.fields();
    const std::vector<Field> fields = accumulating(all);
    inner_.wait_all();
    const int which = count(Op::kName);
    std::vector<OperandSums> before;
    for (const Field& f : fields) before.push_back(f.role == Role::out ? OperandSums{} : sums_of(f));
    inner_.run(op);
    inner_.wait_all();
    for (size_t i = 0; i < fields.size(); ++i) record(Op::kName, which, fields[i], before[i]);
  }
  void enter(std::string_view region) override;
  void leave() override;
  void wait_all() override { inner_.wait_all(); }
  bool is_holding() const override { return inner_.is_holding(); }
  Stream* issue_all() override { return inner_.issue_all(); }
  Stamp stamp() override { return inner_.stamp(); }
  int64_t take_time_ns(Stamp stamp) override { return inner_.take_time_ns(stamp); }

  std::vector<Recorded> take() { return std::move(all_); }

 private:
  static std::vector<Field> accumulating(std::span<const Field> fields);
  OperandSums sums_of(const Field& field) const;
  int count(std::string_view op);
  void record(std::string_view op, int which, const Field& field, const OperandSums& before);

  Backend& inner_;
  const Memory& memory_;
  RegionPath path_;
  OperandName at_;
  std::map<OperandName, int> counts_;
  std::vector<Recorded> all_;
};

// Of all ranks of a run.
class OpLog {
 public:
  void add(std::vector<Recorded> of_a_rank);  // any thread

  // The first operand, in the order of `one` (of one rank), that this log has with other values; none where all that
  // can be compared is equal. Comparable are operands that are whole on every rank, that are cut over tp, or that are
  // summands. `tolerance`: relative to the sum of absolute values.
  struct Difference {
    OperandName name;
    bool read;  // rather than written: it was different before the operation ran
    double one, many;
  };
  std::optional<Difference> first_difference(const OpLog& one, double tolerance) const;
  // How many operands of `one` can be compared with this log's.
  int64_t num_comparable(const OpLog& one) const;

 private:
  std::mutex mutex_;
  std::vector<OperandName> order_;
  std::map<OperandName, std::vector<OperandSums>> operands_;
};

}  // namespace weft
