// The answers that a model writes to questions of tasks.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/tasks/questions.h"
#include "weft/train/generate_texts.h"

namespace weft {

// Prompts of a set, so many at once: the samples of a question follow each other. `first` is the number of the first.
void for_each_batch_of_prompts(const Asked& asked, size_t batch, size_t samples,
                               const std::function<void(size_t first, const std::vector<Tokens>& prompts)>& take);

// Answers are numbered by question and sample, so that the first samples are the same however many there are.
inline constexpr int64_t kMostAnswersOfQuestion = 1024;

struct AnswersRequest {
  const Tokenizer& tokenizer;
  int64_t texts_at_once = 1;                // on each rank of dp
  Sampling how = {.temperature = 0};        // the likeliest tokens; or drawn, as question and sample say alone
  size_t samples = 1;                       // of each question, at most kMostAnswersOfQuestion
  std::function<bool()> stopped = nullptr;  // asked between batches, the same answer on every rank; none: never
};
// What a model writes to each question of a set, up to the first of its task's stops, sample by sample: the same on
// every rank and on every layout, but for rounding. None where it was stopped. Collective. Blocks.
std::optional<std::vector<std::string>> write_answers(TextFeeder& model, const Asked& asked,
                                                      const AnswersRequest& request);

}  // namespace weft
