// What every operation of a step read and wrote, as sums that can be compared between layouts.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/ops/backend_around.h"
#include "weft/sharding/param_store.h"

namespace weft {

// An operand of an operation, as one rank held it. What is added to (Role::inout) counts as what was added.
struct OperandSums {
  Spmd held = Spmd::None;  // on tp
  Role role = Role::in;
  int64_t elements = 0;
  double sum = 0, abs_sum = 0, squares = 0;
  double summands = 0;       // of a sum over tokens that may be zero in theory (keys' bias): their absolute sum
  const void* at = nullptr;  // where it lay, to know it again
};

// Which operand it is: the same on every layout, whatever else the layout does in between.
struct OperandName {
  int64_t micro_batch = 0;  // of the global batch
  bool forward = true;
  std::string region, op;   // "blocks.3.attn", "matmul"
  std::string form;         // of products: what is transposed, which tells forward, dgrad and wgrad apart
  std::string field;        // "out"
  int part = 0;             // of the matrices that are stacked in a weight: what of the operand is one's (q, k, v)
  std::string weight = {};  // that the operation reads, or whose gradient it writes: "blocks.3.attn.qkv.weight"
  auto operator<=>(const OperandName&) const = default;
};
// "operand `out` of matmul in blocks.3.attn, forward of micro-batch 0, with blocks.3.attn.qkv.weight (part 2)"
std::string to_string(const OperandName& name);

struct Recorded {
  OperandName name;
  OperandSums sums;
};

// One matrix of those stacked in a weight has some of an operand's rows or columns.
struct OperandPart {
  int part;
  Field field;
  Tensor tensor;
};

// A backend around a backend that sums what goes in and what comes out of every operation within a region. Waits for
// each. The inner backend is borrowed, and the memory that the operands lie in.
class OpRecorder final : public BackendAround {
 public:
  OpRecorder(Backend& inner, const ParamStore& params) : BackendAround(inner), params_(params) {}
  void run(const AnyOp& op) override;

  // What follows belongs to this micro-batch's forward or backward.
  void begin(int64_t micro_batch, bool forward);
  std::vector<Recorded> take() { return std::move(all_); }

 private:
  // The rows of one part among those of a weight that an operation uses, counted from the first of these.
  struct PartRows {
    int part;
    Run rows;
  };
  static std::vector<Field> accumulating(std::span<const Field> fields);
  struct Found {
    const Param* param = nullptr;
    bool gradient = false;
    int64_t row = 0;  // here, that the tensor begins with
  };
  Found weight_of(const Tensor& t) const;
  // Sets at_.weight; of the operation's weight, or of its gradient.
  std::vector<PartRows> find_weight(std::span<const Field> fields, const Tensor*& weight);
  std::vector<OperandPart> parts_of(const AnyOp& op, const std::vector<Field>& fields);
  OperandSums sums_of(const OperandPart& part) const;
  void record(const OperandPart& part, const OperandSums& before, double summands);

  const ParamStore& params_;
  OperandName at_;
  std::vector<Recorded> all_;
};

// What all ranks of a run recorded.
class OpLog {
 public:
  void add(const std::vector<Recorded>& of_a_rank);  // any thread

  // The first operand, in the order of `one` (of one rank), that this log has with other values; none where all that
  // can be compared is equal. Operands are the same where their names are; where a layout has them in another number of
  // operations (keys apart from queries), all of them are together. Comparable are operands that are whole on every
  // rank, that are cut over tp, or that are summands. `tolerance`: relative to the sum of absolute values.
  struct Difference {
    OperandName name;
    bool read;  // rather than written: it was different before the operation ran
    double one, many;
  };
  std::optional<Difference> first_difference(const OpLog& one, double tolerance) const;
  // How many operands of `one` can be compared with this log's.
  int64_t num_comparable(const OpLog& one) const;

 private:
  using OfRank = std::vector<OperandSums>;  // in each operation that has an operand of this name
  struct Compared {
    OperandName name;
    OperandSums one;
    std::vector<OperandSums> many;  // the ranks', or theirs as one
  };
  template <class F>
  void for_each_comparable(const OpLog& one, const F& f) const;
  const std::vector<OfRank>* find(const OperandName& name) const;

  struct Place {
    OperandName name;
    size_t which;  // of the operations that have an operand of this name
  };
  std::mutex mutex_;
  std::vector<Place> order_;
  std::map<OperandName, std::vector<OfRank>> operands_;
};

}  // namespace weft
