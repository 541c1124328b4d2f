// RUN/tokenizer: the tokenizer that a run's checkpoints get in place of what the model's folder holds.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

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
