// A decoder-only transformer, assembled from a ModelSpec: embedding, blocks, head; or the parts of it that a rank has.
//   t tokens of a micro-batch   d width of the stream   V vocabulary
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "weft/models/model.h"
#include "weft/models/model_spec.h"
#include "weft/nn/block.h"
#include "weft/nn/embedding.h"
#include "weft/nn/lm_head.h"

namespace weft {

// What a rank runs at once: a virtual stage of a pipeline.
struct ModelPart {
  Run blocks;                          // of the model's
  bool embedding = true, head = true;  // before them, and behind
};

// What a block computes again in backward instead of keeping it, the least first: nothing; what takes no products (norm
// outputs, MLP activations); the attention core too; all of it but its input.
enum class BlockRecompute : uint8_t { none, activations, selective, full };
inline constexpr size_t kBlockRecomputes = 4;

struct TransformerPlan {
  LayerPlan layers;
  bool recompute_blocks = false;  // keep only the input of each block
  // Of each block of the whole model, in place of what `layers` and recompute_blocks say of all; none: as these say.
  std::vector<BlockRecompute> recompute = {};
  int64_t max_positions = 0;          // longest sequence that will be seen: rows of the table of rotations
  std::vector<ModelPart> parts = {};  // what this rank has of the model, chunk by chunk; none: all of it, as one
  // The pipeline rank with the other end of the model, where embedding and head use one table and lie on two.
  int other_end = -1;
};

// The weights of a model, whole, in its order.
std::vector<ParamSpec> all_params(const ModelSpec& model);

class Transformer final : public Model {
 public:
  // Declares the weights of its parts, a unit each for tables, every block and the head. `params` must outlive this.
  Transformer(ParamStore& params, const ModelSpec& spec, const TransformerPlan& plan);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;
  // Constants that are not weights (tables of rotations): before any pass.
  void allocate_constants(Arena& constants, Precision precision);

  int num_chunks() const override { return int(chunks_.size()); }
  const std::vector<ModelLayer>& layers(int chunk) const override { return chunks_[size_t(chunk)]; }
  Shape stream_shape(const MicroBatch& batch) const override { return {batch.stream.count, spec_.width}; }
  Placement stream_place() const override { return tokens(plan_.layers.stream); }
  void token_losses(Pass& p, Tensor x, const TokenLosses& to) const override { head_->token_losses(p, x, to); }
  Placement loss_place() const override {
    return spec_.head == HeadKind::score ? ScoreHead::loss_place(plan_.layers)
                                         : VocabularyHead::loss_place(plan_.layers);
  }
  Placement value_place() const override { return ScoreHead::loss_place(plan_.layers); }
  void states(Pass& p, Tensor x, Tensor to) const override { head_->states(p, x, to); }
  const VocabularyHead& vocabulary() const { return head_->vocabulary(); }  // of the part with the head

  // What its routers do in a step; none where it has no experts. Before any backward pass.
  void allocate_records(Arena& records, Precision precision);
  RouterRecords* routers() { return routers_ ? &*routers_ : nullptr; }

  // Units of a whole model: the positions that a ParamStore knows them by.
  static int64_t num_positions(const ModelSpec& spec) { return spec.num_layers + (spec.has_mtp() ? 4 : 3); }

  // Text that goes on, by what is here of the model.
  // What the blocks here keep, those of all chunks in their order, so many rows each.
  std::vector<KvCache> make_caches(Arena& arena, Precision precision, int64_t rows) const;
  // Of the tokens of p.batch, what an embedding makes of their ids in y, or a block of the stream in x; [t, d] both.
  // The layer's units have been fetched.
  struct LayerAt {
    int chunk, layer;
  };
  void decode(Pass& p, LayerAt at, const std::vector<KvCache>& caches, const CacheUse& use,
              const Block::Streams& streams) const;
  // Where the head is: logits [texts, V] stat, whole on tp and cp, after the last token of each text. Of the stream x.
  void logits(Pass& p, const CacheUse& use, Tensor x, Tensor logits) const;

  const ModelSpec& spec() const { return spec_; }

 private:
  struct RopeTable {
    RopeSpec spec;
    Tensor table;  // [max_positions, numbers of a head that turn] stat
  };
  const Tensor& rope_table(const RopeSpec& spec);
  void declare_embedding();
  void declare_blocks(const ModelPart& part);
  LayerPlan block_plan(int64_t l) const;
  bool is_recomputed(int64_t l) const;
  Block::Spec block_spec(int64_t l, const LayerSpec& layer);
  void declare_head();
  Param& table_in_head(std::vector<int>& units);
  template <class L, class... Args>
  const L& own(Args&&... args);
  void add(LayerKind kind, const AnyLayer& layer, std::vector<int> units) {
    chunks_.back().push_back({kind, &layer, std::move(units)});
  }

  ModelSpec spec_;
  TransformerPlan plan_;
  ParamStore& params_;
  std::optional<RouterRecords> routers_;
  std::deque<RopeTable> rope_tables_;  // one for all blocks with the same rotations
  std::vector<std::vector<ModelLayer>> chunks_;
  std::vector<std::unique_ptr<AnyLayer>> layers_;  // of all chunks
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::deque<Recompute<Block>> recomputed_;
  std::unique_ptr<LmHead> head_;
};

}  // namespace weft
