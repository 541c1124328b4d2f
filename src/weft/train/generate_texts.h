// Texts that a model goes on with, by all ranks of a layout.
#pragma once
#include <functional>
#include <vector>

#include "weft/train/text_generator.h"

namespace weft {

using Tokens = std::vector<int32_t>;

struct GenerateRequest {
  const std::vector<Tokens>& prompts;  // of all ranks
  const Sampling& how;
  int64_t max_tokens = 0;    // to add to each
  int32_t end_of_text = -1;  // -1: there is none
  // Receives how long the prompts took until the first tokens were chosen, and the tokens that followed.
  struct Times {
    double prompts_s = 0, tokens_s = 0;
  };
  Times* times = nullptr;
  // Hears of each token of this rank's prompts as soon as it is chosen.
  std::function<void(int64_t prompt, int32_t token)> said = {};
};
// The prompts that fall to a rank of dp.
inline Run prompts_of(int64_t num_prompts, RankOf dp) { return share_of(num_prompts, dp); }
// What comes behind each prompt, all prompts, on every rank. The generator is for this rank's. Collective. Blocks.
std::vector<Tokens> generate_texts(TextGenerator& generator, const GenerateRequest& request);

}  // namespace weft
