// How many tokens a model has been trained to see at once: beyond that it writes badly.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/models/hf_config.h"
#include "weft/recipe/recipe.h"

namespace weft {

// The context of the checkpoint, or the model's folder, whose config is `config`: what the checkpoint says, else the
// positions that the model was made for. Throws FileError.
int64_t context_of(const std::filesystem::path& folder, const HfConfig& config);
// The context of what a recipe trains: train.seq_length; a model that was trained before keeps at least what it had.
int64_t context_of(const Recipe& recipe, const HfConfig& config);

// The config.json of a checkpoint with weights of this type. Other programs take max_position_embeddings for the length
// that a model may be used at: of a model with rotations that begins at random weights it is the length that it was
// trained at. (Of GPT-2 n_positions is the size of a table, of a pretrained model a promise of its makers': they stay.)
nlohmann::json config_of_checkpoint(const Recipe& recipe, const HfConfig& config, DType dtype);
// The config.json of the adapter in `folder` and its base as one model: with the context that the adapter was trained
// at in max_position_embeddings, where the base has less. (Not where that is the size of a table or scales rotations.)
// Throws FileError.
nlohmann::json config_of_merged(const std::filesystem::path& folder, const HfConfig& config, DType dtype);

}  // namespace weft
