// Stores a teacher's largest logits at each token of a recipe's training data (docs/formats/teacher_logits.md).
#pragma once
#include <filesystem>
#include <functional>

#include "weft/comm/process_mesh.h"
#include "weft/data/teacher_logits.h"
#include "weft/models/hf_config.h"
#include "weft/recipe/recipe.h"
#include "weft/train/machine.h"

namespace weft {

struct StoreTeacherRequest {
  const Recipe& recipe;  // storing_recipe's
  const HfConfig& teacher;
  const Machine& machine;  // of this rank
  const ProcessMesh& mesh;
  std::filesystem::path file;
  int64_t top;                                                   // logits of each token: from 1 to the vocabulary
  std::function<void(int64_t done, int64_t all)> progress = {};  // of samples; called by the first rank, often
};

// A recipe with objective.teacher as the teacher alone runs: forward, cut over dp, tp, pp, cp and, with experts, ep.
Recipe storing_recipe(const Recipe& recipe, const ModelSpec& teacher);

// What a rank of that recipe takes, in bytes. Reads no weights.
int64_t measure_storing(const Recipe& recipe, const ModelSpec& teacher, int64_t top, const WorkspaceModel& workspace,
                        int rank);

// Reads every sample of data.train once, in the order of the files, a micro-batch at a time on each data parallel rank,
// and writes what the teacher makes of it; the file takes its name when it is whole. Throws FileError,
// also where it has no room on the disk; NumericsError where a logit is not finite. Collective. Blocks.
void store_teacher_logits(const StoreTeacherRequest& request);

}  // namespace weft
