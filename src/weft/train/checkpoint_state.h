// What a checkpoint holds beside the Hugging Face folder, and where checkpoints lie (docs/formats/checkpoint.md).
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/peft.h"
#include "weft/optim/loss_scale.h"
#include "weft/optim/spike_rule.h"
#include "weft/step/training_state.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/run_data.h"

namespace weft {

// Where a run with phases is in its data (RunSpan).
struct MixPlace {
  int64_t phase = 0;                 // of the last step
  int64_t mix = 0, next_sample = 0;  // of its order of samples
  std::vector<int64_t> begun = {};
  bool operator==(const MixPlace&) const = default;
};

struct Progressed {                               // how far a run is
  int64_t step = 0;                               // optimizer steps done
  int64_t samples = 0;                            // global samples consumed: the position in the data
  std::string data;                               // fingerprint of the order of the samples
  uint64_t seed = 0;                              // of the run
  std::optional<LossScaleState> loss_scale = {};  // of a run in fp16
  std::vector<RunSource> sources = {};            // its training files; none of a checkpoint before there were any
  int64_t context = 0;                            // tokens that the model is trained to see at once; 0: not said
  std::optional<HeldOut> held_out = {};           // where the weights were evaluated
  std::string base = {};  // fingerprint_of_weights of what it reads and never writes: an adapter's base, a reference
  std::string teacher = {}, reference = {};  // likewise, of objective.teacher and objective.reference
  std::optional<MixPlace> place = {};        // of a run with phases
  std::optional<SpikeState> spikes = {};     // of a run that watches for them, or has had some
};

struct CheckpointSource {
  const ModelSpec& model;
  const Optimizer& optimizer;
  Progressed progressed;
  std::filesystem::path model_folder;  // whose tokenizer files go along
  std::filesystem::path tokenizer;     // a folder whose files go along in their place; empty: none
  bool is_tokenizer_known = true;      // whether those files are of the run's tokenizer
  nlohmann::json config;               // as config.json is to say it
  std::optional<PeftConfig> adapter;   // then the folder is an adapter's, and config.json lies in weft/
  std::string recipe;                  // resolved, as text
  int num_threads = 1;                 // of each rank, to read it again
};

// RUN/checkpoints/step-N for the newest N that is whole; none where there is none.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run);
std::vector<std::filesystem::path> all_checkpoints(const std::filesystem::path& run);  // oldest first

// The model's config.json: of an adapter's folder, that of its base.
std::filesystem::path config_in_checkpoint(const std::filesystem::path& checkpoint);
// How far a checkpoint is. Throws FileError.
Progressed read_progress(const std::filesystem::path& checkpoint);

// The tensors of the optimizer's state, of the whole model: numbers in the run's statistics dtype.
SafetensorsLayout optimizer_layout(const ModelSpec& model, const Optimizer& optimizer, DType dtype);
// Writes weft/state.json. `tokenizer`: the name of its file in the checkpoint. Throws FileError.
void save_progress(const std::filesystem::path& file, const Progressed& progressed, const std::string& tokenizer);
// Restores what this rank keeps of weights and optimizer state, bit for bit, of a checkpoint that has been checked
// (train/checkpoint_folders.h). Throws FileError that names what does not fit.
Progressed load_checkpoint(const std::filesystem::path& checkpoint, const ModelSpec& model, TrainingState& state,
                           const Optimizer& optimizer, int num_threads);
// The same of a checkpoint whose model, `there`, has other heads: restores what both models train. What the one of
// `state` has besides stays as it is.
void load_what_is_common(const std::filesystem::path& checkpoint, const ModelSpec& there, TrainingState& state,
                         const Optimizer& optimizer, int num_threads);
// The state that a tensor of optimizer.safetensors is of: "exp_avg" of "head.weight.exp_avg.codes".
std::string state_of_entry(std::string_view entry);
// Sizes of the files with weights and optimizer state, which are nearly the whole checkpoint.
struct CheckpointBytes {
  int64_t total = 0, largest_file = 0;
};
CheckpointBytes checkpoint_bytes(const ModelSpec& model, const Optimizer& optimizer, DType dtype);

}  // namespace weft
