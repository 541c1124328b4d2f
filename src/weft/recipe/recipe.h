// One typed value for a whole run. Written as TOML (docs/formats/recipe.md); every key is described in recipe_keys.cpp.
// Relative paths are relative to the current folder, and stay as they were given.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/recipe/choices.h"

namespace weft {

inline constexpr int64_t kMostRanks = 1 << 20;  // of a layout

struct Recipe {
  struct Model {
    std::string path = {};
    InitChoice init = InitChoice::pretrained;
    std::optional<double> embedding_dropout = {}, hidden_dropout = {}, attention_dropout = {};
    bool operator==(const Model&) const = default;
  } model;
  struct Data {
    std::vector<std::string> train = {}, valid = {};
    std::vector<double> weights = {};
    double valid_fraction = 0;
    IdDtype dtype = IdDtype::uint16;
    std::string loss_mask = {}, text_key = "text", tokenizer = "auto", chat_template = {}, pairs = {}, rollouts = {},
                examples = {};
    PackingKind packing = PackingKind::concatenate_and_split;
    AttentionMask attn_mask_type = AttentionMask::causal;
    bool shuffle = true;
    bool operator==(const Data&) const = default;
  } data;
  struct Train {
    ObjectiveKind objective = ObjectiveKind::cross_entropy;
    LossAverage loss_average = LossAverage::token;
    int64_t seq_length = 1024, global_batch_size = 64, micro_batch_size = 4;
    std::vector<int64_t> rampup_batch_size = {};  // samples at first, samples more each time, samples of it all
    int64_t train_iters = 1000;                   // 0: as epochs says, which is above 0 then
    double epochs = 0;                            // 0: as train_iters says
    PrecisionChoice precision = PrecisionChoice::f32;
    ReduceDtype grad_reduce_dtype = ReduceDtype::f32;
    NumericsChoice numerics = NumericsChoice::fast;
    bool autotune = false;
    double mtp_loss_coef = 0;
    double loss_scale = 0, initial_loss_scale = 65536, min_loss_scale = 1;
    int64_t loss_scale_window = 1000, hysteresis = 2;
    int64_t seed = 1234;
    int64_t eval_interval = 0, eval_iters = 0, log_interval = 10;
    bool log_grad_norms = false;
    int64_t log_weight_norms = 0;  // steps; 0: never
    int64_t trace_interval = 0;    // likewise
    int64_t sample_interval = 0;   // likewise
    std::vector<std::string> sample_prompts = {};
    int64_t check_replicas_interval = 0;  // 0: only before a save
    int64_t replay_interval = 0;          // 0: none
    bool rebalance = false;
    SpikeAction on_spike = SpikeAction::none;
    double spike_sigma_factor = 6;
    int64_t spike_window = 128, max_spikes = 8;  // steps; spikes among so many batches
    bool operator==(const Train&) const = default;
  } train;
  struct Objective {
    PreferenceLoss loss_type = PreferenceLoss::sigmoid;
    double beta = 0.1, label_smoothing = 0;
    bool average_logps = false;
    double desirable_weight = 1, undesirable_weight = 1;
    int64_t inner_updates = 1, group_size = 8;
    double clip_eps_low = 0.2, clip_eps_high = 0.2, kl_beta = 0;
    double gamma = 1, lambda = 0.95, value_clip = 0.2, value_coef = 0.5, kl_coef = 0.05;
    bool whiten_advantages = true;
    LossNormalisation normalisation = LossNormalisation::token;
    int64_t max_completion_length = 0;  // of normalisation "constant", which needs it
    AdvantageStd advantage_std = AdvantageStd::sample;
    double advantage_eps = 1e-4;
    std::string teacher = {}, teacher_logits = {};  // of distill, which needs one of them
    int64_t top_k = 0;                              // logits of a teacher with axes of its own; 0: it has none
    double temperature = 2, alpha = 0.5;
    DivergenceChoice divergence = DivergenceChoice::forward;
    std::string reference = {};             // empty: the weights that the run, or the objective's phase, begins with
    bool precompute_ref_log_probs = false;  // are the reference's log-probabilities kept in files beside the rows
    bool operator==(const Objective&) const = default;
  } objective;
  struct Optimizer {
    OptimizerKind name = OptimizerKind::adamw;
    double lr = 3e-4, min_lr = 0;
    LrSchedule::Style lr_decay_style = LrSchedule::Style::cosine;
    int64_t lr_warmup_iters = 0, lr_decay_iters = 0, lr_wsd_decay_iters = 0;
    LrScaling lr_scaling = LrScaling::none;
    double weight_decay = 0.1, adam_beta1 = 0.9, adam_beta2 = 0.95, adam_eps = 1e-8, momentum = 0.9, clip_grad = 1;
    int64_t min_8bit_size = 4096;
    double muon_momentum = 0.95;
    bool muon_nesterov = true;
    int64_t muon_ns_steps = 5;
    MuonScale muon_scale = MuonScale::match_rms_adamw;
    bool operator==(const Optimizer&) const = default;
  } optimizer;
  struct Adapter {
    AdapterKind kind = AdapterKind::none;
    int64_t rank = 8;
    double alpha = 16;
    bool rslora = false;
    double dropout = 0;
    std::vector<std::string> targets = {"all-linear"};
    std::string path = {};
    QuantType quant_type = QuantType::nf4;
    bool operator==(const Adapter&) const = default;
  } adapter;
  struct Moe {
    std::optional<double> aux_loss_coef = {}, global_aux_loss_coef = {}, z_loss_coef = {};
    std::optional<double> capacity_factor = {};
    ExpertOverflow overflow = ExpertOverflow::error;
    double bias_update_rate = 0;
    bool operator==(const Moe&) const = default;
  } moe;
  struct Eval {
    std::vector<std::string> tasks = {}, fewshot_from = {};
    int64_t interval = 0, limit = 0, num_fewshot = 0, max_tokens = 0;
    std::string bad_words = {};
    bool operator==(const Eval&) const = default;
  } eval;
  struct Parallel {
    int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, zero_stage = 0, zero_shard_size = 0;
    int64_t frozen_shard_size = 0, frozen_ep = 0;  // of models beside the trained one; 0: as that
    int64_t teacher_tp = 0, teacher_pp = 0, teacher_cp = 0, teacher_ep = 1;  // of objective.top_k; 0: as the student's
    CpCommType cp_comm_type = CpCommType::p2p;
    int64_t cp_a2a_size = 0;
    std::string order = "tp-cp-ep-dp-pp";
    bool sequence_parallel = true;
    ScheduleKind pipeline_schedule = ScheduleKind::one_f_one_b;
    RecomputeKind recompute = RecomputeKind::none;
    std::string memory_budget = {};  // of recompute "budget", which needs it: a size (base/byte_size.h)
    int64_t virtual_pipeline_parallel_size = 0;
    std::vector<int64_t> pipeline_layout = {};
    std::vector<int64_t> micro_batches = {};  // of a step, [dp]; empty: equal shares
    bool operator==(const Parallel&) const = default;
  } parallel;
  struct Checkpoint {
    int64_t save_interval = 0, keep_latest = 2, keep_best = 0;
    bool async_save = false;
    std::string local_dir = {};  // on each host; empty: no local copies
    int64_t local_interval = 0;
    bool local_neighbour = false;
    bool operator==(const Checkpoint&) const = default;
  } checkpoint;
  struct Run {
    std::string dir = "runs/first";
    BackendKind backend = BackendKind::cpu;
    RanksKind ranks = RanksKind::local;
    int64_t threads = 0;
    double distributed_timeout_minutes = 10, start_timeout_minutes = 2;
    bool supervise = false;
    bool is_private = true;
    bool page = false;
    int64_t page_port = 0;  // 0: one that is free
    std::string queue = {};
    int64_t priority = 0;
    bool operator==(const Run&) const = default;
  } run;
  // What a supervisor may make of the layout when ranks come and go.
  struct Fleet {
    int64_t min_ranks = 0, max_ranks = 0;  // 0: as many as the layout has
    std::vector<std::string> may_change = {"dp", "pp", "zero_stage", "recompute"};
    std::string available = {}, hosts = {}, cluster = {};
    double poll_seconds = 30;
    bool operator==(const Fleet&) const = default;
  } fleet;
  // A [[phase]]: what other values some keys have from a step on (recipe_phases.h).
  struct Phase {
    int64_t from_step = 0;                                           // counted from 0
    std::vector<std::pair<std::string, std::string>> settings = {};  // keys, in the order of recipe_keys, and TOML
    std::vector<std::string> require = {};                           // results without which it does not begin
    bool operator==(const Phase&) const = default;
  };
  std::vector<Phase> phases = {};
  // Where a run whose phases have layouts of their own has begun another one: `parallel` and run.ranks are those of the
  // steps from `first_step` on, as far as they are alike (in_layout_at); and here is what the recipe says in their
  // place. No key: to_toml prints what the recipe says.
  struct LayoutNow {
    int64_t first_step = 0;
    Parallel stated = {};
    RanksKind stated_ranks = RanksKind::local;
    bool operator==(const LayoutNow&) const = default;
  };
  std::optional<LayoutNow> layout_now = {};
  bool operator==(const Recipe&) const = default;
};

// Reads a recipe and applies overrides "section.key=value", in order. The value is TOML, or plain text where it is not;
// one value stands for a list of one. With run.backend "ref", train.precision is "f64" whatever was given. Throws
// ConfigError that lists every problem: file, line, column (or: command line), key, value, and what would be right.
// FileError where the file cannot be read.
Recipe parse_recipe_file(const std::string& path, const std::vector<std::string>& overrides);
Recipe parse_recipe(const std::string& toml, const std::string& source, const std::vector<std::string>& overrides);

// The whole recipe as TOML, every key with its value: parse_recipe(to_toml(r)) == r.
std::string to_toml(const Recipe& recipe);

// Throws ConfigError where this version of weft cannot run the recipe, or chooses something that would have no effect:
// each such setting by name, with the reason and the nearest that works.
void check_supported(const Recipe& recipe);

// Why no data parallel neighbour can do a step of this recipe too (train/replay_check.h); empty: it can.
std::string why_not_replayed(const Recipe& recipe);

// The key of the data that the objective reads: "data.train", "data.pairs".
std::string_view data_key_of(ObjectiveKind objective);
// Whether that is data.train: texts and token files, of which every target may count; else rows.
bool reads_tokens(ObjectiveKind objective);
// Whether the model is judged beside a frozen one of the same shape.
bool has_reference(ObjectiveKind objective);
// Whether a model with weights of its own is frozen beside the trained one: a teacher, or a reference. That of an
// adapter which begins as nothing has none, as it is the model itself, unless its numbers are stored before the run.
bool has_frozen_model(const Recipe& recipe);
// Whether data-parallel ranks have unequally many micro-batches (parallel.micro_batches).
bool has_unequal_shares(const Recipe::Parallel& parallel);
// How many sequences go through the model for one of what train.global_batch_size counts.
int64_t sequences_of_sample(const Recipe& recipe);

// Settings that leave the layout at most so many ranks: "parallel.dp = 1024".
std::string fewer_ranks(const Recipe& recipe, int64_t most);

// "optimizer.lr: 0.0003 there, 0.001 here" for every key that differs and that may not change when a run is resumed.
std::vector<std::string> recipe_differences(const Recipe& there, const Recipe& here);

// All keys, for completion and documents.
struct KeyHelp {
  std::string key;  // "train.seq_length"
  std::string type, fallback, help;
  std::vector<std::string> choices;  // of text: the only ones
  std::string expected;              // what the value must be, as messages say it
  bool needed;                       // there is no fallback
  bool may_change;                   // when a run is resumed
};
std::vector<KeyHelp> recipe_help();

// The keys as a text of so many columns, for a terminal; and as the tables of docs/formats/recipe.md.
std::string recipe_reference(int columns);
std::string recipe_markdown();

}  // namespace weft
