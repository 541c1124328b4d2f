#include "weft/nn/vocabulary_loss.h"

namespace weft {

void VocabularyLoss::run(Pass& p, const Chunk& c) const {
  if (c.lesson.logits) return learn(p, c);
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
  const int64_t first = table_->pieces()[0].rows.first;
  Tensor part = p.stat(p.scratch, {c.logits.rows(), 3}, c.logits.place.on_tp(Spmd::Shard0));
  p.be.run(CrossEntropyPart{.logits = c.logits, .targets = c.targets, .parts = part, .first = first});
  p.be.run(CrossEntropyJoin{.parts = join_.forward(p.mesh, part, *p.scratch),
                            .logits = c.logits,
                            .targets = c.targets,
                            .weights = c.weights,
                            .nll = c.nll,
                            .dlogits = c.dlogits,
                            .scale = c.scale,
                            .first = first});
}

void VocabularyLoss::learn(Pass& p, const Chunk& c) const {
  Scope temporaries(*p.scratch);
  const int64_t first = is_cut() ? table_->pieces()[0].rows.first : 0;
  const Placement place = is_cut() ? c.logits.place.on_tp(Spmd::Shard0) : c.logits.place;
  const Tensor part = p.stat(p.scratch, {c.logits.rows(), DistillPart::kNumbers}, place);
  p.be.run(DistillPart{.logits = c.logits,
                       .teacher = c.lesson.logits,
                       .targets = c.targets,
                       .parts = part,
                       .loss = c.lesson.loss,
                       .first = first});
  p.be.run(DistillJoin{.parts = is_cut() ? join_.forward(p.mesh, part, *p.scratch) : part,
                       .logits = c.logits,
                       .teacher = c.lesson.logits,
                       .targets = c.targets,
                       .weights = c.weights,
                       .nll = c.nll,
                       .divergence = c.lesson.divergence,
                       .dlogits = c.dlogits,
                       .loss = c.lesson.loss,
                       .scale = c.scale,
                       .first = first});
}

}  // namespace weft
