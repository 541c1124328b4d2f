#include "weft/nn/vocabulary_loss.h"

namespace weft {

void VocabularyLoss::run(Pass& p, const Chunk& c) const {
  if (c.lesson.logits) return learn(p, c);
  if (c.lesson.top.ids) return learn_top(p, c);
  if (!is_cut()) {
    p.be.run(CrossEntropy{.logits = c.logits,
                          .targets = c.targets,
                          .weights = c.weights,
                          .nll = c.nll,
                          .dlogits = c.dlogits,
                          .scale = c.scale});
    return;
  }
  Scope temporaries(*p.scratch);
  Tensor part = p.stat(p.scratch, {c.logits.rows(), 3}, c.logits.place.on_tp(Spmd::Shard0));
  p.be.run(CrossEntropyPart{.logits = c.logits, .targets = c.targets, .parts = part, .first = first()});
  p.be.run(CrossEntropyJoin{.parts = joined(p, part),
                            .logits = c.logits,
                            .targets = c.targets,
                            .weights = c.weights,
                            .nll = c.nll,
                            .dlogits = c.dlogits,
                            .scale = c.scale,
                            .first = first()});
}

void VocabularyLoss::learn(Pass& p, const Chunk& c) const {
  Scope temporaries(*p.scratch);
  const Tensor part = p.stat(p.scratch, {c.logits.rows(), DistillPart::kNumbers}, part_place(c.logits));
  p.be.run(DistillPart{.logits = c.logits,
                       .teacher = c.lesson.logits,
                       .targets = c.targets,
                       .parts = part,
                       .loss = c.lesson.loss,
                       .first = first()});
  p.be.run(DistillJoin{.parts = joined(p, part),
                       .logits = c.logits,
                       .teacher = c.lesson.logits,
                       .targets = c.targets,
                       .weights = c.weights,
                       .nll = c.nll,
                       .divergence = c.lesson.divergence,
                       .dlogits = c.dlogits,
                       .loss = c.lesson.loss,
                       .scale = c.scale,
                       .first = first()});
}

void VocabularyLoss::learn_top(Pass& p, const Chunk& c) const {
  Scope temporaries(*p.scratch);
  const TopLogits& top = c.lesson.top;
  const Tensor part = p.stat(p.scratch, {c.logits.rows(), DistillTopPart::kNumbers}, part_place(c.logits));
  p.be.run(DistillTopPart{.logits = c.logits,
                          .ids = top.ids,
                          .top = top.logits,
                          .lse = top.lse,
                          .targets = c.targets,
                          .parts = part,
                          .loss = c.lesson.loss,
                          .first = first()});
  p.be.run(DistillTopJoin{.parts = joined(p, part),
                          .logits = c.logits,
                          .ids = top.ids,
                          .top = top.logits,
                          .lse = top.lse,
                          .targets = c.targets,
                          .weights = c.weights,
                          .nll = c.nll,
                          .divergence = c.lesson.divergence,
                          .dlogits = c.dlogits,
                          .loss = c.lesson.loss,
                          .scale = c.scale,
                          .first = first()});
}

}  // namespace weft
