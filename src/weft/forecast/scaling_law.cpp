#include "weft/forecast/scaling_law.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/error.h"
#include "weft/models/hf_names.h"

namespace weft {
namespace {

constexpr double kCriticalTokens = 2e8, kCriticalExponent = 0.21;  // B* and alpha_B
constexpr size_t kFewLaws = 10;

}  // namespace

double ScalingLaw::loss(double parameters, double tokens) const {
  return e + a / std::pow(parameters, alpha) + b / std::pow(tokens, beta);
}

double ScalingLaw::tokens_to(double loss, double parameters) const {
  const double left = loss - e - a / std::pow(parameters, alpha);
  return left > 0 ? std::pow(b / left, 1 / beta) : std::numeric_limits<double>::infinity();
}

std::string to_string(const ScalingLaw& l) {
  return fmt::format("L = {:.4g} + {:.4g} / N^{:.4g} + {:.4g} / D^{:.4g}", l.e, l.a, l.alpha, l.b, l.beta);
}

LawRange range_of(const LossLaw& law, const std::function<double(const ScalingLaw&)>& says) {
  std::vector<double> all{says(law.best)};
  for (const ScalingLaw& other : law.others) all.push_back(says(other));
  std::sort(all.begin(), all.end());
  if (all.size() < kFewLaws) return {all.front(), all.back()};
  return {all[all.size() / 10], all[all.size() - 1 - all.size() / 10]};
}

LossLaw published_law() {
  return {.source = "Besiroglu et al. 2024; ranges reach to the law of Hoffmann et al. 2022",
          .best = {.e = 1.8172, .a = 482.01, .alpha = 0.3478, .b = 2085.43, .beta = 0.3658},
          .others = {{.e = 1.6934, .a = 406.4, .alpha = 0.3392, .b = 410.7, .beta = 0.2849}}};
}

double critical_batch_tokens(double loss) { return kCriticalTokens / std::pow(loss, 1 / kCriticalExponent); }

double tokens_in_batches(double tokens, double batch_tokens, double loss) {
  return tokens * (1 + batch_tokens / critical_batch_tokens(loss));
}
double tokens_of_small_batches(double tokens, double batch_tokens, double loss) {
  return tokens / (1 + batch_tokens / critical_batch_tokens(loss));
}

double parameters_of(const ModelSpec& model) {
  double sum = 0;
  for (const HfTensor& t : hf_tensors(model)) sum += double(t.rows) * double(t.cols());
  return sum;
}

}  // namespace weft
