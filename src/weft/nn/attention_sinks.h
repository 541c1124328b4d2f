// A learned logit for each head beside those of the keys, where a model has such.   T tokens, whole on tp   h heads
// here
#pragma once
#include <string>

#include "weft/nn/pass.h"
#include "weft/sharding/param_store.h"

namespace weft {

class AttentionSinks {
 public:
  struct Spec {
    bool exist;
    int64_t heads;
    Part part;  // how heads are cut
    double init_std;
  };
  struct Saved {
    Tensor dsinks;  // [h]  stat  dgrad .. wgrad
  };
  AttentionSinks(ParamStore& params, const std::string& name, const Spec& spec) {
    if (!spec.exist) return;
    sinks_ = &params.add({.name = name + ".sinks",
                          .shape = {spec.heads},
                          .place = weights(Spmd::Shard0),
                          .parts = {spec.part},
                          .init = {Init::Kind::normal, spec.init_std}});
  }

  // o [T, h e] and lse [T, h] of attention without them, in place.
  void forward(Pass& p, Tensor o, Tensor lse) const {
    if (sinks_) p.be.run(AttentionSink{.sinks = sinks_->value, .o = o, .lse = lse});
  }
  // From o and lse as `forward` left them; the gradients of q, k and v are those of attention with these.
  void dgrad(Pass& p, Saved& s, Tensor o, Tensor lse, Tensor dout) const {
    if (!sinks_ || !sinks_->learns()) return;
    s.dsinks = p.stat(p.dgrad_till_wgrad, sinks_->shape(), sinks_->spec().place.dual());
    p.be.run(AttentionSinkBackward{.sinks = sinks_->value, .o = o, .lse = lse, .dout = dout, .dsinks = s.dsinks});
  }
  void wgrad(Pass& p, const Saved& s) const {
    if (sinks_) add_gradient(p, *sinks_, s.dsinks);
  }

 private:
  Param* sinks_ = nullptr;
};

}  // namespace weft
