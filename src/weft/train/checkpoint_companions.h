// The files of a checkpoint's Hugging Face folder that are neither weights nor config.json: tokenizer, chat templates,
// settings of generation.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace weft {

// Copies them into the folder `to`: those of `tokenizer` (a folder that holds nothing else), or where that is empty
// those of the model's folder. Returns the name of the file in `to` that holds the tokenizer; empty: there is none.
// Throws FileError.
std::string copy_companions(const std::filesystem::path& model_folder, const std::filesystem::path& tokenizer,
                            const std::filesystem::path& to);

// What copy_companions returned when this checkpoint was written. None for a folder that is no checkpoint, or one of a
// weft that did not say: the files in it may then be of another tokenizer than the run's. Throws FileError.
std::optional<std::string> tokenizer_in_checkpoint(const std::filesystem::path& folder);

}  // namespace weft
