#include "weft/train/run_reference.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/version.h"
#include "weft/comm/agree.h"
#include "weft/device/tensor_values.h"
#include "weft/models/fingerprint.h"
#include "weft/models/peft.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/records/clock.h"
#include "weft/step/executor.h"
#include "weft/train/first_weights.h"
#include "weft/train/objectives.h"
#include "weft/train/rank_backend.h"
#include "weft/train/run_length.h"
#include "weft/train/trained_context.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The run's step as the reference alone takes it: forward, over one micro-batch at a time.
StepSpec reference_step(const StepSpec& of_run) {
  StepSpec step = of_run;
  step.schedule = {};
  step.evaluates = true;
  step.scores_first = step.scores_base = step.scores_others = step.stored_reference = step.counts_experts = false;
  step.frozen.clear();
  step.num_sums = 0;
  step.order = of_run.frozen_order();
  step.mesh = of_run.mesh.of_frozen();
  return step;
}

// One rank's part of the reference: what a frozen copy of it in the run would be.
class ReferenceRank : public RankBackend {
 public:
  ReferenceRank(const Recipe& recipe, const ModelSpec& spec, const StepSpec& of_run, const Machine& machine,
                const ProcessMesh& on)
      : ReferenceRank(recipe, spec, reference_step(of_run),
                      measure_forward(spec, reference_step(of_run), *machine.workspace_model), machine, on) {}
  ~ReferenceRank() { end(); }

  // Minus the log-probabilities of the targets of a micro-batch here; 0 where a target does not count, and on stages
  // without the head.
  std::vector<double> losses_of(const LoadMicroBatch& load) {
    const ForwardOnly forward{.model = model_,
                              .params = params_,
                              .step = step,
                              .backend = backend,
                              .mesh = mesh,
                              .staging = staging_,
                              .links = &links_,
                              .adapters = adapters_};
    const Tensor nll = forward.score(load, evaluation_).nll;
    std::vector<double> losses(size_t(nll.rows()));
    for_each_value(*memory_, nll, [&](int64_t token, int64_t, double x) { losses[size_t(token)] = x; });
    return losses;
  }

  const StepSpec step;

 private:
  ReferenceRank(const Recipe& recipe, const ModelSpec& spec, StepSpec own, const MemoryPlan& plan,
                const Machine& machine, const ProcessMesh& on)
      : RankBackend(machine, on, plan.workspace),
        step(std::move(own)),
        adapters_(!recipe.adapter.path.empty()),  // else the reference is the base
        memory_(machine.memory),
        arenas_(plan.persistent, machine.memory),
        params_(step.precision, step.order, mesh, WeightUse::frozen),
        model_(params_, spec, step.model),
        links_(model_, step, mesh, nullptr),
        evaluation_("evaluation", plan.evaluation, machine.memory),
        staging_(machine.memory, step.micro_batch_tokens(), mesh.poller()) {
    params_.allocate_frozen(arenas_.params, arenas_.transit);
    model_.allocate_constants(arenas_.constants, step.precision);
    begin_weights(recipe, spec, params_, backend, machine.threads);
  }

  const bool adapters_;
  const std::shared_ptr<Memory> memory_;
  PersistentArenas arenas_;
  ParamStore params_;
  Transformer model_;
  StageLinks links_;
  Arena evaluation_;
  BatchStaging staging_;
};

// Calls f(row of the micro-batch, place in the completion) for each token of sequence i that counts here.
template <class F>
void each_counted(const SequenceCut& cut, int64_t i, int64_t first_target, int64_t tokens, const F& f) {
  int64_t row = i * cut.rows();
  for (const Run& run : cut.runs())
    for (int64_t at = run.first; at < run.end(); ++at, ++row)
      if (at >= first_target && at < first_target + tokens) f(row, at - first_target);
}

int64_t num_texts(const ReferenceTexts& t) {
  const IdRows& rows = t.order.id_rows();
  return t.others > 0 ? t.others : rows.size() * rows.num_completions();
}

int64_t row_of_prompt(const ReferenceTexts& t, int64_t c) {
  return t.others > 0 ? t.order.row_of(c) : c / t.order.id_rows().num_completions();
}

CompletionPlaces places_of(const ReferenceTexts& t) {
  const IdRows& rows = t.order.id_rows();
  if (t.others == 0) return CompletionPlaces(rows);
  std::vector<int64_t> tokens;
  for (int64_t k = 0; k < t.others; ++k) tokens.push_back(int64_t(rows.completion(t.order.row_of_other(k), 0).size()));
  return CompletionPlaces(tokens);
}

void read_text(const ReferenceTexts& t, int64_t c, const SampleRows& to) {
  const int64_t completions = t.order.id_rows().num_completions();
  t.others > 0 ? t.order.read_other(c, to) : t.order.read_row(c / completions, c % completions, to);
}

