#include "weft/plan/chunk_pass.h"

namespace weft {

void forward_chunk(Pass& p, const Transformer& model, int chunk, Transformer::Saved& s, Neighbours& others) {
  const ModelPart& part = model.part(chunk);
  const Tensor x = model.stream(p, p.till_dgrad);
  if (!part.embedding) others.receive_stream(x);
  const Tensor y = model.forward(p, s, chunk, x);
  if (!part.head) others.send_stream(y);
}

void backward_chunk(Pass& p, const Transformer& model, int chunk, Transformer::Saved& s, Neighbours& others,
                    Backward what) {
  const ModelPart& part = model.part(chunk);
  const bool only_head = part.head && part.blocks.count == 0;
  const Tensor dy = only_head ? Tensor{} : model.stream(p, p.dgrad_till_wgrad);
  if (!part.head) others.receive_gradient(dy);
  const Tensor dx = part.embedding ? model.stream(p, p.dgrad_till_wgrad) : others.gradient_to_send();
  if (what == Backward::with_wgrad)
    model.backward(p, s, chunk, dy, dx);
  else
    model.dgrad(p, s, chunk, dy, dx);
  if (!part.embedding) others.send_gradient(dx);
}

Tensor score_chunks(Pass& p, const Transformer& model, const std::vector<Neighbours*>& others) {
  Tensor nll = p.stat(p.scratch, {p.batch.ids.rows()}, model.loss_place());
  p.be.run(Zero{.x = nll});
  for (int chunk = 0; chunk < model.num_chunks(); ++chunk) {
    const ModelPart& part = model.part(chunk);
    const Tensor x = model.stream(p, p.scratch), y = model.stream(p, p.scratch);
    if (!part.embedding) others[size_t(chunk)]->receive_stream(x);
    model.evaluate(p, chunk, x, y, nll);
    if (!part.head) others[size_t(chunk)]->send_stream(y);
  }
  return nll;
}

}  // namespace weft
