#include "weft/apps/eval_ranks.h"

#include <algorithm>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/base/error.h"
#include "weft/plan/layout.h"
#include "weft/plan/memory_plan.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

// Context-parallel ranks cut windows into equal runs.
void require_equal_runs(int64_t window, int64_t cp) {
  const int64_t runs = 2 * cp;
  if (cp == 1 || window % runs == 0) return;
  const int64_t below = window / runs * runs, nearest = below > 0 && window - below <= cp ? below : below + runs;
  throw ConfigError(fmt::format(
      "parallel.cp = {} cannot run: windows of {} tokens are no multiple of 2 x {}; the nearest that works: "
      "--seq-length {}",
      cp, window, cp, nearest));
}

ForwardShape shape_of(const EvalOptions& o, const std::optional<Recipe>& trained, const ModelSpec& model) {
  int64_t given = o.seq_length;
  if (trained && given == 0)  // the longest of its phases
    for (const PhaseSpan& span : phase_spans(*trained)) given = std::max(given, span.recipe.train.seq_length);
  return {.precision = precision_of(o),
          .seq_length = given > 0 ? given : default_window(model),
          .size = o.micro_batch_size};
}

const ForwardCommand kEval{.name = "eval",
                           .keys = {"parallel.dp", "parallel.tp", "parallel.sequence_parallel", "parallel.pp",
                                    "parallel.pipeline_layout", "parallel.cp", "parallel.cp_comm_type",
                                    "parallel.cp_a2a_size", "parallel.ep", "parallel.order", "run.ranks"}};

}  // namespace

std::string tokenizer_of_texts(const EvalOptions& o, const Measured& m) {
  const ModelTokenizer tokenizer = tokenizer_of_model(m.folder, m.trained, o.tokenizer);
  if (!tokenizer.note.empty()) m.tell("note: " + tokenizer.note);
  return tokenizer.name;
}

int run_eval_ranks(const EvalOptions& o, const std::function<EvalWork(const Measured&)>& prepare) {
  const Recipe recipe = forward_recipe(kEval, o, o.settings);
  return run_forward_ranks(recipe, "eval", [&](const RankProcess& process) {
    const Tell tell = [&](const std::string& line) {
      if (process.leads()) std::cerr << line << "\n";
    };
    const auto folder = model_folder_of(o.model, tell);
    const HfConfig config = read_hf_config(folder);
    for (const std::string& warning : config.warnings) tell("note: " + warning);
    require_vocabulary_head(config.spec, folder.string());
    const std::optional<Recipe> trained = recipe_of_checkpoint(folder);
    const ForwardShape shape = shape_of(o, trained, config.spec);
    require_equal_runs(shape.seq_length, recipe.parallel.cp);
    check_forward_layout(recipe.parallel, config.spec, shape);
    const EvalWork work = prepare({folder, trained, config, shape, recipe.parallel, tell});
    const Machine machine = machine_for(recipe, int(process.here.size()));
    require_memory("to evaluate", recipe, machine, process, [&](const std::vector<int>& ranks) {
      RanksNeed need{.advice =
                         "a smaller --micro-batch-size or --seq-length takes less, and so does a rank where "
                         "parallel.tp or parallel.pp cut the model"};
      for (const int rank : ranks) {
        StepSpec step = forward_step(recipe.parallel, config.spec, shape, rank);
        step.finds_likeliest = work.finds_likeliest;
        const int64_t bytes = measure_forward(config.spec, step, *machine.workspace_model).total_bytes();
        const ProcessMesh dry = dry_mesh(mesh_sizes_of(recipe), rank);
        need.bytes += std::max(bytes, work.other_bytes ? work.other_bytes(machine, dry) : 0);
      }
      return need;
    });
    process.run(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
      const Machine of_rank = machine.of_rank(mesh.world->rank());
      work.run(mesh, {.machine = of_rank,
                      .precision = shape.precision,
                      .seq_length = shape.seq_length,
                      .micro_batch_size = shape.size,
                      .layout = recipe.parallel,
                      .mesh = mesh,
                      .finds_likeliest = work.finds_likeliest});
    });
    return kExitOk;
  });
}

}  // namespace weft
