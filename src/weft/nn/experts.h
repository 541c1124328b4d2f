// A mixture of experts in place of a block's MLP.
//   t tokens of this rank's stream   T the same, whole on tp   d width of the stream   E experts, k of a token
//   n rows: the pairs of a token and one of its experts that are worked on here, sorted by expert; all T k where no
//   other ranks have experts   f inner width of an expert (here)
#pragma once
#include <optional>
#include <string>

#include "weft/nn/grouped_bias.h"
#include "weft/nn/grouped_linear.h"
#include "weft/nn/mlp.h"
#include "weft/nn/router_records.h"
#include "weft/sharding/dispatch.h"

namespace weft {

// y = sum over a token's k experts of weight x down(swiglu(up(h))), and what an MLP that all tokens go through adds,
// if there is one, perhaps times sigmoid(gate h).       Shazeer et al. 2017; shared experts: Dai et al. 2024
//
// A weight multiplies the activation between up and down, so that what experts return is not kept: the gradient of the
// weight is <d(weight a), a>. The router sees the tokens of the stream, as norms do: its weights are whole.
// A correction is added to the scores by which experts are chosen, not to those by which they are weighed. It has no
// gradient; and balance is then judged by what would be chosen without it and without groups (DeepSeek-V3, eq. 18).
class Experts {
 public:
  struct Spec {
    int64_t width, count, chosen, inner;
    Routing routing;
    bool correction;  // a bias in the choice, which the records move
    double clamp;     // of clamped units, whose gates and ups take turns; 0: swiglu
    bool bias;        // of the router, and of every expert
    std::optional<Mlp::Spec> shared;
    bool shared_gate;
    double init_std, down_init_std;
    double dropout;
    double aux_loss_coef, global_aux_loss_coef, z_loss_coef;  // Balance
    RouterRecords* records;                                   // the model's
    int64_t layer;                                            // whose rows of them are
  };
  struct Saved {
    Tensor logits;            // stat [t, E]              till dgrad
    Tensor ids;               // i32 [t, k]               till dgrad
    Tensor whole_ids;         // i32 [T, k]               till dgrad
    Dispatch::Routes routes;  //                          till wgrad
    Tensor weights;           // stat [n]                 till wgrad
    Tensor u;                 // [n, 2f]                  till dgrad
    GroupedLinear::Saved up, down;
    Tensor a;               // [n, f]                   till wgrad; or dgrad .. wgrad where not kept
    Tensor dy;              // [t, d]                   till wgrad (owned by the block)
    Tensor du;              // [n, 2f]                  dgrad .. wgrad
    Tensor dlogits;         // [t, E]                   dgrad .. wgrad
    Mlp::Saved shared;      // of the shared one
    Tensor shared_y, gate;  // [t, d], stat [t, 1]      till dgrad, where it has a gate
    Tensor dgate;           // [t, 1]                   dgrad .. wgrad
  };
  Experts(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // As Mlp has them.
  Tensor forward(Pass& p, Saved& s, Tensor h) const;
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  void wgrad(Pass& p, const Saved& s, Tensor h) const;

 private:
  void route(Pass& p, Saved& s, Tensor h) const;
  Dispatch::Routes routes_of(Pass& p, Tensor ids) const;
  Dispatch::OnTheWay begin_rows_of(Pass& p, const Saved& s, Tensor x) const;
  Tensor rows_of(Pass& p, const Saved& s, Tensor x) const;
  Tensor alloc_rows(const Pass& p, Arena* arena, const Saved& s, int64_t cols, Placement place) const;
  Tensor weighted(Pass& p, const Saved& s) const;
  void activate(Pass& p, const Saved& s, Tensor a) const;
  Tensor ones(Pass& p, const Saved& s) const;
  Tensor row_weights(Pass& p, const Saved& s) const;
  Tensor weights_backward(Pass& p, const Saved& s, Tensor drow_weights) const;
  Tensor balance_ids(Pass& p, const Saved& s) const;
  Tensor route_backward(Pass& p, Saved& s, Tensor dweights) const;
  Tensor load_of_samples(Pass& p, const Saved& s, int64_t sample) const;
  Tensor leave_backward(Pass& p, const Saved& s) const;
  Tensor shared_forward(Pass& p, Saved& s, Tensor h) const;
  struct SharedGradient {
    Tensor of_gate, of_mlp;  // [t, d], where there are such
  };
  SharedGradient shared_dgrad(Pass& p, Saved& s, Tensor dy) const;

  Spec spec_;
  bool keep_;
  Linear router_;
  Param* correction_ = nullptr;  // [E]
  Boundary enter_, leave_, whole_samples_;
  Dispatch dispatch_;
  GroupedLinear up_;
  GroupedBias up_bias_;
  GroupedLinear down_;
  GroupedBias down_bias_;
  StreamDropout dropout_;
  std::optional<Mlp> shared_;
  std::optional<Linear> gate_;
};

}  // namespace weft
