// A decoder-only transformer, assembled from a ModelSpec: embedding, blocks, head; or the parts of it that a rank has.
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

// A piece of the model that a rank runs at once: a virtual stage of a pipeline.
struct ModelPart {
  Run blocks;                          // of the model's
  bool embedding = true, head = true;  // before them, and behind
};

struct TransformerPlan {
  LayerPlan layers;
  bool recompute_blocks = false;      // keep only the input of each block
  int64_t max_positions = 0;          // longest sequence that will be seen: rows of the table of rotations
  std::vector<ModelPart> parts = {};  // what this rank has of the model, chunk by chunk; none: all of it, as one
  // The pipeline rank with the other end of the model, where embedding and head share a table and lie on two.
  int other_end = -1;
};

// The weights of a model, whole, in its order.
std::vector<ParamSpec> all_params(const ModelSpec& model);

class Transformer {
 public:
  // Declares the weights of its parts, a unit each for tables, every block and the head. `params` must outlive this.
  Transformer(ParamStore& params, const ModelSpec& spec, const TransformerPlan& plan);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;
  // Constants that are not weights (the table of rotations): before any pass.
  void allocate_constants(Arena& constants, Precision precision);

  int num_chunks() const { return int(chunks_.size()); }
  const ModelPart& part(int chunk) const { return chunks_[size_t(chunk)].part; }
  // Units of a whole model: the positions that a ParamStore knows them by.
  static int64_t num_positions(const ModelSpec& spec) { return spec.num_layers + 3; }

  struct Saved {  // of one micro-batch in one chunk
    std::vector<std::unique_ptr<AnyLayer::Saved>> blocks;
    std::vector<Tensor> stream;    // [t, d] into each block, and out of the last    till dgrad
    std::vector<Tensor> gradient;  // [t, d] of those                                dgrad .. wgrad
  };
  Saved make_saved(int chunk) const;
  // The stream of this rank, [t, d], in some arena.
  Tensor stream(const Pass& p, Arena* arena) const;

  // One micro-batch, p.batch, through one chunk. The loss is made in backward (or dgrad), where its logits are.
  //   x   into the chunk; made here where the chunk has the embedding           till dgrad (owned by the caller)
  //   y   out of it (returned)                                                  till dgrad
  //   dy  the gradient of y; made here where the chunk has the head             till wgrad (owned by the caller)
  //   dx  receives the gradient of x; where the chunk has the embedding, it must live till wgrad
  Tensor forward(Pass& p, Saved& s, int chunk, Tensor x) const;
  // dgrad and wgrad block by block: keeps one block's gradients at a time.
  void backward(Pass& p, Saved& s, int chunk, Tensor dy, Tensor dx) const;
  void dgrad(Pass& p, Saved& s, int chunk, Tensor dy, Tensor dx) const;
  void wgrad(Pass& p, Saved& s, int chunk) const;

  // How the losses of tokens are held.
  Placement loss_place() const { return LmHead::loss_place(plan_.layers); }
  // Forward only, through one chunk; everything lies in p.scratch. x as above, y [t, d] out of the chunk; where it has
  // the head, nll [tokens] stat instead. y may be x.
  void evaluate(Pass& p, int chunk, Tensor x, Tensor y, Tensor nll) const;
  // The tokens of p.batch follow those in the caches (one for each block). logits [1, V] stat: after the last of them.
  void decode(Pass& p, std::vector<KvCache>& caches, Tensor logits) const;

  const ModelSpec& spec() const { return spec_; }

 private:
  struct Chunk {
    ModelPart part;
    size_t first;  // of its blocks, among those here
  };
  void declare_blocks(const ModelPart& part);
  void declare_head();
  size_t blocks_of(int chunk) const { return size_t(part(chunk).blocks.count); }
  int unit_of(size_t block) const { return block_units_[block]; }
  template <class F>
  void fetched(const std::vector<int>& units, const std::vector<int>& next, const F& f) const;
  std::vector<int> units_at(int chunk, size_t block) const;
  std::vector<int> units_before(int chunk, size_t block) const;
  void block_wgrad(Pass& p, size_t block, AnyLayer::Saved& s) const;
  void head_backward(Pass& p, int chunk, Tensor x, Tensor dx) const;
  void embedding_wgrad(Pass& p, Tensor dx) const;

  ModelSpec spec_;
  TransformerPlan plan_;
  ParamStore& params_;
  Tensor rope_table_;  // [max_positions, head_dim] stat
  std::vector<Chunk> chunks_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> plain_blocks_;
  std::deque<Recompute<Block>> recomputed_;
  std::vector<std::unique_ptr<AnyLayer>> blocks_;
  std::unique_ptr<LmHead> head_;
  std::vector<int> block_units_, head_units_;
};

}  // namespace weft
