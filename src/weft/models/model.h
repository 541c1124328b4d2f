// A model as a training step sees it: layers in a row, cut into chunks, each layer with units of weights.
//   t tokens of this rank's stream   T the same, whole on tp   d width of the stream
#pragma once
#include <vector>

#include "weft/nn/any_layer.h"
#include "weft/nn/head_targets.h"

namespace weft {

// What a layer is to the stream. An embedding makes it, so no gradient leaves it. A head turns it into the loss, and
// does so in dgrad, where the logits are, with the gradients of its weights: it has no forward and no wgrad.
enum class LayerKind : uint8_t { embedding, block, head };

struct ModelLayer {
  LayerKind kind;
  const AnyLayer* layer;   // the model's
  std::vector<int> units;  // of its ParamStore, which the layer reads and writes gradients of
};

class Model {
 public:
  virtual ~Model() = default;

  // Chunks (virtual stages of a pipeline) that this rank has, at least one; the layers of each in the order of forward,
  // at least one. References stay valid.
  virtual int num_chunks() const = 0;
  virtual const std::vector<ModelLayer>& layers(int chunk) const = 0;
  // Is it the first of the whole model, or the last.
  bool has_embedding(int chunk) const { return layers(chunk).front().kind == LayerKind::embedding; }
  bool has_head(int chunk) const { return layers(chunk).back().kind == LayerKind::head; }

  // The stream of this rank between two layers: [t, d] of p.precision.compute, in some arena.
  Tensor stream(const Pass& p, Arena* arena) const { return p.compute(arena, stream_shape(p.batch), stream_place()); }
  virtual Shape stream_shape(const MicroBatch& batch) const = 0;
  virtual Placement stream_place() const = 0;

  // Without training, in the chunk with the head: the losses of tokens, of its input x [t, d].
  virtual void token_losses(Pass& p, Tensor x, const TokenLosses& to) const = 0;
  virtual Placement loss_place() const = 0;   // how they are held
  virtual Placement value_place() const = 0;  // and values
  // Likewise, in their place: what the head's product is given, of a model that teaches another one. to [t, d]
  virtual void states(Pass& p, Tensor x, Tensor to) const = 0;
};

}  // namespace weft
