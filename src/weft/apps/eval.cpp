#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/commands.h"
#include "weft/apps/eval_ranks.h"
#include "weft/apps/measure.h"
#include "weft/base/error.h"
#include "weft/pipeline/file_texts.h"
#include "weft/train/data_files.h"
#include "weft/train/evaluate.h"
#include "weft/train/run_tokenizer.h"

namespace weft {
namespace {

// Datasets are of ids already: whether they are those of this model.
void judge_datasets(const EvalOptions& o, const Measured& m, const DataSpec& data) {
  Datasets opened;
  const std::vector<DatasetTokenizer> datasets = dataset_tokenizers(data.paths, opened);
  if (datasets.empty()) return;
  require_vocabulary(datasets, data.vocab_size);
  try {
    for (const std::string& line : other_tokenizers(datasets, tokenizer_of_model(m.folder, m.trained, o.tokenizer)))
      m.tell("warning: " + line);
  } catch (const ConfigError&) {  // the model's is not known
  }
}

void require_loss(const EvalRecord& r, const std::filesystem::path& folder) {
  if (r.tokens == 0) throw ConfigError("no target of this data counts: is the loss mask all zeros?");
  if (!std::isfinite(r.loss))
    throw NumericsError(
        fmt::format("{}: the loss of this model is {}: are its weights finite?", folder.string(), r.loss));
}

void say(const EvalOptions& o, const EvalRecord& r, int64_t window) {
  if (o.json) {
    std::cout << nlohmann::json{{"loss", r.loss},
                                {"perplexity", r.perplexity},
                                {"tokens", r.tokens},
                                {"seq_length", window}}
                     .dump()
              << "\n";
  } else {
    std::cout << fmt::format("loss {:.6f}   perplexity {:.4f}   {} tokens in windows of {}\n", r.loss, r.perplexity,
                             r.tokens, window);
  }
}

// The first rank makes the caches of tokenized text, the others find them.
std::unique_ptr<EvalWindows> open_windows(const DataSpec& data, Communicator& world) {
  if (world.rank() != 0) barrier(world);
  auto windows = open_eval_windows(data);
  if (world.rank() == 0) barrier(world);
  return windows;
}

}  // namespace

DataSpec data_to_measure(const EvalOptions& o, const Measured& m) {
  if (o.data.empty()) throw ConfigError("there is nothing to measure: name text, JSONL or token files");
  DataSpec data;
  DataFiles files = validation_files_of(o.data);
  data.paths = std::move(files.paths);
  data.files_of_source = std::move(files.files_of_source);
  data.dtype = o.dtype;
  data.loss_mask = o.loss_mask;
  data.text_key = m.trained && o.text_key.empty() ? m.trained->data.text_key : o.text_key;
  if (data.text_key.empty()) data.text_key = "text";
  data.more = more_document_files();
  if (any_is_text(data.paths)) data.tokenizer = tokenizer_of_texts(o, m);
  data.model_folder = m.folder.string();
  data.vocab_size = m.config.spec.vocab_size;
  data.seq_length = m.shape.seq_length;
  data.part = DataSpec::Part::valid;
  judge_datasets(o, m, data);
  return data;
}

int measure(const EvalOptions& o, const TakeMeasured& take) {
  return run_eval_ranks(o, [&](const Measured& m) {
    const DataSpec data = data_to_measure(o, m);
    return EvalWork{[&o, &take, data, folder = m.folder](const ProcessMesh& mesh, const Evaluator::Spec& spec) {
      Evaluator evaluator(folder, spec);
      const EvalRecord r = evaluator.evaluate(*open_windows(data, *mesh.world), o.max_batches);
      require_loss(r, folder);
      if (mesh.world->rank() == 0) take(r, spec.seq_length);
    }};
  });
}

int run_eval(const EvalOptions& o) {
  if (!o.compare.empty()) return run_eval_compare(o);
  if (o.model.empty()) throw ConfigError("a model is required: its folder, a GGUF file, a checkpoint or a run folder");
  if (!o.tasks.empty()) return run_eval_tasks(o);
  return measure(o, [&](const EvalRecord& r, int64_t window) { say(o, r, window); });
}

}  // namespace weft
