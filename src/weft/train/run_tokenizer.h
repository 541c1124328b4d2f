// Which tokenizer a run's data was made with, and which one its texts, checkpoints and later evaluations use
// (docs/formats/tokenizers.md).
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/pipeline/provenance.h"
#include "weft/recipe/recipe.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/checkpoint_companions.h"

namespace weft {

// Whether one of these entries of data.train, data.valid or `weft eval` is neither a folder nor a token file.
bool any_is_text(const std::vector<std::string>& entries);

// The tokenizers of the datasets that list these files, in order, each once. Throws FileError if a manifest is broken.
std::vector<DatasetTokenizer> dataset_tokenizers(const std::vector<std::string>& files, Datasets& datasets);

// Throws ConfigError where a dataset may hold ids that the model does not have, as far as its manifest says.
void require_vocabulary(const std::vector<DatasetTokenizer>& datasets, int64_t vocab_size);

// The name to give to open_tokenizer for a run's texts: data.tokenizer; for "auto", if the model's folder holds no
// tokenizer, that of the run's dataset. Throws as training_files_of.
std::string text_tokenizer_of(const Recipe& recipe);

// Reads tokenizers; changes nothing. Throws ConfigError where datasets have more ids than the model; where
// data.tokenizer is "auto" and datasets were made with another tokenizer than the model's folder holds, or than each
// other: of a run that has checkpoints that is a warning; where data.tokenizer cannot be read and there are texts that
// need it. `row_templates`: of rows of texts (RunData); checkpoints get them, too.
using ChatTemplateTexts = std::map<std::string, std::string>;  // by name
RunTokenizer judge_tokenizer(const Recipe& recipe, int64_t vocab_size,
                             const std::optional<ChatTemplateTexts>& row_templates = {});

// The chat templates beside a tokenizer, or in a checkpoint; none where they cannot be read.
ChatTemplateTexts templates_at(const std::filesystem::path& tokenizer);

// Whether the checkpoints of the run get the tokenizer that its text is read with: from RUN/tokenizer, or as what the
// model's folder holds. Not so where data.tokenizer could not be read.
bool is_tokenizer_kept(const Recipe& recipe);

// The tokenizer of text for a model, as open_tokenizer takes it. `given` is asked first; "auto" means the one that a
// checkpoint says it holds; where it says nothing, that of the model's run (`trained` is its recipe), of its folder, or
// of the run's dataset.
struct ModelTokenizer {
  std::string name;
  std::string note;  // empty, or that and why bytes are only a guess
};
// Throws ConfigError where the run's data was made with a tokenizer that cannot be had any more.
ModelTokenizer tokenizer_of_model(const std::filesystem::path& folder, const std::optional<Recipe>& trained,
                                  const std::string& given);

// The tokenizer by which a run reads `what` ("prompts") of the setting `key`; and a note for the user where there is
// none beside the model. Throws as tokenizer_of_model and open_tokenizer.
struct OpenedTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string note;  // or empty
};
OpenedTokenizer reader_of_run(const Recipe& recipe, const ModelSpec& model, const std::string& key,
                              const std::string& what);

// A line for each of the datasets that were made with another tokenizer than this one; none where it is a guess, or
// cannot be read.
std::vector<std::string> other_tokenizers(const std::vector<DatasetTokenizer>& datasets,
                                          const ModelTokenizer& tokenizer);

}  // namespace weft
