// Tokens (and, in some models, their positions) as vectors of the stream.   t tokens here, d width, V vocabulary
#pragma once
#include "weft/dist/param_store.h"
#include "weft/nn/pass.h"
#include "weft/nn/stream_dropout.h"

namespace weft {

class Embedding {
 public:
  struct Spec {
    int64_t vocab_size, width;
    int64_t positions;  // rows of the position table; 0: none
    double init_std, dropout;
  };
  Embedding(ParamStore& params, const Spec& spec, const LayerPlan& plan);
  // x [t, d].
  void forward(Pass& p, Tensor x) const;
  void wgrad(Pass& p, Tensor dx) const;  // adds to the tables' gradients
  Param& tokens_table() const { return *tokens_; }

 private:
  void add_rows(Pass& p, Param& table, Tensor ids, Tensor dx) const;
  Param* tokens_;
  Param* positions_ = nullptr;
  StreamDropout dropout_;
};

}  // namespace weft
