// Kernels: the loss of a student beside its teacher, over the classes here. A block a token.
#pragma once
#include "weft/ops/cuda/cross_entropy.h"

namespace weft::gpu {

// Distillation in f32.
struct Soft {
  float by, temperature, alpha;  // by: 1 / temperature
  bool reverse;
};
inline Soft soft_of(const Distillation& loss) {
  return {float(1 / loss.temperature), float(loss.temperature), float(loss.alpha), loss.reverse};
}

struct Two {
  float a, b;
};
struct LargerOfBoth {
  WEFT_GPU Two operator()(Two x, Two y) const { return {x.a > y.a ? x.a : y.a, x.b > y.b ? x.b : y.b}; }
};
struct SumOfBoth {
  WEFT_GPU Two operator()(Two x, Two y) const { return {x.a + y.a, x.b + y.b}; }
};

struct DistillPartRow {
  Rows<const float> logits, teacher;
  const int32_t* targets;
  Rows<float> parts;
  Soft loss;
  int64_t first;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index(), at = targets[i] - first, n = logits.cols;
    const float *x = logits[i], *y = teacher[i];
    const Two most = block.fold(n, Two{-INFINITY, -INFINITY}, LargerOfBoth(), [&](int64_t j) {
      return Two{x[j], y[j]};
    });
    const Two sums = block.fold(n, Two{0, 0}, SumOfBoth(), [&](int64_t j) {
      return Two{expf(x[j] - most.a), expf((x[j] - most.a) * loss.by)};
    });
    const Two taught = block.fold(n, Two{0, 0}, SumOfBoth(), [&](int64_t j) {
      const float soft = (x[j] - most.a) * loss.by, of = (y[j] - most.b) * loss.by;
      return Two{expf(of), loss.reverse ? expf(soft) * (soft - of) : expf(of) * (of - soft)};
    });
    block.each(1, [&](int64_t) {
      parts[i][0] = most.a;
      parts[i][1] = sums.a;
      parts[i][2] = at >= 0 && at < n ? x[at] : 0.0f;
      parts[i][3] = sums.b;
      parts[i][4] = most.b;
      parts[i][5] = taught.a;
      parts[i][6] = taught.b;
    });
  }
};

// What the parts of a token come to.
struct JoinedDistillation {
  float most, teacher_most, lse, at_target, log_soft, log_teacher, divergence;
};

// A teacher of which all logits of the classes here are known.
struct WholeTeacher {
  Rows<const float> logits;
  // From the parts of a token: rows first, first + step, ... below end.
  WEFT_GPU JoinedDistillation join(const Rows<const float>& parts, int64_t first, int64_t end, int64_t step,
                                   const Soft& loss) const {
    JoinedDistillation all{-INFINITY, -INFINITY, 0, 0, 0, 0, 0};
    for (int64_t r = first; r < end; r += step) {
      all.most = fmaxf(all.most, parts[r][0]);
      all.teacher_most = fmaxf(all.teacher_most, parts[r][4]);
    }
    float sum = 0, soft = 0, teacher = 0, d = 0;
    for (int64_t r = first; r < end; r += step) {
      const float by = parts[r][0] - all.most, teacher_by = parts[r][4] - all.teacher_most;
      const float of_soft = expf(by * loss.by), of_teacher = expf(teacher_by * loss.by);
      const float apart = (teacher_by - by) * loss.by;  // differences of a part are beside maxima of its own
      sum += parts[r][1] * expf(by);
      all.at_target += parts[r][2];
      soft += parts[r][3] * of_soft;
      teacher += parts[r][5] * of_teacher;
      d += loss.reverse ? of_soft * (parts[r][6] - parts[r][3] * apart)
                        : of_teacher * (parts[r][6] + parts[r][5] * apart);
    }
    all.lse = all.most + logf(sum);
    all.log_soft = logf(soft);
    all.log_teacher = logf(teacher);
    const float ratio = logf(soft / teacher);
    all.divergence = loss.reverse ? d / soft - ratio : d / teacher + ratio;
    return all;
  }
  // The slope of the divergence by the student's logit of class j here, over the temperature; log_q: the log of its
  // probability at that temperature.
  WEFT_GPU float pull(const JoinedDistillation& all, int64_t i, int64_t j, float log_q, const Soft& loss) const {
    const float log_t = (logits[i][j] - all.teacher_most) * loss.by - all.log_teacher;
    return loss.reverse ? expf(log_q) * (log_q - log_t - all.divergence) : expf(log_q) - expf(log_t);
  }
};

// Writes nll, divergence and dlogits of a token. Teacher: WholeTeacher, Top.
template <class T, class Teacher>
struct DistillJoinRow {
  Rows<const float> parts, logits;
  Teacher teacher;
  const int32_t* targets;
  const float* weights;
  float *nll, *divergence;
  Rows<T> dlogits;
  Soft loss;
  float scale;
  int64_t first, num_parts, tokens;  // parts of all ranks, rank by rank
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index(), target = targets[i] - first;
    const float weight = weights[i];
    const auto all = teacher.join(parts, i, num_parts, tokens, loss);
    block.each(1, [&](int64_t) {
      nll[i] = weight != 0 ? weight * (all.lse - all.at_target) : 0.0f;
      divergence[i] = weight != 0 ? weight * all.divergence : 0.0f;
    });
    block.map(
        logits.cols,  // dlogits may be logits
        [&](int64_t j) {
          const float pull = teacher.pull(all, i, j, (logits[i][j] - all.most) * loss.by - all.log_soft, loss);
          const float hard = expf(logits[i][j] - all.lse) - (j == target ? 1.0f : 0.0f);
          return weight != 0 ? scale * weight * (loss.alpha * loss.temperature * pull + (1 - loss.alpha) * hard) : 0.0f;
        },
        [&](int64_t j, float slope) { store(dlogits[i] + j, slope); });
  }
};

}  // namespace weft::gpu