// Reads all texts in their order, a micro-batch on each data parallel rank in a round.
class ReferenceMaker {
 public:
  ReferenceMaker(ReferenceRank& rank, const ReferenceTexts& texts, int terminal_fd)
      : rank_(rank),
        texts_(texts),
        rows_(texts.order.id_rows()),
        places_(places_of(texts)),
        terminal_fd_(terminal_fd) {}

  void make(const fs::path& file, const ReferenceLogpsSpec& spec) {
    Communicator& world = *rank_.mesh.world;
    std::optional<ReferenceLogpsWriter> writer;
    agree(world, [&] {
      if (world.rank() == 0) writer.emplace(file, spec);
    });
    const int64_t of_round = rank_.step.micro_batch_size * rank_.step.order.ranks;
    for (int64_t first = 0; first < completions(); first += of_round) {
      const std::vector<double> losses = round(first, std::min(first + of_round, completions()));
      agree(world, [&] {
        if (writer) writer->write(losses);
      });
      if (writer) tell(file, double(first + of_round) / double(completions()));
    }
    agree(world, [&] {
      if (writer) writer->commit();
    });
  }

 private:
  int64_t completions() const { return num_texts(texts_); }

  // What all ranks make of completions [first, end), one behind the other.
  std::vector<double> round(int64_t first, int64_t end) {
    const StepSpec& step = rank_.step;
    const int64_t from = places_.first(first), mine = first + step.order.rank * step.micro_batch_size;
    std::vector<double> all(size_t(places_.end(end - 1) - from), 0.0);
    const std::vector<double> losses = rank_.losses_of([&](MicroBatch& b) { load(mine, b); });
    for (int64_t i = 0; i < step.micro_batch_size && mine + i < end && step.has_head(); ++i) {
      const int64_t c = mine + i, row = row_of_prompt(texts_, c);
      each_counted(
          step.sequences(), i, int64_t(rows_.prompt(row).size()) - 1, places_.end(c) - places_.first(c),
          [&](int64_t at, int64_t token) { all[size_t(places_.first(c) - from + token)] = losses[size_t(at)]; });
    }
    const Tensor sums{all.data(), DType::f64, {int64_t(all.size())}};  // each number is one rank's, plus zeros
    rank_.mesh.dense.all->all_reduce(sums).wait();
    rank_.mesh.pp->all_reduce(sums).wait();
    for (const double loss : all)
      if (!std::isfinite(loss))
        throw NumericsError(
            fmt::format("the reference's log-probabilities of {} are not finite between {} and {}: are "
                        "its weights finite?",
                        rows_.file().string(), rows_.place_of(row_of_prompt(texts_, first)),
                        rows_.place_of(row_of_prompt(texts_, end - 1))));
    return all;
  }

  // Beyond the last completion, that one again, for the others' sake.
  void load(int64_t first, MicroBatch& b) {
    spans_.clear();
    WholeSample sample(rank_.step.seq_length);
    for (int64_t i = 0; i < rank_.step.micro_batch_size; ++i) {
      const int64_t c = std::min(first + i, completions() - 1);
      read_text(texts_, c, sample.rows());
      set_sequence(b, i, sample, 0);  // token numbers key dropout, of which there is none here
      add_spans(i, sample.positions, 0, spans_);
    }
    b.spans = spans_;
  }

  void tell(const fs::path& file, double done) {
    constexpr double kEvery = 2;  // seconds
    if (now_s() - told_ < kEvery) return;
    told_ = now_s();
    ::dprintf(terminal_fd_, "the reference's log-probabilities, %s: %.0f %%\n", file.c_str(),
              100 * std::min(1.0, done));
  }

  ReferenceRank& rank_;
  const ReferenceTexts texts_;
  const IdRows& rows_;
  const CompletionPlaces places_;
  const int terminal_fd_;
  double told_ = now_s();
  std::vector<AttentionSpan> spans_;
};

// Names of keys on which a number's last bit may depend, beside those of the reference itself.
constexpr std::string_view kKeysOfNumbers[] = {"train.seq_length",    "train.micro_batch_size",
                                               "train.precision",     "train.numerics",
                                               "run.backend",         "parallel.tp",
                                               "parallel.cp",         "parallel.cp_comm_type",
                                               "parallel.ep",         "parallel.frozen_ep",
                                               "moe.capacity_factor", "parallel.sequence_parallel",
                                               "parallel.cp_a2a_size"};

std::string weights_of(const Recipe& reference) {
  std::string text = reference.model.init == InitChoice::random
                         ? fmt::format("random weights of seed {}", reference.train.seed)
                         : fingerprint_of_weights(reference.model.path);
  if (!reference.adapter.path.empty()) text += " " + fingerprint_of_weights(reference.adapter.path);
  return text;
}

}  // namespace

