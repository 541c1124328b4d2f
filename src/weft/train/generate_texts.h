// Texts that a model goes on with, by all ranks of a layout.
#pragma once
#include <functional>
#include <vector>

#include "weft/train/text_generator.h"

namespace weft {

using Tokens = std::vector<int32_t>;

enum class TextEnds { no, before_token, with_token };

struct GenerateRequest {
  const std::vector<Tokens>& prompts;  // of all ranks
  const Sampling& how;
  int64_t max_tokens = 0;  // to add to each
  // Whether a text ends at its next token. Asked on every rank that shares the text; empty: no text does.
  std::function<TextEnds(int64_t prompt, int32_t token)> ends = {};
  // Receives how long the prompts took until the first tokens were chosen, and the tokens that followed; and how many
  // tokens of this rank's prompts were fed.
  struct Times {
    double prompts_s = 0, tokens_s = 0;
    int64_t fed = 0;
  };
  Times* times = nullptr;
  // Hears of each token of this rank's prompts as soon as it is chosen.
  std::function<void(int64_t prompt, int32_t token)> said = {};
  // The texts stay, for later prompts that begin with them (TextGenerator::unfed).
  bool stay = false;
  uint64_t first_choice = 0;  // how many choices such a text has had before
  // By which the choices of a text differ from those of others, below 2^32; empty: the number of its prompt.
  std::function<uint64_t(int64_t prompt)> number = {};
};
// The prompts that fall to a rank of dp.
inline Run prompts_of(int64_t num_prompts, RankOf dp) { return share_of(num_prompts, dp); }
// What comes behind each prompt, all prompts, on every rank: at most so much that the generator can take prompt and
// text. The generator is for this rank's. Collective. Blocks.
std::vector<Tokens> generate_texts(TextFeeder& generator, const GenerateRequest& request);

}  // namespace weft
