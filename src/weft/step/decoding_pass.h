// One forward pass of texts that go on, on one rank, with caches of keys and values.
//   T tokens of the pass   V vocabulary
#pragma once
#include <optional>
#include <vector>

#include "weft/models/transformer.h"
#include "weft/step/batch_staging.h"
#include "weft/step/cache_books.h"
#include "weft/step/stage_links.h"

namespace weft {

// What such a pass runs on.
struct DecodingPass {
  Backend& backend;
  const ProcessMesh& mesh;
  const StepSpec& step;
  const Transformer& model;
  ParamStore& params;  // of the model: units are fetched one by one
  const std::vector<KvCache>& caches;
  std::optional<int64_t> shares_from = {};  // Pass's
  bool reaches_experts = false;             // likewise
  StageLinks* links = nullptr;              // none: only its memory is measured
  BatchStaging* staging = nullptr;          // likewise
};

// The logits [texts, V] after each text that ends, in the last stage; else none. With everything in `scratch`, from
// `mark`, where they lie until the next pass. Blocks. Every rank that shares the texts calls it with rows of the same
// texts; where ranks of dp share weights or experts, all of them call it.
Tensor run_decoding(const DecodingPass& on, const DecodingRows& rows, Arena& scratch, int64_t mark = 0);

// A token of n texts each, which looks back at something that every rank keeps: whoever does in truth. For a dry run.
DecodingRows any_step(size_t n, const std::vector<CachedRun>& seen, RankOf cp);

}  // namespace weft
