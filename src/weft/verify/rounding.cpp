#include "weft/verify/rounding.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/backend_around.h"

namespace weft {
namespace {

// A sum of independent roundings is farther from its mean with a probability of less than 2 exp(-8^2 / 2): none of the
// 1e7 numbers that are compared, but for one comparison in a million.                     Higham & Mary 2019, sec. 2
constexpr double kDeviations = 8;
constexpr double kF32Roundoff = 0x1p-24;
constexpr double kOpsOfBlock = 13;  // one after the other, forward: as many backward
constexpr double kOpsBeside = 8;    // of embedding, head and loss, forward and backward

int bits_of(const std::string& precision) { return -std::ilogb(unit_roundoff(precision)); }

class Rounded final : public UniformAround<Rounded> {
 public:
  Rounded(Backend& inner, int bits) : UniformAround<Rounded>(inner), splitter_(std::ldexp(1.0, 53 - bits) + 1) {}
  template <class Op>
  void apply(const Op& op) {
    inner_.run(op);
    if (path_.text().empty()) return;  // sums over micro-batches and updates are in f32 in any precision
    inner_.wait_all();
    for (const Field& f : op.fields())
      if (f.role != Role::in && *f.tensor && f.tensor->dtype == DType::f64) round(*f.tensor);
  }

 private:
  // To the nearest of so many bits.                                            Dekker 1971
  void round(const Tensor& t) const {
    for (int64_t i = 0; i < t.rows(); ++i) {
      double* row = t.as<double>() + i * t.row_stride;
      for (int64_t j = 0; j < t.cols(); ++j) {
        const double large = splitter_ * row[j];
        if (std::isfinite(large)) row[j] = large - (large - row[j]);
      }
    }
  }
  const double splitter_;
};

}  // namespace

double unit_roundoff(const std::string& precision) {
  return precision == "bf16" ? 0x1p-8 : precision == "fp16" ? 0x1p-11 : kF32Roundoff;
}

RoundingBound::RoundingBound(const Recipe& recipe, const ModelSpec& m) {
  const auto seq = double(recipe.train.seq_length), tokens = seq * double(recipe.train.global_batch_size);
  const auto width = double(m.width), heads = double(m.result_width());
  // Terms of the sums on a path: norms, products with q/k/v, out, up and down; scores, softmax, values; those of the
  // latents and of what is made of them.
  const double latents = m.latent ? 2 * double(m.latent->q_rank + m.latent->kv_rank) : 0;
  const double of_block = 4 * width + heads + latents + double(m.ffn_width) + double(m.head_dim) + 2 * seq;
  const double layers = double(m.num_layers);
  const double additions = 2 * layers * of_block + 2 * (width + double(m.vocab_size)) + tokens;
  const double results = (2 * kOpsOfBlock * layers + kOpsBeside) * std::pow(unit_roundoff(recipe.train.precision), 2);
  const double all = results + additions * kF32Roundoff * kF32Roundoff;
  gradient_ = kDeviations * std::sqrt(all);
  beside_results_ = std::sqrt(all / results);
}

double RoundingBound::of(int64_t step, Quantity quantity) const {
  return gradient_ * double(step + 1) * (quantity == Quantity::states ? 2 : 1);
}

DecorateBackend rounded_to(const std::string& precision) {
  return [bits = bits_of(precision)](Backend& inner, const ProcessMesh&) -> std::unique_ptr<Backend> {
    return std::make_unique<Rounded>(inner, bits);
  };
}

}  // namespace weft
