#include "weft/train/phase_heads.h"

#include <fmt/ranges.h>

#include "weft/models/hf_config.h"
#include "weft/models/hf_names.h"
#include "weft/nn/vocabulary_head.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/first_weights.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Whether the run trains a matrix that is the head of text and nothing else.
bool trains_text_head_alone(const Recipe& recipe) {
  if (recipe.adapter.kind != AdapterKind::none) return false;
  try {
    return !read_hf_config(recipe.model.path).spec.tied_head;
  } catch (const Error&) {  // somebody has moved the model away: rather a checkpoint too many
    return true;
  }
}

}  // namespace

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
    notes.push_back(fmt::format("dropped: {}, whose last values are in {} alone, which the run keeps",
                                fmt::join(dropped, ", "), before.checkpoint.string()));
  return notes;
}

std::vector<fs::path> last_of_dropped_heads(const Recipe& recipe) {
  const std::vector<PhaseSpan> spans = phase_spans(recipe);
  std::vector<fs::path> all;
  for (size_t i = 1; i < spans.size(); ++i) {
    const auto drops = [&](ModelHead head) {
      return has_head(spans[i - 1].recipe.train.objective, head) && !has_head(spans[i].recipe.train.objective, head);
    };
    const fs::path last = fs::path(recipe.run.dir) / "checkpoints" / fmt::format("step-{}", spans[i].first_step);
    if (drops(ModelHead::score) || drops(ModelHead::values) ||
        (drops(ModelHead::text) && trains_text_head_alone(recipe)))
      all.push_back(last);
  }
  return all;
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
