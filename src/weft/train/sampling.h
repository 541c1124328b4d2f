// Choosing tokens.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "weft/comm/process_mesh.h"

namespace weft {

struct Sampling {
  double temperature = 1;  // 0: the likeliest token
  int64_t top_k = 0;       // among the k likeliest; 0: all
  double top_p = 1;        // among the likeliest that together hold this probability
  uint64_t seed = 0;
};

// The token chosen from logits [V]; `index` numbers the choices of a text, and texts: 2^32 apart.
int32_t sample_token(std::span<const double> logits, const Sampling& how, uint64_t index);

// The tokens for `n` texts that one rank chooses for all ranks of tp, cp and pp that share these: `choose` is called on
// that rank alone, in the stage that has the head, and so the logits. Blocks.
std::vector<int32_t> choose_once(const ProcessMesh& mesh, bool has_head, size_t n,
                                 const std::function<int32_t(size_t)>& choose);

}  // namespace weft
