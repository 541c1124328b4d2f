// One micro-batch through one chunk of the model, with what comes from and goes to the chunks before and after it. The
// executor runs this, and so does the dry run that plans its memory.
#pragma once
#include "weft/models/transformer.h"

namespace weft {

// The other chunks, wherever they are. A receive blocks until the tensor is filled.
class Neighbours {
 public:
  virtual ~Neighbours() = default;
  virtual void receive_stream(Tensor x) = 0;  // from the chunk before
  virtual void send_stream(Tensor y) = 0;     // to the chunk after; y lives until its gradient has come back
  virtual void receive_gradient(Tensor dy) = 0;
  virtual Tensor gradient_to_send() = 0;  // where the gradient for the chunk before is to be written; may block
  virtual void send_gradient(Tensor dx) = 0;
};

void forward_chunk(Pass& p, const Transformer& model, int chunk, Transformer::Saved& s, Neighbours& others);
// Dgrad, and wgrad too (backward) or not yet.
enum class Backward { with_wgrad, dgrad_only };
void backward_chunk(Pass& p, const Transformer& model, int chunk, Transformer::Saved& s, Neighbours& others,
                    Backward what);
// Forward only, through all chunks of this rank, with everything in p.scratch: the losses of tokens (stat, [tokens]),
// which are zero on ranks without the head.
Tensor score_chunks(Pass& p, const Transformer& model, const std::vector<Neighbours*>& others);

}  // namespace weft
