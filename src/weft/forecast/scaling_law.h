// The loss that a model of so many parameters has after so many tokens, by published laws or one that is fitted to
// runs; and how large a step's batch may be before more of it helps no further.
//   N  parameters of the model, all of them    D  tokens it has learned from, in batches that are small
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "weft/models/model_spec.h"

namespace weft {

// L = e + a / N^alpha + b / D^beta, nats a token.                                            Hoffmann et al. 2022, eq.
// 2
struct ScalingLaw {
  double e = 0, a = 0, alpha = 0, b = 0, beta = 0;
  double loss(double parameters, double tokens) const;
  // The tokens after which a model of that size has this loss; infinity where no number is enough.
  double tokens_to(double loss, double parameters) const;
};
std::string to_string(const ScalingLaw& law);

// The likeliest law, and others that its evidence allows: how far they lie apart is the uncertainty.
struct LossLaw {
  std::string source;  // whose it is, and of what the others are
  ScalingLaw best = {};
  std::vector<ScalingLaw> others = {};
};
struct LawRange {
  double low = 0, high = 0;
};
// From the 10th to the 90th percentile of what the laws say, the likeliest among them; all of fewer than ten.
LawRange range_of(const LossLaw& law, const std::function<double(const ScalingLaw&)>& says);

// Besiroglu et al. 2024, table 1 (the data of Hoffmann et al. fitted again); beside it the law of Hoffmann et al. 2022,
// D.3, as their sources have it before rounding. Of dense models on web text, in nats of its tokenizer.
LossLaw published_law();

// Tokens of a step at which twice the smallest number of steps leads to this loss, with twice the fewest tokens.
//                                                                                 Kaplan et al. 2020, eq. 5.3, table 6
double critical_batch_tokens(double loss);
// What batches of so many tokens need to learn as much as small ones do from `tokens`.      McCandlish et al.
// 2018, 2.11
double tokens_in_batches(double tokens, double batch_tokens, double loss);
double tokens_of_small_batches(double tokens, double batch_tokens, double loss);  // the other way round

// All parameters of a model, those of experts that a token does not choose too.
double parameters_of(const ModelSpec& model);

}  // namespace weft
