#include "weft/train/run_samples.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/plan/run_plan.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/write_answers.h"

namespace weft {
namespace {

constexpr int64_t kSampledTokens = 64;

}  // namespace

RunSamples::RunSamples(const Recipe& r, const ModelSpec& model) {
  if (r.train.sample_interval == 0) return;
  OpenedTokenizer reader = reader_of_run(r, model, "train.sample_prompts", "prompts");
  if (!reader.note.empty()) notes_.push_back(std::move(reader.note));
  prompts_ = r.train.sample_prompts;
  tokenizer_ = std::move(reader.tokenizer);
  int64_t longest = 0;
  for (const std::string& prompt : prompts_) {
    std::vector<int32_t>& ids = asked_.open.prompts.emplace_back();
    tokenizer_->encode(prompt, ids);
    longest = std::max(longest, int64_t(ids.size()));
    if (ids.empty() || int64_t(ids.size()) >= r.train.seq_length)
      throw ConfigError(
          fmt::format("train.sample_prompts: {} has {} tokens: from 1 to {} leave room, as the model sees "
                      "{} at once (train.seq_length)",
                      in_quotes(prompt), ids.size(), r.train.seq_length - 1, r.train.seq_length));
  }
  asked_.most_written = std::min(kSampledTokens, r.train.seq_length - longest);
}

std::vector<std::string> judge_samples(const Recipe& recipe) {
  std::vector<std::string> notes;
  if (recipe.train.sample_interval == 0) return notes;
  for (const PhaseSpan& span : phase_spans(recipe))
    notes = RunSamples(span.recipe, prepare_run(span.recipe, 0).model).notes();
  return notes;
}

std::optional<std::vector<std::string>> RunSamples::write(TextFeeder& model, int64_t texts_at_once,
                                                          const std::function<bool()>& stopped) const {
  return write_answers(model, asked_, {.tokenizer = *tokenizer_, .texts_at_once = texts_at_once, .stopped = stopped});
}

}  // namespace weft
