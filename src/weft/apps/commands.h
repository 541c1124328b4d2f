// The subcommands of weft: what each needs, as plain values. Each returns its exit status and throws Error.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// Exit statuses (docs/operations.md).
inline constexpr int kExitOk = 0, kExitFailure = 1, kExitUsage = 2, kExitInterrupted = 130;
inline constexpr int kExitWrongWorld = 64;    // the processes that were started are not the layout's ranks
inline constexpr int kExitPreempted = 75;     // asked to stop by another signal than Ctrl-C, and saved
inline constexpr int kExitHang = 86;          // nothing went on any more
inline constexpr int kExitCorrupted = 87;     // ranks that should hold the same bytes do not
inline constexpr int kExitNotFinite = 88;     // numbers that are not finite
inline constexpr int kExitNotSaved = 89;      // all went well but the last save
inline constexpr int kExitNoCheckpoint = 90;  // the run has checkpoints, and none is whole
inline constexpr int kExitSpikes = 91;        // more loss spikes than the recipe allows
inline constexpr int kExitNoProgress = 93;    // of a supervisor: attempts have come to nothing

struct TrainOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  bool help_recipe = false;
  bool force = false;  // also where the plan does not fit into memory
  std::string from;    // a checkpoint to go on from in a new folder; empty: the run's own newest
};
int run_train(const TrainOptions& options);

struct SuperviseOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  bool force = false;
  int64_t attempts = 3;                    // without progress
  double hang_s = 30, first_minutes = 60;  // SectionLimits
  std::string hosts = {};                  // hostfile; empty: as the recipe says
};
int run_supervise(const SuperviseOptions& options);

struct SweepOptions {
  std::string recipe;
  std::vector<std::string> settings;  // "key=value", "key=value,value", "key=low..high"
  int64_t random = 0, seed = 1234;    // trials that are drawn; 0: the grid
  bool halving = false;
  int64_t eta = 3, least_steps = 100;
  int64_t jobs = 1;                // side by side
  std::vector<std::string> draft;  // "layers=4"; none: no draft
  int64_t confirm = 1;             // of its trials, at full size
  bool retry = false;              // failed trials
  std::string folder;              // empty: run.dir with -sweep behind it
};
int run_sweep(const SweepOptions& options);

struct LaunchOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string kind;     // "slurm", "jobset", "mpijob", "ssh"
  std::string command;  // that was given, for the file's head
  std::string name, out;
  bool again = false;  // replace the file that is there
  int64_t nodes = 1, notice_s = 60, chain = 0;
  std::string partition, time_limit;                 // of Slurm
  std::string image, claim, mount = "/data", hosts;  // of Kubernetes; of ssh
};
int run_launch(const LaunchOptions& options);

struct PlanOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  bool json = false, schedule = false, instructions = false;
  std::string schedule_svg;  // file to draw to; empty: none
  std::string cluster;       // to forecast the time of a step on: a device's name or a file; empty: no forecast
  std::string scale;         // device counts, "8..1024": how the forecast changes with them
  bool search = false;       // for the best layouts there, as the rest says
  std::string ranks;         // "64", "8..1024"; empty: as many as the cluster has, or the recipe
  std::string objective = "time";
  std::string deadline;                                       // of the run, "36h"; empty: none
  double budget = 0;                                          // of the run; 0: none
  std::string write;                                          // file for the recipe with the best layout; empty: none
  bool again = false;                                         // replace files that are there
  bool serve = false;                                         // how the model answers there, as the rest says
  int64_t prompt_tokens = 2048, max_tokens = 256, texts = 0;  // texts of a replica; 0: as many as are best
};
int run_plan(const PlanOptions& options);
int run_plan_serve(const PlanOptions& options);
int run_plan_search(const PlanOptions& options);

struct NewOptions {
  std::string model;  // folder or config.json; empty: all of these are asked for
  std::string purpose = "pretrain", cluster;
  std::vector<std::string> data;
  int64_t devices = 0;     // 0: all of the cluster, or one
  int64_t seq_length = 0;  // 0: as the purpose has it
  std::string out = "recipe.toml";
};
// Asks on standard error, and reads the answers from standard input.
int run_new(const NewOptions& options);

struct ReportOptions {
  std::vector<std::string> runs;  // their folders; of several, how they scale
  std::string cluster;            // a device's name or a file; empty: what `weft bench machine` wrote here
  bool json = false;
};
int run_report(const ReportOptions& options);

struct PlanScoreOptions {
  std::string rows, pairs, out, profiles, fit, collectives;  // files; empty: none
  std::string cross_validate;                                // "source", "group"; empty: not
  bool json = false, again = false;                          // again: replace files that are there
};
int run_plan_score(const PlanScoreOptions& options);

