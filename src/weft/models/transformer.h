// A decoder-only transformer, assembled from a ModelSpec: embedding, blocks, head.
//   t tokens of a micro-batch   d width of the stream   V vocabulary
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/nn/any_layer.h"
#include "weft/nn/block.h"
#include "weft/nn/embedding.h"
#include "weft/nn/lm_head.h"

namespace weft {

struct TransformerPlan {
  LayerPlan layers;
  bool recompute_blocks = false;  // keep only the input of each block
  int64_t max_positions = 0;      // longest sequence that will be seen: rows of the table of rotations
};

// The weights of a model, whole, in its order.
std::vector<ParamSpec> all_params(const ModelSpec& model);

class Transformer {
 public:
  // Declares the weights, one unit each for embedding, every block and head. `params` must outlive this.
  Transformer(ParamStore& params, const ModelSpec& spec, const TransformerPlan& plan);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;
  // Constants that are not weights (the table of rotations): before any pass.
  void allocate_constants(Arena& constants, Precision precision);

  struct Saved {  // of one micro-batch
    std::vector<std::unique_ptr<AnyLayer::Saved>> blocks;
    std::vector<Tensor> stream;    // [t, d] into each block, and out of the last    till dgrad
    std::vector<Tensor> gradient;  // [t, d] of those                                dgrad .. wgrad
  };
  Saved make_saved() const;

  // One micro-batch: p.batch. The loss is made in backward (or dgrad), where its logits are.
  void forward(Pass& p, Saved& s) const;
  void backward(Pass& p, Saved& s) const;  // dgrad and wgrad block by block: keeps one block's gradients at a time
  void dgrad(Pass& p, Saved& s) const;
  void wgrad(Pass& p, Saved& s) const;

  // How the losses of tokens are held.
  Placement loss_place() const { return head_->loss_place(tokens(plan_.layers.stream)); }
  // Forward only; everything lies in p.scratch.   nll [tokens] stat
  void evaluate(Pass& p, Tensor nll) const;
  // The tokens of p.batch follow those in the caches (one for each block). logits [1, V] stat: after the last of them.
  void decode(Pass& p, std::vector<KvCache>& caches, Tensor logits) const;

  const ModelSpec& spec() const { return spec_; }

 private:
  Tensor stream(const Pass& p, Arena* arena) const;
  void forward_block(Pass& p, size_t block, AnyLayer::Saved& s, Tensor x, Tensor y) const;
  void block_wgrad(Pass& p, size_t block, AnyLayer::Saved& s) const;
  void head_backward(Pass& p, Saved& s, Tensor dx) const;
  void embedding_wgrad(Pass& p, Tensor dx) const;

  ModelSpec spec_;
  TransformerPlan plan_;
  ParamStore& params_;
  Tensor rope_table_;  // [max_positions, head_dim] stat
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> plain_blocks_;
  std::deque<Recompute<Block>> recomputed_;
  std::vector<std::unique_ptr<AnyLayer>> blocks_;
  std::unique_ptr<LmHead> head_;
  int embedding_unit_ = 0, first_block_unit_ = 0, head_unit_ = 0;
};

}  // namespace weft
