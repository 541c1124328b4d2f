// What the routers of a model do in a step: for metrics, for losses over the whole global batch, and for the biases by
// which some of them choose.
//   E experts of a layer   L layers of the model and its modules, those without experts too
#pragma once
#include <vector>

#include "weft/ops/ops.h"
#include "weft/sharding/boundary.h"
#include "weft/sharding/param_store.h"

namespace weft {

// What routers did in a step, summed or listed over the layers with experts. Losses are without their factors, and of
// the model's own layers.
struct RouterReport {
  double aux_loss = 0;                     // balance, of sequences or of the whole batch; sum over layers
  double z_loss = 0;                       // sum over layers of the mean square of the log-sum-exp of router logits
  std::vector<std::vector<int64_t>> load;  // [layer][expert] pairs of a token and that expert
  std::vector<double> entropy;             // [layer] nats, mean over tokens, of the shares of their scores
  std::vector<int64_t> dropped;            // [layer] pairs; none where pairs cannot be dropped
  // Likewise, by modules of multi-token prediction that have experts.
  std::vector<std::vector<int64_t>> mtp_load;
  std::vector<double> mtp_entropy;
  std::vector<int64_t> mtp_dropped;
  bool operator==(const RouterReport&) const = default;
};

// Where the host reaches it. The layers add to their own rows; those of other stages are zero till they are summed.
class RouterRecords {
 public:
  struct Layers {
    int64_t model;
    int64_t modules;  // of multi-token prediction, behind those: they have no losses beside their own
  };
  // stream: how the ranks of tp hold the tokens that a router sees. drops: pairs may be dropped.
  RouterRecords(Layers layers, int64_t experts, Spmd stream, bool drops);
  void allocate(Arena& records, DType stat);

  Tensor sums(int64_t layer) const { return sums_.slice_rows(layer, 1); }    // f64 [1, RouterSums::size(E)]
  Tensor whole(int64_t layer) const { return whole_.slice_rows(layer, 1); }  // stat [1, E]
  // Host. Adds pairs of a layer that were dropped, of tokens of this rank, whole on tp.
  void add_dropped(int64_t layer, int64_t pairs);
  int64_t layers() const { return sums_.rows(); }
  int64_t experts() const { return experts_; }

  // Host. Zeroes all of it.
  void begin_step();
  // What was counted of the whole batch becomes factor x its sum over ranks. Blocks.
  void wait_sum_whole(const ProcessMesh& mesh, double factor);
  // Sums become those of all ranks, the same on each. Blocks.
  void wait_sum(const ProcessMesh& mesh);
  // After that: moves the biases that layers have given, b_e += rate sign(mean load - load of e), in their dtype. The
  // same on every rank that has the layer. Blocks.     Wang et al. 2024, "Auxiliary-loss-free load balancing"
  void wait_correct(const ParamStore& params, double rate) const;
  void corrects(int64_t layer, const Param& bias) { biases_.push_back({layer, &bias}); }
  // What they say, after wait_sum, of so many tokens of the global batch. Layers without experts have no tokens.
  RouterReport report(int64_t tokens, bool of_whole_batch) const;

 private:
  struct Bias {
    int64_t layer;
    const Param* of;  // [E]
  };
  int64_t layers_, of_model_, experts_;
  std::vector<Bias> biases_;
  Boundary join_;
  Tensor sums_;                  // f64 [L, RouterSums::size(E)]
  std::vector<double> dropped_;  // [L], or none
  Tensor whole_;  // stat [L, E]  of the whole global batch, before its gradients: tokens, then their factor
};

}  // namespace weft
