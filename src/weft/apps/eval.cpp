#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/base/error.h"
#include "weft/models/hf_weights.h"
#include "weft/pipeline/file_texts.h"
#include "weft/train/data_files.h"
#include "weft/train/evaluate.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

std::string tokenizer_of_texts(const EvalOptions& o, const std::filesystem::path& folder,
                               const std::optional<Recipe>& trained) {
  const ModelTokenizer tokenizer = tokenizer_of_model(folder, trained, o.tokenizer);
  if (!tokenizer.note.empty()) std::cerr << "note: " << tokenizer.note << "\n";
  return tokenizer.name;
}

// Datasets are of ids already: whether they are those of this model.
void judge_datasets(const EvalOptions& o, const std::filesystem::path& folder, const std::optional<Recipe>& trained,
                    const DataSpec& data) {
  Datasets opened;
  const std::vector<DatasetTokenizer> datasets = dataset_tokenizers(data.paths, opened);
  if (datasets.empty()) return;
  require_vocabulary(datasets, data.vocab_size);
  try {
    for (const std::string& line : other_tokenizers(datasets, tokenizer_of_model(folder, trained, o.tokenizer)))
      std::cerr << "warning: " << line << "\n";
  } catch (const ConfigError&) {  // the model's is not known
  }
}

}  // namespace

int run_eval(const EvalOptions& o) {
  const auto folder = model_folder_of(o.model, [](const std::string& line) { std::cerr << line << "\n"; });
  const std::optional<Recipe> trained = recipe_of_checkpoint(folder);
  const int64_t seq_length = trained && o.seq_length == 0 ? trained->train.seq_length : o.seq_length;
  const Machine machine = machine_for(o);
  Evaluator evaluator(folder, {.machine = machine,
                               .precision = precision_of(o),
                               .seq_length = seq_length,
                               .micro_batch_size = o.micro_batch_size});
  DataSpec data;
  DataFiles files = validation_files_of(o.data);
  data.paths = std::move(files.paths);
  data.files_of_source = std::move(files.files_of_source);
  data.dtype = o.dtype;
  data.loss_mask = o.loss_mask;
  data.text_key = trained && o.text_key.empty() ? trained->data.text_key : o.text_key;
  if (data.text_key.empty()) data.text_key = "text";
  data.more = more_document_files();
  if (any_is_text(data.paths)) data.tokenizer = tokenizer_of_texts(o, folder, trained);
  data.model_folder = folder.string();
  data.vocab_size = evaluator.model().vocab_size;
  data.seq_length = evaluator.seq_length();
  data.part = DataSpec::Part::valid;
  judge_datasets(o, folder, trained, data);
  const auto windows = open_eval_windows(data);
  const EvalRecord r = evaluator.evaluate(*windows, o.max_batches);
  if (r.tokens == 0) throw ConfigError("no target of this data counts: is the loss mask all zeros?");
  if (!std::isfinite(r.loss))
    throw NumericsError(
        fmt::format("{}: the loss of this model is {}: are its weights finite?", folder.string(), r.loss));
  if (o.json) {
    std::cout << nlohmann::json{{"loss", r.loss},
                                {"perplexity", r.perplexity},
                                {"tokens", r.tokens},
                                {"seq_length", data.seq_length}}
                     .dump()
              << "\n";
  } else {
    std::cout << fmt::format("loss {:.6f}   perplexity {:.4f}   {} tokens in windows of {}\n", r.loss, r.perplexity,
                             r.tokens, data.seq_length);
  }
  return kExitOk;
}

}  // namespace weft
