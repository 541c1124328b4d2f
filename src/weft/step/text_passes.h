// The passes by which a run writes texts between its steps, with the weights that it trains: on one rank.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/step/decoding_pass.h"

namespace weft {

// The model of a step once more, over the same values: whole on the stream, with nothing kept for backward, and with
// caches for StepSpec::writes texts of at most as many tokens as a sequence has. Weights that ZeRO keeps in shards are
// fetched unit by unit, as in any pass.
//
// Every pass that may come is planned, whatever texts there are: the tokens of a prompt pass in portions of one text,
// whose lengths are powers of two; those that follow pass together, one of each of so many texts as texts_of_pass says.
// Where ranks of cp keep parts of texts, or experts are shared by ranks with other texts, prompts pass token by token
// too.
class TextPasses {
 public:
  // All are borrowed. `weights` are of such a step, and allocated; `memory` holds the caches till the end, and a pass.
  // On real memory every rank of `mesh` makes one.
  struct On {
    ParamStore& weights;
    Backend& backend;
    const ProcessMesh& mesh;
    Arena& memory;
  };
  TextPasses(const ModelSpec& model, const StepSpec& step, const On& on);

  // How many of the tokens that are left of a text the next pass takes.
  int64_t portion_of(int64_t tokens) const;
  // Whether ranks of dp, which have other texts, pass through the model together.
  bool pass_together() const;
  CacheBooks& books() { return books_; }
  // In the books, behind the texts: one whose only token a rank feeds that has nothing else to feed.
  int64_t filler() const { return step_.writes; }
  // As run_decoding. Of a portion of one text, or of a token each of so many texts that texts_of_pass leaves none out.
  Tensor run(const DecodingRows& rows);
  // All that may come, on memory that only counts.
  void run_dry();

 private:
  const StepSpec& step_;
  const On on_;
  ParamStore params_;
  Transformer model_;
  const int64_t pages_;
  std::vector<KvCache> caches_;
  int64_t mark_;  // of the memory, behind the caches
  CacheBooks books_;
  std::optional<StageLinks> links_;      // none of a dry one
  std::optional<BatchStaging> staging_;  // likewise
};

}  // namespace weft
