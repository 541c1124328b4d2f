// From a recipe to the placements of its layout, for a model.
#pragma once
#include <optional>

#include "weft/models/model_spec.h"
#include "weft/recipe/recipe.h"
#include "weft/schedule/block_layout.h"
#include "weft/step/step_spec.h"

namespace weft {

Precision precision_of(const Recipe& recipe);
MeshSizes mesh_sizes_of(const Recipe& recipe);
// Of a teacher that gives its largest logits alone (objective.top_k); none: the recipe has no such teacher.
std::optional<TeacherAxes> teacher_axes_of(const Recipe& recipe);
// The pipeline's stages and chunks, and the micro-batches that go through it in a step.
Pipeline pipeline_of(const Recipe& recipe);
int64_t num_micro_batches_of(const Recipe& recipe);
GradientOrder gradient_order_of(const Recipe& recipe);
// How many blocks each virtual stage has: as the recipe says, else balanced by modelled cost, the head's included.
BlockLayout block_layout_of(const Recipe& recipe, const ModelSpec& model);
// What a stage has of the model, chunk by chunk.
std::vector<ModelPart> parts_of(const Recipe& recipe, const ModelSpec& model, int stage);
ContextPlan context_plan_of(const Recipe& recipe);
LayerPlan layer_plan_of(const Recipe& recipe, const ModelSpec& model);

// Makes what the layout says of frozen models fit other data ranks than it was written for.
void fit_frozen(Recipe::Parallel& layout);

// The same of a teacher's own axes, which fit_frozen does too.
void fit_teacher(Recipe::Parallel& layout);

// Throws ConfigError where parallel.frozen_ep cannot deal out this frozen model's experts.
void check_frozen_experts(const Recipe& recipe, const ModelSpec& frozen);
// Throws ConfigError where this model cannot be cut so: each setting by name, with the reason and the nearest that
// works.
void check_layout(const Recipe& recipe, const ModelSpec& model);

}  // namespace weft
