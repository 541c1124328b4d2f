// Low-rank adapters: matrices that learn beside frozen ones.      Hu et al. 2021, "LoRA"; Liu et al. 2024, "DoRA"
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/sharding/param.h"

namespace weft {

// W x becomes V x, V = W + scale B A, A [rank, in] and B [out, rank], for each target; with magnitudes m [out], each
// row i of V is then scaled to a length of m[i].
struct AdapterSpec {
  struct Target {
    std::string weight;  // the model's matrix: "blocks.0.attn.qkv.weight"
    Run rows;            // of it, which share an A; whole parts of that weight (ParamSpec::parts)
    std::string module;  // as files call it: "model.layers.0.self_attn.q_proj"
    bool of_expert = false;
    bool operator==(const Target&) const = default;
  };
  int64_t rank = 8;
  double scale = 1;                            // alpha / rank; or alpha / sqrt(rank)    Kalajdzievski 2023, "rsLoRA"
  double dropout = 0;                          // in training, of the x that A is multiplied with
  bool magnitudes = false;                     // DoRA
  WeightCodes base_codes = WeightCodes::none;  // how matrices of blocks are kept: in codes it is QLoRA
  bool trains_score = false;                   // the score of a reward model, or PPO's values, learn in full beside it
  // Those of a weight in the order of its rows; those of experts are the same matrices of all that a block has.
  std::vector<Target> targets = {};
  bool operator==(const AdapterSpec&) const = default;

  bool has_experts() const {
    return std::any_of(targets.begin(), targets.end(), [](const Target& t) { return t.of_expert; });
  }
  std::vector<Target> of(const std::string& weight) const {
    std::vector<Target> these;
    for (const Target& t : targets)
      if (t.weight == weight) these.push_back(t);
    return these;
  }
};

}  // namespace weft
