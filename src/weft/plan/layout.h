// From a recipe to the placements of its layout, for a model.
#pragma once
#include "weft/models/model_spec.h"
#include "weft/plan/step_spec.h"
#include "weft/recipe/recipe.h"

namespace weft {

Precision precision_of(const Recipe& recipe);
MeshSizes mesh_sizes_of(const Recipe& recipe);
GradientOrder gradient_order_of(const Recipe& recipe);
LayerPlan layer_plan_of(const Recipe& recipe, const ModelSpec& model);

// Throws ConfigError where this model cannot be cut so: each setting by name, with the reason and the nearest that
// works.
void check_layout(const Recipe& recipe, const ModelSpec& model);

}  // namespace weft
