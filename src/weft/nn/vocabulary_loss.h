// Cross-entropy of logits, whether a rank has all classes or a part of them.
//   c tokens   v classes here
#pragma once
#include "weft/nn/pass.h"
#include "weft/sharding/boundary.h"
#include "weft/sharding/param.h"

namespace weft {

// Logits are never gathered: of a vocabulary that is cut on tp, ranks exchange three numbers a token (Shoeybi et al.
// 2019, section 3), beside a teacher seven.
class VocabularyLoss {
 public:
  // Each row of `table` [V, d] scores one class.
  explicit VocabularyLoss(const Param& table) : table_(&table), join_(Axis::tp, Spmd::Shard0, Spmd::Replicate) {}

  // What a teacher makes of the same tokens: its logits, or the largest of them; neither: there is none.
  struct Lesson {
    Tensor logits = {};      // [c, v] stat
    TopLogits top = {};      // [c, k], [c]
    Tensor divergence = {};  // [c] stat  written
    Distillation loss = {};
  };
  struct Chunk {
    Tensor logits;            // [c, v] stat
    Tensor targets, weights;  // [c]
    Tensor nll;               // [c] stat  written
    Tensor dlogits = {};      // [c, v]    written with the gradient of scale * loss; none: not computed
    double scale = 1;
    Tensor parts = {};   // [c, 3 r] stat, r the parts of the classes: written with CrossEntropyPart's numbers, if there
    Lesson lesson = {};  // then dlogits are of both losses, as the lesson's says
  };
  // Blocks while ranks exchange.
  void run(Pass& p, const Chunk& chunk) const;
  bool is_cut() const { return table_->spec().place.tp() == Spmd::Shard0; }

 private:
  template <class Part, class Join>
  void learn(Pass& p, const Chunk& chunk, Part part, Join join) const;
  void learn_of_all(Pass& p, const Chunk& chunk) const;
  void learn_of_top(Pass& p, const Chunk& chunk) const;
  // The number of the first class here; how parts of a loss are held, whose rows are the logits'.
  int64_t first() const { return is_cut() ? table_->parts()[0].rows.first : 0; }
  Placement part_place(const Tensor& logits) const {
    return is_cut() ? logits.place.on_tp(Spmd::Shard0) : logits.place;
  }
  Tensor joined(Pass& p, Tensor part) const { return is_cut() ? join_.forward(p.mesh, part, *p.scratch) : part; }
  const Param* table_;
  Boundary join_;
};

}  // namespace weft