void require_reference_folders(const Recipe& r) {
  if (!r.objective.precompute_ref_log_probs) return;
  std::vector<std::string> files = r.data.valid;
  const std::string_view key = data_key_of(r.train.objective);
  files.push_back(key == "data.pairs" ? r.data.pairs : key == "data.examples" ? r.data.examples : r.data.rollouts);
  for (const std::string& file : files) {
    const fs::path folder = fs::absolute(file).parent_path();
    if (::access(folder.c_str(), W_OK) != 0)
      throw FileError(fmt::format(
          "objective.precompute_ref_log_probs = true keeps what the reference makes of the rows in a file beside them, "
          "and {} cannot be written: put {} into a folder of yours, or leave the key out",
          folder.string(), file));
  }
}

std::string reference_key(const Recipe& recipe, const RunPlan& plan, const ReferenceTexts& texts) {
  Recipe of = recipe_of_reference(recipe);
  nlohmann::json key{{"weft", kVersion},
                     {"weights", weights_of(of)},
                     {"config", config_of_checkpoint(of, plan.config, plan.step.precision.stat)},
                     {"rows", texts.order.id_rows().fingerprint()}};
  if (texts.others > 0) key["others"] = {texts.order.order_fingerprint(), texts.order.rows_of_step(), texts.others};
  for (const RecipeKey& one : recipe_keys(of)) {
    const bool numbers =
        std::find(std::begin(kKeysOfNumbers), std::end(kKeysOfNumbers), one.name) != std::end(kKeysOfNumbers);
    if (numbers || (one.section() == "adapter" && one.name != "adapter.path")) key[one.name] = value_of(one);
  }
  return to_hex(hash128(key.dump()));
}

RunReferences prepare_references(const Recipe& recipe, const RunData& data, const Machine& machine,
                                 const ProcessMesh& mesh, int terminal_fd) {
  RunReferences references;
  if (!recipe.objective.precompute_ref_log_probs) return references;
  Communicator& world = *mesh.world;
  const RunPlan plan = prepare_run(recipe, world.rank());
  std::optional<ReferenceRank> rank;  // where a file is missing
  const auto open = [&](const ReferenceTexts& texts) {
    CompletionPlaces places = places_of(texts);
    const ReferenceLogpsSpec spec{.key = reference_key(recipe, plan, texts),
                                  .tokens = places.tokens(),
                                  .value_bytes = size_of(plan.step.precision.stat)};
    const fs::path file = reference_logps_path(texts.order.id_rows().file(), spec.key);
    if (!first_text(world, world.rank() == 0 && !is_there(file) ? "missing" : "").empty()) {
      if (!rank) rank.emplace(recipe_of_reference(recipe), plan.model, plan.step, machine, mesh.of_frozen());
      ReferenceMaker(*rank, texts, terminal_fd).make(file, spec);
    }
    return std::make_shared<const ReferenceLogps>(file, spec, std::move(places));
  };
  // Of `batches` batches in their order.
  const auto open_both = [&](const TrainingSamples& samples, int64_t batches) {
    const RowOrder& order = *samples.rows();
    StoredLogps files{.rows = open({order})};
    if (plan.step.scores_others && batches > 0) files.others = open({order, batches * order.rows_of_step()});
    return files;
  };
  references.train = open_both(*data.train, with_known_length(recipe, *data.train).train.train_iters);
  if (data.valid_rows)
    references.valid =
        open_both(*data.valid_rows, data.valid_rows->samples_per_epoch() / recipe.train.global_batch_size);
  return references;
}

ReadReference StoredReference::of_batch(int64_t batch) const {
  return [this, batch](int64_t micro_batch, std::span<double> losses) {
    read(*of_.files.rows, of_.batches.first_of(batch, micro_batch), false, losses);
  };
}

ReadReference StoredReference::of_others(int64_t batch) const {
  if (of_.files.others == nullptr) return {};
  return [this, batch](int64_t micro_batch, std::span<double> losses) {
    read(*of_.files.others, of_.batches.first_of(batch, micro_batch), true, losses);
  };
}

void StoredReference::read(const ReferenceLogps& file, int64_t first, bool others, std::span<double> losses) const {
  const IdRows& rows = of_.rows.id_rows();
  std::vector<double> of_completion;
  for (int64_t k = first; k < first + of_.step.micro_batch_size; ++k) {
    const int64_t row = of_.rows.row_of(k), which = k % rows.num_completions();
    const auto completion = others ? rows.completion(of_.rows.row_of_other(k), 0) : rows.completion(row, which);
    of_completion.resize(completion.size());
    file.read(others ? k : row * rows.num_completions() + which, of_completion);
    each_counted(of_.step.sequences(), k - first, int64_t(rows.prompt(row).size()) - 1, int64_t(completion.size()),
                 [&](int64_t at, int64_t token) { losses[size_t(at)] = of_completion[size_t(token)]; });
  }
}

std::optional<StoredReference> stored_reference_of(const StoredLogps& files, const TrainingSamples& rows,
                                                   const BatchLoader& batches, const StepSpec& step) {
  if (files.rows == nullptr) return {};
  return StoredReference({files, *rows.rows(), batches, step});
}

}  // namespace weft
