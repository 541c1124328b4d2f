// Low-rank adapters: matrices that learn beside frozen ones.      Hu et al. 2021, "LoRA"
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/sharding/param.h"

namespace weft {

// W x becomes W x + scale B (A x), A [rank, in] and B [out, rank], for each target.
struct AdapterSpec {
  struct Target {
    std::string weight;  // the model's matrix: "blocks.0.attn.qkv.weight"
    Run rows;            // of it, which share an A; whole parts of that weight (ParamSpec::parts)
    std::string module;  // as files call it: "model.layers.0.self_attn.q_proj"
    bool operator==(const Target&) const = default;
  };
  int64_t rank = 8;
  double scale = 1;                  // alpha / rank; or alpha / sqrt(rank)    Kalajdzievski 2023, "rsLoRA"
  double dropout = 0;                // in training, of the x that A is multiplied with
  std::vector<Target> targets = {};  // those of a weight in the order of its rows
  bool operator==(const AdapterSpec&) const = default;

  std::vector<Target> of(const std::string& weight) const {
    std::vector<Target> these;
    for (const Target& t : targets)
      if (t.weight == weight) these.push_back(t);
    return these;
  }
};

}  // namespace weft
