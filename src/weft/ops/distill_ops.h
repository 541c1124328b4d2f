// The losses of a student beside its teacher. Included by ops.h.
//   t tokens   v classes here   k classes of which a token's teacher says something
#pragma once
#include "weft/ops/ops.h"

namespace weft {

// What a student's loss is beside its teacher: alpha T^2 KL + (1 - alpha) cross-entropy, T the temperature, KL the
// divergence of softmax(logits / T) and softmax(teacher / T).                                    Hinton et al. 2015
struct Distillation {
  double temperature = 1, alpha = 0.5;
  bool reverse = false;  // KL(student || teacher), else KL(teacher || student)
  double loss(double divergence, double cross_entropy) const {
    return alpha * temperature * temperature * divergence + (1 - alpha) * cross_entropy;
  }
  bool operator==(const Distillation&) const = default;
};
// The loss of a student, like cross-entropy in two ops, whether a rank has all classes or a part of them. First, of the
// classes here, for each token, with m = max(logits[i]) and n = max(teacher[i]), each taken out before exponentials:
// parts[i] = (m, sum of exp(logits - m), logits[targets[i] - first] or 0 where that class is elsewhere,
//             sum of exp((logits - m) / T), n, sum of exp((teacher - n) / T), sum of w d),
// w the exponential at T of the distribution that is averaged over, the teacher's or, reverse, the student's, and d by
// how much the exponent of that is above the other's.
// logits, teacher [t, v] stat, parts [t, 7] stat.
struct DistillPart {
  static constexpr std::string_view kName = "distill_part";
  static constexpr int64_t kNumbers = 7;
  Tensor logits, teacher, targets, parts;
  Distillation loss = {};
  int64_t first = 0;
  auto fields() const {
    return std::array{Field{"logits", &logits, Role::in}, Field{"teacher", &teacher, Role::in},
                      Field{"targets", &targets, Role::in}, Field{"parts", &parts, Role::out}};
  }
  bool operator==(const DistillPart&) const = default;
};
// Then, from the parts of all ranks, parts [ranks t, 7] rank by rank: nll, the weighted cross-entropy; divergence, the
// weighted KL; and of the classes here dlogits, scale times the gradient of the weighted loss of both. Where weights[i]
// is 0 all are 0. nll, divergence [t] stat; dlogits [t, v] compute, may be logits.
struct DistillJoin {
  static constexpr std::string_view kName = "distill_join";
  Tensor parts, logits, teacher, targets, weights, nll, divergence, dlogits;
  Distillation loss = {};
  double scale = 1;
  int64_t first = 0;
  auto fields() const {
    return std::array{Field{"parts", &parts, Role::in},
                      Field{"logits", &logits, Role::in},
                      Field{"teacher", &teacher, Role::in},
                      Field{"targets", &targets, Role::in},
                      Field{"weights", &weights, Role::in},
                      Field{"nll", &nll, Role::out},
                      Field{"divergence", &divergence, Role::out},
                      Field{"dlogits", &dlogits, Role::out}};
  }
  bool operator==(const DistillJoin&) const = default;
};

// The same where of a teacher's logits the largest k of each token are known, and lse, the log of the sum of
// exp(logit / T) over all of them: so are their probabilities t, and the mass that the others share. KL(teacher ||
// student) is then that of k + 1 classes, the others being one of them:
//   sum over those k of t log(t / q), + rest log(rest / q_rest),  rest = 1 - sum of t,  q_rest = 1 - sum of q.
// It is 0 where the student has the teacher's probabilities, and at most the KL of all classes, which it is at k = all.
// Probabilities of the k alone, scaled to a sum of 1, would teach the student to be surer than its teacher is.
//                                                                  Anshumann et al. 2025
// ids [t, k] i32 of whole rows of classes, ascending, each once; top [t, k] stat their logits; lse [t] stat.
// First, of the classes here, for each token, with m = max(logits[i]):
// parts[i] = (m, sum of exp(logits - m), logits[targets[i] - first] or 0 where that class is elsewhere,
//             sum of exp((logits - m) / T), the same over the classes that are not among ids[i],
//             sum of t, sum of t (log t - (logits - m) / T), both over the ids[i] that are here).
// logits [t, v] stat, parts [t, 7] stat. loss.reverse must be false: the mass of the others does not say how likely one
// is.
struct DistillTopPart {
  static constexpr std::string_view kName = "distill_top_part";
  static constexpr int64_t kNumbers = 7;
  Tensor logits, ids, top, lse, targets, parts;
  Distillation loss = {};
  int64_t first = 0;
  auto fields() const {
    return std::array{Field{"logits", &logits, Role::in},   Field{"ids", &ids, Role::in},
                      Field{"top", &top, Role::in},         Field{"lse", &lse, Role::in},
                      Field{"targets", &targets, Role::in}, Field{"parts", &parts, Role::out}};
  }
  bool operator==(const DistillTopPart&) const = default;
};
// Then as DistillJoin does, from the parts of all ranks, parts [ranks t, 7] rank by rank.
struct DistillTopJoin {
  static constexpr std::string_view kName = "distill_top_join";
  Tensor parts, logits, ids, top, lse, targets, weights, nll, divergence, dlogits;
  Distillation loss = {};
  double scale = 1;
  int64_t first = 0;
  auto fields() const {
    return std::array{Field{"parts", &parts, Role::in},
                      Field{"logits", &logits, Role::in},
                      Field{"ids", &ids, Role::in},
                      Field{"top", &top, Role::in},
                      Field{"lse", &lse, Role::in},
                      Field{"targets", &targets, Role::in},
                      Field{"weights", &weights, Role::in},
                      Field{"nll", &nll, Role::out},
                      Field{"divergence", &divergence, Role::out},
                      Field{"dlogits", &dlogits, Role::out}};
  }
  bool operator==(const DistillTopJoin&) const = default;
};

}  // namespace weft