struct PlanLossOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string cluster;              // a device's name or a file
  std::string ranks;                // as of PlanOptions
  double target = 0;                // a loss to reach; 0: none
  double budget = 0;                // of a run; 0: none
  std::string deadline;             // of a run; empty: none
  std::vector<std::string> models;  // folders or config.json of others beside the recipe's
  std::vector<std::string> runs;    // folders of runs that the law is fitted to; none: the published one
  bool json = false;
};
int run_plan_loss(const PlanLossOptions& options);

struct PlanRentOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string prices;  // a file of offers
  bool json = false;
};
int run_plan_rent(const PlanRentOptions& options);

struct VerifyOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  int64_t steps = 3;
  bool whole = false, json = false;
};
int run_verify(const VerifyOptions& options);

// For commands that run a model forward.
struct ModelOptions {
  std::string model;  // a model's folder, a checkpoint, or a run's folder (its newest checkpoint)
  std::string tokenizer = "auto", backend = "cpu", precision = "f32";
  int64_t threads = 0;                // of each rank
  std::vector<std::string> settings;  // of the layout: "parallel.tp=2"
};

struct GenerateOptions : ModelOptions {
  std::vector<std::string> prompt, prompt_ids;
  bool chat = false;                  // prompts are messages of a user; none: those of standard input
  std::string chat_template, system;  // of a chat; empty: the model's own; nothing
  std::optional<int64_t> max_tokens;  // by default 200, of a reply 1024
  double temperature = 1, top_p = 1;
  int64_t top_k = 0, seed = 1234;
  int64_t context = 0;                     // tokens that the model sees at once; 0: as many as it was trained on
  bool ids = false;                        // print ids, not text
  bool rate = false;                       // tell how fast the prompts and then the tokens went
  bool plan = false;                       // only say what memory it would need
  std::vector<std::string> prompt_tokens;  // of a plan, in place of prompts: "4x2048"
};
int run_generate(const GenerateOptions& options);

struct MergeOptions {
  std::vector<std::string> adapters;  // folders of adapters, or runs with one (the newest checkpoint)
  std::vector<double> weights;        // how much of each is wanted; none, of a single one: all of it
  std::string out;                    // a new model's folder
  std::vector<std::string> policies;  // files policy.toml, beside those that are found
};
int run_merge(const MergeOptions& options);

struct ExportOptions {
  std::string model;  // as in ModelOptions
  // One of these: a GGUF file to write; a new folder with the matrices in few bits (GPTQ), or in bf16, or with some of
  // the layers; or the base of an adapter that goes into the new folder `out`.
  std::string gguf, gptq, bf16, draft, lora_of, out;
  std::string type = "F16", tokenizer = "auto";  // of a GGUF file
  int64_t rank = 16;                             // of an adapter, with its targets
  std::vector<std::string> targets = {"all-linear"};
  int64_t bits = 4, group_size = 128, samples = 128;  // of GPTQ; samples: windows to calibrate on
  bool desc_act = false;
  std::vector<std::string> calibrate;  // text of these
  std::vector<int64_t> layers;         // of a draft; none: num_layers of them, evenly
  int64_t num_layers = 0;
  std::vector<std::string> data;   // that loss is measured on, before and after; empty: it is not
  std::optional<double> max_loss;  // by how many nats a token the loss may rise
  // Results without which nothing is written, "piqa.acc >= 0.6"; the file of `weft eval` that has them, or empty: the
  // run's own.
  std::vector<std::string> require;
  std::string results;
  std::vector<std::string> policies;  // files policy.toml, beside those that are found
  bool again = false;                 // replace the file that is there
  int64_t threads = 0;
};
int run_export(const ExportOptions& options);
int run_gptq_export(const ExportOptions& options);
int run_bf16_export(const ExportOptions& options);
int run_draft_export(const ExportOptions& options);
// Of lora_of.
int run_extract(const ExportOptions& options);

inline constexpr int64_t kMostSamples = 1000;

struct EvalOptions : ModelOptions {
  std::string loss_mask, dtype = "uint16", text_key;
  std::vector<std::string> data;
  int64_t seq_length = 0, micro_batch_size = 4, max_batches = 0;
  bool json = false;
  // In place of data: benchmarks, "piqa=FILE" or "piqa"; where files without a name lie, and where examples come from.
  std::vector<std::string> tasks, fewshot_from;
  std::string tasks_dir, output, bad_words;
  std::string judge;  // of toxicity: a reward model, and which of its scores mean that an answer is toxic
  std::optional<double> toxic_below, toxic_above;
  int64_t num_fewshot = 0, limit = 0;
  std::optional<int64_t> seed;            // of examples and samples; by default 1234
  std::optional<int64_t> max_tokens;      // of a written answer; by default as its task says
  int64_t samples = 1;                    // answers to each question of humaneval, so chosen
  double temperature = 0, top_p = 1;      // 0: the likeliest tokens
  std::vector<int64_t> pass_at = {1};     // the k of pass@k
  std::vector<std::string> compare = {};  // or: two results files of such
};
int run_eval(const EvalOptions& options);

