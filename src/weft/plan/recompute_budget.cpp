#include "weft/plan/recompute_budget.h"

#include <algorithm>

#include "weft/base/byte_size.h"
#include "weft/plan/dry_step.h"
#include "weft/plan/rank_classes.h"
#include "weft/plan/recompute_stage.h"

namespace weft {
namespace {

// Of a micro-batch's way through the whole model and back, on one rank.
struct ModelFlops {
  double embedding = 0, head = 0;
  BlockFlops blocks;
};

// [layer] as the model has them: the embedding, blocks, the head.
std::vector<double> flops_of_layers(const RunPlan& run, BlockRecompute again, const WorkspaceModel& workspace) {
  StepSpec step = on_one_rank(run.step);
  step.model.recompute.assign(size_t(run.model.num_layers), again);
  DryStep dry(run.model, step, *run.optimizer, workspace);
  std::vector<double> flops(size_t(run.model.num_layers) + 2);
  double before = 0;
  const Action* action = nullptr;
  size_t layer = 0;
  dry.run({.begins =
               [&](const Action* of, const Instruction& i) {
                 action = of;
                 layer = size_t(i.at);
                 before = dry.backend().flops();
               },
           .ends =
               [&] {
                 if (action != nullptr && layer < flops.size()) flops[layer] += dry.backend().flops() - before;
               }});
  return flops;
}

ModelFlops flops_of_model(const RunPlan& run, const WorkspaceModel& workspace) {
  ModelFlops flops{.blocks = BlockFlops(size_t(run.model.num_layers))};
  for (size_t again = 0; again < kBlockRecomputes; ++again) {
    const std::vector<double> layers = flops_of_layers(run, BlockRecompute(again), workspace);
    if (again == 0) flops.embedding = layers.front();
    if (again == 0) flops.head = layers.back();
    for (size_t l = 0; l < flops.blocks.size(); ++l) flops.blocks[l][again] = layers[l + 1];
  }
  return flops;
}

// One rank of each kind of a stage.
std::vector<StepSpec> steps_of_stage(const Recipe& recipe, const RunPlan& run, int stage) {
  const MeshSizes mesh = mesh_sizes_of(recipe);
  const auto step_at = [&](int place) {
    StepSpec step = step_of(recipe, run, rank_at_place(mesh, stage, place));
    step.model.recompute.clear();
    return step;
  };
  std::vector<StepSpec> steps;
  for (const std::vector<int>& tp : tp_classes(run))
    for (const Places& places : update_classes(recipe, run, step_at(tp[0]), tp)) steps.push_back(step_at(places[0]));
  return steps;
}

// The recipe with what is found once, not for each stage; its steps keep all until they are told otherwise.
Recipe recipe_to_choose_for(Recipe recipe, const RunPlan& run) {
  recipe.parallel.recompute = RecomputeKind::budget;
  recipe.parallel.pipeline_layout = block_layout_of(recipe, run.model);
  return recipe;
}

// Adds up what the blocks of a stage do.
void summarize(const std::vector<ModelPart>& parts, const ModelFlops& flops, const BlockLevels& levels,
               RecomputeChoice::Stage& s) {
  for (const ModelPart& part : parts) {
    s.flops += (part.embedding ? flops.embedding : 0) + (part.head ? flops.head : 0);
    for (int64_t l = part.blocks.first; l < part.blocks.end(); ++l) {
      const auto level = size_t(levels[size_t(l)]);
      const auto& of_block = flops.blocks[size_t(l)];
      ++s.counts[level];
      s.flops += of_block[0];
      s.again += of_block[level] - of_block[0];
    }
  }
}

// Whether the ranks of two stages run alike, kind by kind: with shares of their own they keep other micro-batches.
bool all_run_alike(const ModelSpec& model, const std::vector<StepSpec>& a, const std::vector<StepSpec>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const StepSpec& x, const StepSpec& y) { return runs_alike(model, x, y); });
}

// A stage that runs as the one before it does the same.
void repeat_stage(const StepSpec& before, const StepSpec& now, RecomputeChoice& choice) {
  const Run from = before.model.parts[0].blocks, to = now.model.parts[0].blocks;
  for (int64_t i = 0; i < to.count; ++i) choice.blocks[size_t(to.first + i)] = choice.blocks[size_t(from.first + i)];
  choice.stages.back().bytes = choice.stages[choice.stages.size() - 2].bytes;
}

// Another value of a setting that leaves what is learnt as it is, but for rounding.
struct SmallerRecipe {
  std::string key, of_key;  // "train.micro_batch_size", "a smaller train.micro_batch_size"
  int64_t value;
  Recipe recipe;
};

