// The files of a checkpoint's Hugging Face folder that are neither weights nor config.json: tokenizer, chat templates,
// settings of generation.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// Copies them into the folder `to`: those of `tokenizer` (a folder that holds nothing else), or where that is empty
// those of the model's folder. Returns the name of the file in `to` that holds the tokenizer; empty: there is none.
// Throws FileError.
std::string copy_companions(const std::filesystem::path& model_folder, const std::filesystem::path& tokenizer,
                            const std::filesystem::path& to);

// What copy_companions returned when this checkpoint was written. None for a folder that is no checkpoint, or one of a
// weft that did not say: the files in it may then be of another tokenizer than the run's. Throws FileError.
std::optional<std::string> tokenizer_in_checkpoint(const std::filesystem::path& folder);

// RUN/tokenizer: the tokenizer that a run's checkpoints get in place of what the model's folder holds.

// How to handle a run's tokenizer.
struct RunTokenizer {
  std::vector<std::string> warnings = {};
  // The tokenizer's path (or "byte") and its fingerprint there. Empty: checkpoints get what the model's folder holds.
  std::string path = {}, fingerprint = {};
  // Chat templates by name that stand in place of those beside it; none: those stay.
  std::map<std::string, std::string> chat_templates = {};
};

// Makes the folder RUN/tokenizer, or removes it. Returns a warning if the files alone would be another tokenizer, or if
// the folder cannot be rewritten but already holds this tokenizer. Throws FileError if it cannot be made or has other
// files. For the first rank, once the run's folder exists.
std::optional<std::string> keep_tokenizer(const RunTokenizer& tokenizer, const std::filesystem::path& run);
// That folder, where it is there; else empty.
std::filesystem::path kept_tokenizer(const std::filesystem::path& run);

}  // namespace weft
