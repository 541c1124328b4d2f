// What a model says on a machine, without training: to compare machines.
#pragma once
#include <filesystem>
#include <vector>

#include "weft/train/evaluate.h"
#include "weft/train/text_generator.h"

namespace weft::testing {

struct ForwardResults {
  double loss;                 // of the first windows of the tokens
  std::vector<double> logits;  // after a prompt and one token that looks back at it
};

inline ForwardResults forward_results(const std::filesystem::path& model, const std::filesystem::path& tokens,
                                      const Machine& machine, const Precision& precision = kF32) {
  Evaluator evaluator(model, {.machine = machine, .precision = precision, .seq_length = 16, .micro_batch_size = 2});
  DataSpec text;
  text.paths = {tokens.string()};
  text.seq_length = 16;
  text.vocab_size = evaluator.model().vocab_size;
  TextGenerator generator(model, {.machine = machine, .precision = precision, .texts = {{.prompt = 3, .all = 8}}});
  const std::vector<int32_t> prompt{1, 2, 3}, next{4};
  generator.feed(prompt);
  const auto last = generator.feed(next);
  return {evaluator.evaluate(*open_eval_windows(text), 3).loss, {last.begin(), last.end()}};
}

}  // namespace weft::testing