struct TeacherLogitsOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string out;     // the file
  int64_t top_k = 64;  // logits of each token
  bool again = false;  // replace the file that is there
};
int run_teacher_logits(const TeacherLogitsOptions& options);

struct InspectOptions {
  std::string path, dtype = "uint16";
  bool json = false;
};
int run_inspect(const InspectOptions& options);

struct BenchOptions {
  std::string what = "step", recipe;
  std::vector<std::string> overrides;
  std::vector<std::string> layouts;  // of bench scaling: "dp=2,zero_stage=3"
  std::string trace;                 // a file for a step, of bench scaling one of the last layout; empty: none
  bool ops = false;                  // of bench step: a line for each kind of op
  int64_t iters = 5;
  std::vector<std::string> ranks;  // of bench machine: "2"; none: 1, 2, 4, ... up to the cores
  std::string out;                 // of bench machine: the file to write; empty: machine.toml
  bool again = false;              // replace the file that is there
  std::string cluster;             // of bench forecast: the file
  bool json = false;               // of bench forecast and bench decode
  // For bench kernels, by default cpu, bf16, all cores and 16384; and but for the backend for bench machine, by default
  // f32, bf16 and fp16, the ranks' shares of the cores, and 2048. For bench decode of a model cpu, f32, all cores; 64.
  std::optional<std::string> backend, precision;
  std::optional<int64_t> threads, tokens;
  std::optional<int64_t> batch, prompt;  // of bench decode: texts at once, 16; tokens of a prompt, 128
};
int run_bench(const BenchOptions& options);

// For commands that need only a tokenizer.
struct TokenizerFileOptions {
  std::string tokenizer;  // "byte", or a path
  std::string pattern;    // of a rank file whose name does not tell it
};

struct EncodeOptions : TokenizerFileOptions {
  std::string file;      // empty: JSON strings from standard input
  std::string text_key;  // of the file's rows; empty: the file is one text
  bool parse_special = false, add_special = false, count = false;
  int threads = 0;
};
int run_data_encode(const EncodeOptions& options);

struct DecodeOptions : TokenizerFileOptions {
  bool skip_special = false;
};
int run_data_decode(const DecodeOptions& options);

struct ChatOptions : TokenizerFileOptions {
  std::string template_file, template_name;  // empty: the tokenizer's own; "default"
  std::string messages_key = "messages";
  std::string tools;  // a JSON file, for conversations without their own
  std::string date;   // empty: today
  bool tokenize = false, mask = false, add_generation_prompt = false;
};
int run_data_chat(const ChatOptions& options);

struct TrainTokenizerOptions {
  std::vector<std::string> files;
  std::string out;  // *.json, or the folder for a tokenizer.json
  std::string pattern = "r50k", text_key = "text";
  std::vector<std::string> specials;
  int64_t vocab_size = 32768;
  int threads = 0;
  bool again = false;  // replace the file that is there
};
int run_data_train_tokenizer(const TrainTokenizerOptions& options);

struct DataRunOptions {
  std::string pipeline;
  std::string stage;   // empty: all
  bool again = false;  // throw away a complete dataset that is of something else
  bool join = false;   // help the one that is at work
};
int run_data_run(const DataRunOptions& options);

// For commands that look at datasets.
struct DatasetOptions {
  std::vector<std::string> folders;
};
int run_data_audit(const DatasetOptions& options);
int run_data_diff(const DatasetOptions& options);  // of two; exit status 1: they differ

struct StatsOptions {
  std::string folder;
  bool samples = false;  // of what was dropped
  std::string rule;      // only of this reason, or of this rule's; empty: of all
  bool json = false;
};
int run_data_stats(const StatsOptions& options);

struct WhyOptions {
  std::string run;
  int64_t step = 1, sample = 0;  // as metrics.jsonl counts steps; of the step's global batch
  bool json = false;
};
int run_data_why(const WhyOptions& options);

struct TrainNgramOptions {
  std::vector<std::string> files;
  std::string out, text_key = "text";
  int order = 5;
  bool again = false;  // replace the file that is there
};
int run_data_train_ngram(const TrainNgramOptions& options);

struct CompletionOptions {
  std::string shell;
};
struct CommandLine;  // completion.h
int run_completion(const CompletionOptions& options, const CommandLine& line);

}  // namespace weft
