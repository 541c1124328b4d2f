#include "weft/apps/judged_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/measure.h"
#include "weft/base/error.h"
#include "weft/models/gguf_config.h"
#include "weft/models/gguf_export.h"
#include "weft/train/evaluate.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The window of `weft eval`, or the context of a GGUF file where that is shorter: beyond it the file is another model.
int64_t window_to_measure(const ExportOptions& o, const fs::path& model, const ModelSpec& spec) {
  const std::optional<Recipe> trained = recipe_of_checkpoint(model);
  const int64_t usual = trained ? trained->train.seq_length : 0, context = o.gguf.empty() ? 0 : gguf_context(spec);
  const int64_t window = usual > 0 ? usual : default_window(spec);
  return context > 0 ? std::min(window, context) : window;
}

}  // namespace

JudgedLoss::JudgedLoss(const ExportOptions& o, const fs::path& model, const ModelSpec& spec,
                       const std::string& tokenizer)
    : o_(o),
      tokenizer_(tokenizer == "none" ? tokenizer_of_model(model, recipe_of_checkpoint(model), "auto").name : tokenizer),
      window_(window_to_measure(o, model, spec)),
      before_(loss_of(model)) {}

double JudgedLoss::loss_of(const fs::path& model) const {
  EvalOptions eval;
  eval.model = model.string();
  eval.data = o_.data;
  eval.seq_length = window_;
  eval.threads = o_.threads;
  eval.tokenizer = tokenizer_;
  double loss = 0;
  measure(eval, [&](const EvalRecord& r, int64_t) { loss = r.loss; });
  return loss;
}

void JudgedLoss::judge(const fs::path& written, std::string_view option, std::string_view advice) const {
  const double after = loss_of(written), rise = after - before_;
  std::cout << fmt::format("loss {:.6f} before, {:.6f} after ({:+.6f}); perplexity {:.4f} before, {:.4f} after\n",
                           before_, after, rise, std::exp(before_), std::exp(after));
  if (o_.max_loss && !(rise <= *o_.max_loss))
    throw ConfigError(
        fmt::format("{}: the loss rises by {:.6f}, more than --max-loss {}: nothing was written; {}, or a larger "
                    "--max-loss",
                    option, rise, *o_.max_loss, advice));
}

}  // namespace weft
