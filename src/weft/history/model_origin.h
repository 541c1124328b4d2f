// What a model was made from, and under which licences, as far as its folder and its run say it.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/history/run_facts.h"
#include "weft/recipe/recipe.h"
#include "weft/train/checkpoint_state.h"

namespace weft {

// A training file, or a model that this one began with or learnt from.
struct LicensedPart {
  std::string what;                // "data tokens.bin", "model llama-3-8b"
  std::vector<std::string> names;  // by which a policy may know it: contents, a dataset's version, a folder's name
  std::string licence;             // "cc-by-4.0, mit" of several sources; empty: not known
};

struct ModelOrigin {
  std::filesystem::path folder;             // absolute
  std::optional<Progressed> progress = {};  // none: it is no checkpoint of weft
  std::optional<Recipe> recipe = {};        // likewise
  std::optional<RunFacts> run = {};         // in whose folder it lies; none: in no run's
  std::vector<LicensedPart> parts = {};     // with those of the checkpoints that it began with
};

// `model`: a model's folder or a checkpoint, no run's folder. Of one that is no checkpoint, the only part is the model
// itself, with the licence that its card has. Throws FileError.
ModelOrigin origin_of(const std::filesystem::path& model);

// "license" of the first lines of a folder's README.md, in small letters; empty: there is none, or "unknown".
std::string licence_in_card(const std::filesystem::path& folder);

}  // namespace weft