// The nearest of each setting first. A run that has begun keeps its micro-batches.
std::vector<SmallerRecipe> smaller_recipes(const Recipe& recipe) {
  std::vector<SmallerRecipe> all;
  for (int64_t batch = has_begun(recipe) ? 0 : recipe.train.micro_batch_size - 1; batch > 0; --batch) {
    if (recipe.train.micro_batch_size % batch != 0) continue;
    all.push_back({"train.micro_batch_size", "a smaller train.micro_batch_size", batch, recipe});
    all.back().recipe.train.micro_batch_size = batch;
  }
  for (int64_t stage = recipe.parallel.zero_stage + 1; stage <= 3 && recipe.parallel.dp * recipe.parallel.cp > 1;
       ++stage) {
    all.push_back({"parallel.zero_stage", "a higher parallel.zero_stage", stage, recipe});
    all.back().recipe.parallel.zero_stage = stage;
  }
  return all;
}

// "; train.micro_batch_size = 2 would make that 12.00GiB": the first of each setting that fits the budget. If none
// does, which were tried.
std::string helping_settings(const Recipe& recipe, const RunPlan& run, int64_t budget,
                             const WorkspaceModel& workspace) {
  std::string text, said;
  std::vector<std::string> tried;
  for (const SmallerRecipe& less : smaller_recipes(recipe)) {
    if (less.key == said) continue;
    try {
      check_layout(less.recipe, run.model);
      const int64_t bytes = recompute_range(less.recipe, run, workspace).least;
      if (tried.empty() || tried.back() != less.of_key) tried.push_back(less.of_key);
      if (bytes > budget) continue;
      text += fmt::format("; {} = {} would make that {}", less.key, less.value, byte_size_text(bytes));
      said = less.key;
    } catch (const ConfigError&) {  // the model cannot be cut so
      continue;
    }
  }
  if (!text.empty() || tried.empty()) return text;
  if (tried.size() == 1) return fmt::format(", and {} alone is not enough", tried[0]);
  return fmt::format(", and neither {} alone is enough", fmt::join(tried, " nor "));
}

[[noreturn]] void refuse_budget(const Recipe& recipe, const RunPlan& run, int stage, int64_t least,
                                const WorkspaceModel& workspace) {
  const int64_t budget = byte_size_of(recipe.parallel.memory_budget).value();
  throw ConfigError(fmt::format(
      "parallel.memory_budget = \"{}\" cannot run: {} needs {} at least, whatever is computed again{}{}; the nearest "
      "that works: parallel.memory_budget = \"{}\"",
      recipe.parallel.memory_budget, recipe.parallel.pp > 1 ? fmt::format("a rank of stage {}", stage) : "a rank",
      byte_size_text(least), run.model.has_mtp() ? " (the block of multi-token prediction always keeps all)" : "",
      helping_settings(recipe, run, budget, workspace), byte_size_text(least)));
}

}  // namespace

void settle_recompute(const Recipe& given, RunPlan& run, const WorkspaceModel& workspace) {
  if (given.parallel.recompute != RecomputeKind::budget) return;
  const std::optional<int64_t> budget = byte_size_of(given.parallel.memory_budget);
  WEFT_CHECK(budget, "parallel.memory_budget = \"{}\" was not checked", given.parallel.memory_budget);
  const Recipe recipe = recipe_to_choose_for(given, run);
  const ModelFlops flops = flops_of_model(run, workspace);
  RecomputeChoice choice{
      .budget = *budget, .blocks = BlockLevels(size_t(run.model.num_layers), BlockRecompute::none), .stages = {}};
  std::vector<StepSpec> before;
  int fullest = 0;
  for (int stage = 0; stage < int(recipe.parallel.pp); ++stage) {
    std::vector<StepSpec> steps = steps_of_stage(recipe, run, stage);
    RecomputeChoice::Stage& now = choice.stages.emplace_back();
    if (all_run_alike(run.model, before, steps)) {
      repeat_stage(before[0], steps[0], choice);
    } else {
      RecomputeStage of(run, steps, workspace);
      now.bytes = of.choose(*budget, flops.blocks, choice.blocks);
    }
    summarize(steps[0].model.parts, flops, choice.blocks, now);
    before = std::move(steps);
    if (now.bytes > choice.stages[size_t(fullest)].bytes) fullest = stage;
  }
  if (const int64_t most = choice.stages[size_t(fullest)].bytes; most > *budget)
    refuse_budget(given, run, fullest, most, workspace);
  run.step.model.recompute = choice.blocks;
  run.recompute = std::move(choice);
}

RecomputeRange recompute_range(const Recipe& given, const RunPlan& run, const WorkspaceModel& workspace) {
  const Recipe recipe = recipe_to_choose_for(given, run);
  RecomputeRange range;
  std::vector<StepSpec> before;
  for (int stage = 0; stage < int(recipe.parallel.pp); ++stage) {
    std::vector<StepSpec> steps = steps_of_stage(recipe, run, stage);
    if (!all_run_alike(run.model, before, steps)) {
      RecomputeStage of(run, steps, workspace);
      BlockLevels levels(size_t(run.model.num_layers), BlockRecompute::none);
      range.most = std::max(range.most, of.keeping_all());
      range.least = std::max(range.least, of.least(levels));
    }
    before = std::move(steps);
  }
  return range;
}

}  // namespace weft
