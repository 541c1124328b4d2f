#include <filesystem>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/apps/forward_ranks.h"
#include "weft/apps/progress_lines.h"
#include "weft/base/error.h"
#include "weft/plan/run_plan.h"
#include "weft/records/progress.h"
#include "weft/train/forward_rank.h"
#include "weft/train/run_data.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/store_teacher.h"
#include "weft/train/train_on_ranks.h"

namespace weft {
namespace {

void require_teacher_of_data(const TeacherLogitsOptions& o, const Recipe& r) {
  if (r.train.objective != ObjectiveKind::distill)
    throw ConfigError(
        fmt::format("train.objective = \"{}\" has no teacher; the nearest that works: \"distill\"", r.train.objective));
  if (r.objective.teacher.empty())
    throw ConfigError(
        "objective.teacher is missing: the folder of the model whose logits are to be stored; beside "
        "objective.teacher_logits in the recipe: objective.teacher=FOLDER objective.teacher_logits=\"\"");
  if (r.run.ranks == RanksKind::mpi)
    throw ConfigError(
        "run.ranks = \"mpi\" cannot run: all ranks write one file on this host; the nearest that works: run.ranks = "
        "\"local\"");
  require_replaceable("--out", o.out, o.again);
}

// The layout is the teacher's, who runs alone: the student's may be another, and need not have as many heads or blocks.
Recipe on_one_rank(Recipe r) {
  r.parallel = {};
  return r;
}

}  // namespace

int run_teacher_logits(const TeacherLogitsOptions& o) {
  const Recipe given = first_steps_of(read_recipe(o.recipe, o.overrides));
  require_teacher_of_data(o, given);
  check_supported(given);
  require_run_data(given);
  const RunPlan student = prepare_run(on_one_rank(given), 0);  // refuses a teacher that does not fit the student
  const HfConfig& teacher = *student.config.teacher;
  if (o.top_k > teacher.spec.vocab_size)
    throw ConfigError(
        fmt::format("--top-k {}: the teacher has {} tokens; use at most that", o.top_k, teacher.spec.vocab_size));
  for (const std::string& warning : judge_tokenizer(given, teacher.spec.vocab_size).warnings)
    std::cerr << "warning: " << warning << "\n";
  const Recipe recipe = storing_recipe(given, teacher.spec);
  check_forward_layout(recipe.parallel, teacher.spec,
                       {.precision = precision_of(recipe),
                        .seq_length = recipe.train.seq_length,
                        .size = recipe.train.micro_batch_size});
  const Machine machine = machine_for(recipe);
  require_memory("to store logits", recipe, machine, {}, [&](const std::vector<int>& ranks) {
    RanksNeed need{.advice =
                       "a smaller train.micro_batch_size takes less, and so does a rank where parallel.tp or "
                       "parallel.pp cut the teacher"};
    for (const int rank : ranks)
      need.bytes += measure_storing(recipe, teacher.spec, o.top_k, *machine.workspace_model, rank);
    return need;
  });
  ProgressLines progress("samples");
  run_on_threads(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    store_teacher_logits({.recipe = recipe,
                          .teacher = teacher,
                          .machine = machine.of_rank(mesh.world->rank()),
                          .mesh = mesh,
                          .file = o.out,
                          .top = o.top_k,
                          .progress = [&](int64_t done, int64_t all) { progress(done, all); }});
  });
  std::cerr << fmt::format("{}: {}\n", o.out, format_bytes(double(std::filesystem::file_size(o.out))));
  return kExitOk;
}

}  // namespace weft
