// Texts that a run writes now and then, to be looked at (train.sample_prompts).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"
#include "weft/tasks/questions.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/text_feeder.h"

namespace weft {

class RunSamples {
 public:
  // Without train.sample_interval there are none. Throws ConfigError where a prompt leaves no room, or the tokenizer
  // cannot be read.
  RunSamples(const Recipe& recipe, const ModelSpec& model);
  bool empty() const { return prompts_.empty(); }
  const std::vector<std::string>& prompts() const { return prompts_; }
  const std::vector<std::string>& notes() const { return notes_; }
  // What follows each prompt, the likeliest tokens: the same on every rank. None where it was stopped. Collective.
  std::optional<std::vector<std::string>> write(TextFeeder& model, int64_t texts_at_once,
                                                const std::function<bool()>& stopped) const;

 private:
  std::vector<std::string> prompts_, notes_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Asked asked_ = {};
};

// That all of a run's can be written, before it begins: notes to tell. Throws as RunSamples.
std::vector<std::string> judge_samples(const Recipe& recipe);

}  // namespace weft
