// A law of loss fitted to runs, with its uncertainty.
#pragma once
#include <vector>

#include "weft/forecast/run_report.h"
#include "weft/forecast/scaling_law.h"

namespace weft {

// What a run came to at its end.
struct LawPoint {
  std::string run;
  double parameters = 0, tokens = 0, batch_tokens = 0;
  double loss = 0;  // of its last evaluation, else the mean of its last twentieth of steps
  bool experts = false;
};
// Throws ConfigError where a law of loss says nothing of such a run: weights that did not begin as random ones,
// adapters, another objective than cross-entropy, no loss.
LawPoint law_point(const RecordedRun& run);

// Least squares of relative errors, none of e, a and b below 0; beside it 200 laws of the same runs with errors drawn
// from those that the fit leaves, always the same ones. With six runs, three sizes of models and three numbers of
// tokens, alpha and beta are fitted too; else they are those of the published law. Throws ConfigError where the runs
// cannot tell the numbers apart, with what would be enough.
LossLaw fit_law(const std::vector<LawPoint>& points);

}  // namespace weft
