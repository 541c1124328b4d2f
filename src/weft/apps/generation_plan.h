// The memory that `weft generate` needs, as its ranks need it.
#pragma once
#include <string>
#include <vector>

#include "weft/train/text_generator.h"

namespace weft {

class GenerationPlan {
 public:
  void add(int rank, const TextGenerator::Needs& needs);
  int64_t total_bytes() const;  // of all ranks
  int64_t cache_bytes() const;
  int64_t pages() const;
  // In MiB: a line for the ranks that need the same, those that need most first; then one for all of several.
  std::string to_string() const;

 private:
  struct Alike {
    int first;  // rank
    int64_t count;
    TextGenerator::Needs needs;
  };
  std::vector<Alike> classes_;
};

// How long prompts are, for a plan without any: "2048", or "4x2048" for four of them. Throws ConfigError.
std::vector<int64_t> parse_prompt_tokens(const std::vector<std::string>& words);

}  // namespace weft
