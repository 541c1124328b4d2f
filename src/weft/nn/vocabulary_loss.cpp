#include "weft/nn/vocabulary_loss.h"

namespace weft {

void VocabularyLoss::run(Pass& p, const Chunk& c) const {
  if (c.lesson.logits) return learn_of_all(p, c);
  if (c.lesson.top.ids) return learn_of_top(p, c);
  if (!is_cut()) {
    p.be.run(CrossEntropy{.logits = c.logits,
                          .targets = c.targets,
                          .weights = c.weights,
                          .nll = c.nll,
                          .dlogits = c.dlogits,
                          .scale = c.scale});
    if (c.parts) p.be.run(CrossEntropyPart{.logits = c.logits, .targets = c.targets, .parts = c.parts});
    return;
  }
  Scope temporaries(*p.scratch);
  Tensor part = p.stat(p.scratch, {c.logits.rows(), 3}, c.logits.place.on_tp(Spmd::Shard0));
  p.be.run(CrossEntropyPart{.logits = c.logits, .targets = c.targets, .parts = part, .first = first()});
  const Tensor all = joined(p, part);
  const int64_t tokens = c.logits.rows();
  for (int64_t r = 0; c.parts && r < all.rows() / tokens; ++r)
    p.be.run(Copy{.from = all.slice_rows(r * tokens, tokens), .to = c.parts.slice_cols(3 * r, 3).placed(all.place)});
  p.be.run(CrossEntropyJoin{.parts = all,
                            .logits = c.logits,
                            .targets = c.targets,
                            .weights = c.weights,
                            .nll = c.nll,
                            .dlogits = c.dlogits,
                            .scale = c.scale,
                            .first = first()});
}

// `part` and `join` say what of the teacher there is; the rest is filled in here.
template <class Part, class Join>
void VocabularyLoss::learn(Pass& p, const Chunk& c, Part part, Join join) const {
  Scope temporaries(*p.scratch);
  part.logits = c.logits;
  part.targets = c.targets;
  part.parts = p.stat(p.scratch, {c.logits.rows(), Part::kNumbers}, part_place(c.logits));
  part.loss = c.lesson.loss;
  part.first = first();
  p.be.run(part);
  join.parts = joined(p, part.parts);
  join.logits = c.logits;
  join.targets = c.targets;
  join.weights = c.weights;
  join.nll = c.nll;
  join.divergence = c.lesson.divergence;
  join.dlogits = c.dlogits;
  join.loss = c.lesson.loss;
  join.scale = c.scale;
  join.first = first();
  p.be.run(join);
}

void VocabularyLoss::learn_of_all(Pass& p, const Chunk& c) const {
  DistillPart part;
  DistillJoin join;
  part.teacher = join.teacher = c.lesson.logits;
  learn(p, c, part, join);
}

void VocabularyLoss::learn_of_top(Pass& p, const Chunk& c) const {
  DistillTopPart part;
  DistillTopJoin join;
  part.ids = join.ids = c.lesson.top.ids;
  part.top = join.top = c.lesson.top.logits;
  part.lse = join.lse = c.lesson.top.lse;
  learn(p, c, part, join);
}

}  // namespace weft
