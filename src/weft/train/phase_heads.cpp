#include "weft/train/phase_heads.h"

#include <fmt/ranges.h>

#include "weft/models/hf_names.h"
#include "weft/nn/vocabulary_head.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/first_weights.h"

namespace weft {

std::vector<std::string> begin_other_heads(const Recipe& recipe, const PhaseBefore& before, RankRun& rank,
                                           int num_threads) {
  const ModelSpec& model = rank.plan.model;
  // What it passes over in the folder was told when the run began, or is not read here.
  begin_weights(recipe, model, rank.state.params, rank.backend, num_threads);
  load_what_is_common(before.checkpoint, before.model, rank.state, *rank.plan.optimizer, num_threads);
  rank.state.params.masters_changed(rank.backend);
  std::vector<std::string> notes;
  if (const auto begun = trained_only_in(model, before.model); !begun.empty())
    notes.push_back(fmt::format("begun anew, as in a run of its own with train.objective = \"{}\": {}",
                                recipe.train.objective, fmt::join(begun, ", ")));
  if (const auto dropped = trained_only_in(before.model, model); !dropped.empty())
    notes.push_back(fmt::format("dropped: {}, whose last values are in {} alone, which later saves may remove",
                                fmt::join(dropped, ", "), before.checkpoint.string()));
  return notes;
}

void mark_late_heads(const PhaseSpan& span, ParamStore& params) {
  const auto mark = [&](ModelHead head, std::initializer_list<std::string_view> weights) {
    if (const auto& steps = span.heads_averaged_steps[size_t(head)])
      for (const std::string_view weight : weights) params.begins_late(weight, *steps);
  };
  mark(ModelHead::text, {VocabularyHead::kMatrix});
  mark(ModelHead::score, {"score.weight"});
  mark(ModelHead::values, {"value.weight", "value.bias"});
}

}  // namespace weft
