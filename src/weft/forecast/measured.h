// What weft's own ops and collectives took on a machine, measured while all its ranks were at work: curves that
// forecasts read, in place of a device's rates and a program's parts of them. `weft bench machine` measures them;
// docs/formats/cluster.md says how they are written.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/comm/traffic.h"

namespace weft {

struct StepOp;
class TomlTable;

// Seconds by size. Between two points by a power of the size; below the first point as much as there, above the last
// at its rate. More is never quicker.
struct Curve {
  std::vector<double> at, seconds;  // ascending; not descending
  double of(double size) const;
};

// Flop/s of products by m, n and k: all sizes of one with all of the others, in this order. Between sizes by powers of
// them; beyond the outermost as there.
struct RateGrid {
  std::string op, dtype, form;  // "matmul"; "bf16"; "nt": a as it lies, b transposed. Other ops have no form
  std::vector<double> m, n, k, flops_per_s;
  double of(double m_size, double n_size, double k_size) const;
};

struct OpCurve {
  std::string op, dtypes;  // "norm"; "bf16,f32"
  Curve curve;             // by bytes read and written
};

struct CollectiveCurve {
  Traffic::Kind kind;
  int ranks = 2;
  bool far = false;  // over several nodes
  Curve curve;       // by the bytes that leave a rank (comm/traffic.h)
};

// The ranks of a node, all of them at work.
struct MeasuredRanks {
  int ranks = 1, threads = 1;  // of the node; of each rank
  bool processes = false;      // ranks are processes, not threads
  double gap_s = 0;            // from one op to the next
  std::vector<RateGrid> rates = {};
  std::vector<OpCurve> ops = {};
  std::vector<CollectiveCurve> collectives = {};

  // Without the gap. None: nothing like it was measured.
  std::optional<double> seconds_of(const StepOp& op) const;
  // That of the number of ranks nearest to these; null: none was measured.
  const Curve* collective(Traffic::Kind kind, int among, bool far) const;
  double best_rate(std::string_view dtype) const;  // of matrix products; 0: none of this type
};

// What RateGrid::of takes of an op that computes products.
struct RatedOp {
  std::string_view op;
  std::string dtype, form;
  double m = 1, n = 1, k = 1;
};
// m, n, k of a product; of experts' for one of them, as if each had as many rows; of attention n is twice the keys that
// a query sees on average, k the width of a head. None: an op that costs bytes.
std::optional<RatedOp> rated_op(const StepOp& op);
// "bf16,f32": the types of its operands, each once.
std::string dtypes_of(const StepOp& op);

// Ops as they ran in steps, to curves: the mean of those alike, never quicker for more bytes. Ops that are rated are
// left out.
struct TimedOp {
  std::string op, dtypes;
  double bytes = 0, seconds = 0;
};
std::vector<OpCurve> curves_of(const std::vector<TimedOp>& ops);

// [[measured]] of a cluster's file, each with its tables. Throws ConfigError with file, line and key.
std::vector<MeasuredRanks> read_measured(const TomlTable& file, const std::string& source);
std::string to_toml(const MeasuredRanks& measured);

}  // namespace weft
