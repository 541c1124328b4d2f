// The ranks of `weft eval`: the same for the loss of text and for tasks.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "weft/apps/commands.h"
#include "weft/apps/forward_ranks.h"
#include "weft/recipe/recipe.h"
#include "weft/train/evaluate.h"

namespace weft {

using Tell = std::function<void(const std::string& line)>;

// The checkpoint or folder that is measured, and the recipe that it was trained by.
struct Measured {
  std::filesystem::path folder;
  std::optional<Recipe> trained;
  HfConfig config;
  ForwardShape shape;
  const Recipe::Parallel& layout;
  Tell tell;  // lines for the user, from the first rank
};

// What the ranks do with a model.
struct EvalWork {
  std::function<void(const ProcessMesh& mesh, const Evaluator::Spec& spec)> run;
  // What a rank takes beside the Evaluator, never at the same time; empty: nothing.
  std::function<int64_t(const Machine& machine, const ProcessMesh& dry_mesh)> other_bytes = {};
  bool finds_likeliest = false;  // of the Evaluator
};

// Looks at the model, then calls `prepare`, which reads and judges what is measured, then starts the ranks: no device
// is touched before. Returns an exit status. Throws ConfigError, FileError.
int run_eval_ranks(const EvalOptions& options, const std::function<EvalWork(const Measured&)>& prepare);

// The tokenizer of texts for the model, by its name.
std::string tokenizer_of_texts(const EvalOptions& options, const Measured& measured);

// `weft eval --tasks` and `weft eval --compare`.
int run_eval_tasks(const EvalOptions& options);
int run_eval_compare(const EvalOptions& options);

}  // namespace weft
