#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/forward_ranks.h"
#include "weft/apps/measure.h"
#include "weft/base/error.h"
#include "weft/pipeline/file_texts.h"
#include "weft/plan/layout.h"
#include "weft/plan/memory_plan.h"
#include "weft/train/data_files.h"
#include "weft/train/evaluate.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

using Tell = std::function<void(const std::string& line)>;

// The checkpoint or folder that is measured, and the recipe that it was trained by.
struct Measured {
  std::filesystem::path folder;
  std::optional<Recipe> trained;
  const ModelSpec model;
};

std::string tokenizer_of_texts(const EvalOptions& o, const Measured& m, const Tell& tell) {
  const ModelTokenizer tokenizer = tokenizer_of_model(m.folder, m.trained, o.tokenizer);
  if (!tokenizer.note.empty()) tell("note: " + tokenizer.note);
  return tokenizer.name;
}

// Datasets are of ids already: whether they are those of this model.
void judge_datasets(const EvalOptions& o, const Measured& m, const DataSpec& data, const Tell& tell) {
  Datasets opened;
  const std::vector<DatasetTokenizer> datasets = dataset_tokenizers(data.paths, opened);
  if (datasets.empty()) return;
  require_vocabulary(datasets, data.vocab_size);
  try {
    for (const std::string& line : other_tokenizers(datasets, tokenizer_of_model(m.folder, m.trained, o.tokenizer)))
      tell("warning: " + line);
  } catch (const ConfigError&) {  // the model's is not known
  }
}

DataSpec data_of(const EvalOptions& o, const Measured& m, int64_t window, const Tell& tell) {
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
  if (any_is_text(data.paths)) data.tokenizer = tokenizer_of_texts(o, m, tell);
  data.model_folder = m.folder.string();
  data.vocab_size = m.model.vocab_size;
  data.seq_length = window;
  data.part = DataSpec::Part::valid;
  judge_datasets(o, m, data, tell);
  return data;
}

// Context-parallel ranks cut windows into equal runs.
void require_equal_runs(int64_t window, int64_t cp) {
  const int64_t runs = 2 * cp;
  if (cp == 1 || window % runs == 0) return;
  const int64_t below = window / runs * runs, nearest = below > 0 && window - below <= cp ? below : below + runs;
  throw ConfigError(fmt::format(
      "parallel.cp = {} cannot run: windows of {} tokens are no multiple of 2 x {}; the nearest that works: "
      "--seq-length {}",
      cp, window, cp, nearest));
}

ForwardShape shape_of(const EvalOptions& o, const Measured& m) {
  const int64_t given = m.trained && o.seq_length == 0 ? m.trained->train.seq_length : o.seq_length;
  return {.precision = precision_of(o),
          .seq_length = given > 0 ? given : default_window(m.model),
          .size = o.micro_batch_size};
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

const ForwardCommand kEval{
    .name = "eval",
    .keys = {"parallel.dp", "parallel.tp", "parallel.sequence_parallel", "parallel.pp", "parallel.pipeline_layout",
             "parallel.cp", "parallel.cp_comm_type", "parallel.ep", "parallel.order", "run.ranks"}};

}  // namespace

int measure(const EvalOptions& o, const TakeMeasured& take) {
  const Recipe recipe = forward_recipe(kEval, o, o.settings);
  return run_forward_ranks(recipe, "eval", [&](const RankProcess& process) {
    const Tell tell = [&](const std::string& line) {
      if (process.leads()) std::cerr << line << "\n";
    };
    const auto folder = model_folder_of(o.model, tell);
    const HfConfig config = read_hf_config(folder);
    for (const std::string& warning : config.warnings) tell("note: " + warning);
    const Measured m{folder, recipe_of_checkpoint(folder), config.spec};
    require_vocabulary_head(m.model, folder.string());
    const ForwardShape shape = shape_of(o, m);
    require_equal_runs(shape.seq_length, recipe.parallel.cp);
    check_forward_layout(recipe.parallel, m.model, shape);
    const DataSpec data = data_of(o, m, shape.seq_length, tell);
    const Machine machine = machine_for(recipe, int(process.here.size()));
    require_memory("to evaluate", recipe, machine, process, [&](const std::vector<int>& ranks) {
      RanksNeed need{.advice =
                         "a smaller --micro-batch-size or --seq-length takes less, and so does a rank where "
                         "parallel.tp or parallel.pp cut the model"};
      for (const int rank : ranks)
        need.bytes +=
            measure_forward(m.model, forward_step(recipe.parallel, m.model, shape, rank), *machine.workspace_model)
                .total_bytes();
      return need;
    });
    process.run(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
      Evaluator evaluator(folder, {.machine = machine.of_rank(mesh.world->rank()),
                                   .precision = shape.precision,
                                   .seq_length = shape.seq_length,
                                   .micro_batch_size = shape.size,
                                   .layout = recipe.parallel,
                                   .mesh = mesh});
      const EvalRecord r = evaluator.evaluate(*open_windows(data, *mesh.world), o.max_batches);
      require_loss(r, folder);
      if (mesh.world->rank() == 0) take(r, shape.seq_length);
    });
    return kExitOk;
  });
}

int run_eval(const EvalOptions& o) {
  return measure(o, [&](const EvalRecord& r, int64_t window) { say(o, r, window); });
}

}  // namespace weft
