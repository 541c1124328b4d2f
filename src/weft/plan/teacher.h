// The frozen model that a student learns from: its config, whether it fits, and how it lies on the student's ranks.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weft/models/hf_config.h"
#include "weft/recipe/recipe.h"
#include "weft/step/step_spec.h"

namespace weft {

// Reads the config of objective.teacher, without dropout and what else serves training alone. Throws ConfigError if it
// is no model's folder, is an adapter or a reward model, or has another tokenizer than the student; FileError.
std::shared_ptr<const HfConfig> read_teacher(const Recipe& recipe);

// Throws ConfigError where the student cannot learn from it: another vocabulary, a layout that cannot cut it, sequences
// that are too long for it.
void check_teacher(const Recipe& recipe, const ModelSpec& student, const HfConfig& teacher);

// How many logits of a token objective.teacher_logits has. Throws FileError; ConfigError where they are of another
// vocabulary or length of samples than the student's, or of another temperature than the recipe's.
int64_t read_stored_top(const Recipe& recipe, const ModelSpec& student);

// Throws ConfigError where the teacher's folder holds a tokenizer with none of the `fingerprints` of `what`, which
// begins a clause of the message: "texts are read as bytes". Reads the teacher's tokenizer; nothing where it has none,
// or where the recipe names no teacher but its stored logits.
void require_teacher_tokenizer(const Recipe& recipe, const std::vector<std::string>& fingerprints,
                               const std::string& what);

// A recipe with objective.top_k as its teacher runs alone, forward, on its own axes and all ranks.
Recipe recipe_of_teacher_apart(const Recipe& recipe);

Distillation teacher_loss_of(const Recipe& recipe);
// Cut as the student is, into as many stages, of blocks of its own; how the data ranks share its weights, the step's
// mesh says. With objective.top_k, cut as its own axes say.
TeacherSpec teacher_spec_of(const Recipe& recipe, const ModelSpec& teacher, const StepSpec& student);

}  // namespace weft
