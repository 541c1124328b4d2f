// RUN/tokenizer: the tokenizer that a run's checkpoints get in place of what the model's folder holds.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// What is to be done about the tokenizer of a run.
struct RunTokenizer {
  std::vector<std::string> warnings = {};
  // The tokenizer's path (or "byte") and its fingerprint there. Empty: checkpoints get what the model's folder holds.
  std::string path = {}, fingerprint = {};
  // Chat templates by name that stand in place of those beside it; none: those stay.
  std::map<std::string, std::string> chat_templates = {};
};

// Makes the folder RUN/tokenizer, or removes it. A warning where the files alone would be another tokenizer, and where
// the folder cannot be made anew, but holds this tokenizer already. Throws FileError where it cannot be made, and where
// it has other files. For the first rank, when the run's folder is there.
std::optional<std::string> keep_tokenizer(const RunTokenizer& tokenizer, const std::filesystem::path& run);
// That folder, where it is there; else empty.
std::filesystem::path kept_tokenizer(const std::filesystem::path& run);

}  // namespace weft
