// A training step as work: what the dry run of each stage computes and sends, as the seconds that it would take a
// device at its best rates. Programs reach parts of these rates (profile.h); what a step takes is then found by
// price.h.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/forecast/device.h"
#include "weft/forecast/links.h"
#include "weft/plan/run_plan.h"
#include "weft/plan/step_data.h"
#include "weft/recipe/recipe.h"

namespace weft {

// products: matrix products in 16 bits, fp8, fp4, f32; grouped: those of experts; attention: by a kernel that keeps no
// scores; scores: what one that keeps them moves beside; casts: what making fp8 of operands moves; memory: all other
// ops, by the bytes they move; update: the optimizer's.
enum class WorkClass : uint8_t {
  products,
  products8,
  products4,
  products_f32,
  grouped,
  grouped8,
  attention,
  attention_backward,
  scores,
  casts,
  memory,
  update
};
inline constexpr int kWorkClasses = 12;
std::string_view name_of(WorkClass c);

// Seconds at best rates, and how many kernels that are.
struct ComputeWork {
  std::array<double, kWorkClasses> seconds = {};
  int64_t kernels = 0;
  double operator[](WorkClass c) const { return seconds[size_t(c)]; }
  double& operator[](WorkClass c) { return seconds[size_t(c)]; }
};

// A message that all ranks of tp have to send alike, cut into slices: each sends one, and those that receive them
// gather the others.
struct SlicedTime {
  LinkTime message = {}, gather = {};
};

// Collectives of one kind over one axis, or messages between neighbouring stages.
struct TransferWork {
  std::string axis;  // "tp", "shards", "pp"
  Traffic::Kind kind;
  int64_t calls = 0;
  LinkTime each = {};                        // of one call
  bool inside = true;                        // nothing leaves the domain
  std::optional<SlicedTime> in_slices = {};  // of one call, where programs may send slices
};

// Actions of one rank that are alike.
struct ActionWork {
  Do what;
  int chunk = 0;
  int64_t times = 0;  // in a step
  ComputeWork compute;
  std::vector<TransferWork> transfers;
};
struct StageWork {
  std::vector<ActionWork> actions = {};
  ActionWork before =
      {};  // forward-only passes over all micro-batches, before the first action; no times if there are none
  ComputeWork end = {};  // behind the last action
  std::vector<TransferWork> end_transfers = {};
  int64_t memory_bytes = 0;  // of a rank, as planned ...
  int64_t kept_bytes = 0;    // ... and of them weights, gradients and optimizer state
  int64_t saved_bytes = 0;   // of them weights and optimizer state: what a checkpoint is made of
};

struct RunWork {
  MeshSizes mesh;
  Pipeline pipeline;
  int64_t num_micro_batches = 1;
  double tokens = 0;  // of a step, on all devices
  Arithmetic arithmetic = {};
  int generation = 0;                 // of the device
  std::vector<StageWork> kinds = {};  // of stages
  std::vector<int> kind_of = {};      // [stage]
};

// What the products are made in: fp8 and fp4 are forecast only (weft does not train in them yet).
enum class ProductFormat : uint8_t { bits16, fp8, fp4 };

// `plan` is that of rank 0 (prepare_run). Where the layout is larger than the cluster says, ranks beyond are as those
// within. Throws what planning throws.
RunWork work_of(const Recipe& recipe, const RunPlan& plan, const ClusterSpec& cluster, ProductFormat format);
// The actions and the end of rank 0's stage alone, which is much sooner found: without tokens, arithmetic and memory.
RunWork actions_of(const RunPlan& plan, const ClusterSpec& cluster, ProductFormat format);

// A pass of a model that only runs forward, as one action: an op takes at least as long as its bytes, which of few rows
// are mostly weights, and of attention the keys and values that its queries see. Of a cluster that was not measured.
ActionWork work_of_pass(const PassData& pass, const ModelSpec& model, const MeshSizes& mesh,
                        const ClusterSpec& cluster);
// A message of so many bytes to the next stage.
TransferWork message_work(double bytes, const MeshSizes& mesh, const ClusterSpec& cluster);

// The ops of a rank's step by name, at the device's best rates or as they were measured: to be held to those of a run.
struct OpWork {
  int64_t count = 0;
  double seconds = 0;
};
std::map<std::string, OpWork> work_by_op(const RunPlan& plan, const ClusterSpec& cluster);

// Whether the axis is one along which tokens are sent to experts.
bool sends_rows_to_experts(std::string_view axis);

// How the ranks of the axis that rank 0 is on are spread over domains of so many devices.
AxisSpread spread_of(const MeshSizes& mesh, std::string_view axis, int domain);

}  // namespace weft
