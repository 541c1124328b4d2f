#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <set>

#include "weft/apps/commands.h"
#include "weft/apps/report.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/threads.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/comm/process_mesh.h"
#include "weft/data/teacher_logits.h"
#include "weft/data/token_source.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/hf_config.h"
#include "weft/models/hf_names.h"
#include "weft/models/weight_source.h"
#include "weft/recipe/recipe.h"
#include "weft/records/metrics_log.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/local_resume.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

int64_t size_of(const fs::path& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  return error ? 0 : int64_t(bytes);
}

std::string joined(const std::set<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// --- tensors ---

Report tensor_row(const SafetensorsEntry& t) {
  return {{"name", t.name}, {"dtype", name_of(t.dtype)}, {"shape", t.shape}, {"bytes", t.end - t.begin}};
}

std::string dtypes_of(const std::vector<SafetensorsEntry>& tensors) {
  std::set<std::string> names;
  for (const auto& t : tensors) names.emplace(name_of(t.dtype));
  return joined(names);
}

Report of_safetensors(const fs::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  Report report{{"kind", "safetensors file"}, {"path", path.string()}, {"bytes", size_of(path)}};
  int64_t numbers = 0;
  Report rows = Report::array();
  for (const SafetensorsEntry& t : file.tensors()) {
    numbers += t.num_elements();
    rows.push_back(tensor_row(t));
  }
  report["numbers"] = numbers;
  report["num_tensors"] = file.tensors().size();
  report["dtypes"] = dtypes_of(file.tensors());
  if (!file.metadata().empty()) report["metadata"] = file.metadata();
  report["tensors"] = std::move(rows);
  return report;
}

// --- models ---

std::string rope_text(const RopeSpec& rope) {
  constexpr const char* kScalings[] = {"", ", linear", ", llama3", ", yarn", ", longrope"};
  const std::string text = fmt::format("theta {}{}", rope.theta, kScalings[size_t(rope.scaling)]);
  const bool has_factor = rope.scaling != RopeSpec::Scaling::none && rope.scaling != RopeSpec::Scaling::longrope;
  return has_factor ? fmt::format("{} x {}", text, rope.factor) : text;
}

// "all before", "4096", or how many layers have which.
std::string window_text(const ModelSpec& m) {
  const auto name = [](int64_t w) { return w == 0 ? std::string("all before") : std::to_string(w); };
  std::map<int64_t, int64_t> layers;
  for (int64_t l = 0; l < m.num_layers; ++l) ++layers[m.layer(l).window];
  if (layers.empty()) return name(0);
  if (layers.size() == 1) return name(layers.begin()->first);
  std::string text;
  for (const auto& [window, count] : layers)
    text += fmt::format("{}{} in {} layers", text.empty() ? "" : ", ", name(window), count);
  return text;
}

std::string latent_text(const LatentSpec& l) {
  const std::string queries = l.q_rank > 0 ? fmt::format(", of queries {}", l.q_rank) : "";
  return fmt::format("of keys and values {}{}; {} of {} columns of a head rotate, values have {}", l.kv_rank, queries,
                     l.rope_dim, l.nope_dim + l.rope_dim, l.v_dim);
}

int64_t parameters_of(const ModelSpec& model) {
  int64_t sum = 0;
  for (const HfTensor& t : hf_tensors(model)) sum += t.rows * t.cols();
  return sum;
}

void add_model(Report& report, const HfConfig& config) {
  const ModelSpec& m = config.spec;
  constexpr const char* kNorms[] = {"LayerNorm", "RMSNorm"};
  constexpr const char* kMlps[] = {"GELU (tanh)", "GELU (erf)", "SwiGLU", "GeGLU (tanh)"};
  report.update(Report{{"family", model_type_of(m.family)},
                       {"parameters", parameters_of(m)},
                       {"vocab_size", m.vocab_size},
                       {"width", m.width},
                       {"num_layers", m.num_layers},
                       {"num_heads", m.num_heads},
                       {"num_kv_heads", m.num_kv_heads},
                       {"head_dim", m.head_dim},
                       {"ffn_width", m.ffn_width},
                       {"max_positions", m.max_positions},
                       {"norm", fmt::format("{}, eps {}", kNorms[size_t(m.norm)], m.norm_eps)},
                       {"mlp", kMlps[size_t(m.mlp)]},
                       {"positions", m.rope ? "rotary, " + rope_text(*m.rope) : "learned"},
                       {"attends_to", window_text(m)},
                       {"tied_head", m.tied_head}});
  if (m.head == HeadKind::score) report["head"] = "a score for each token: a reward model";
  if (m.latent) report["latents"] = latent_text(*m.latent);
  if (!config.warnings.empty()) report["warnings"] = config.warnings;
}

bool has_weights(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") || fs::exists(folder / "model.safetensors.index.json");
}

// What is in the files of weights; checks that they are those of the model.
Report weights_of(const fs::path& folder, const ModelSpec& model) {
  const SafetensorsFolder weights = SafetensorsFolder::open(folder);
  const HfMatch match = match_hf_tensors(model, weights);
  std::set<std::string> dtypes, files;
  int64_t bytes = 0;
  for (const auto& t : weights.tensors()) {
    dtypes.emplace(name_of(t.entry->dtype));
    files.insert(t.file->path().filename().string());
    bytes += t.entry->end - t.entry->begin;
  }
  Report report{{"dtypes", joined(dtypes)}, {"num_tensors", weights.tensors().size()}, {"bytes", bytes}};
  if (!match.notes.empty()) report["notes"] = match.notes;
  report["files"] = Report::array();
  for (const auto& file : files) report["files"].push_back({{"name", file}, {"bytes", size_of(folder / file)}});
  return report;
}

// Checks that its tensors are those that its config asks for.
void add_adapter(Report& report, const fs::path& folder, const HfConfig& config) {
  const SafetensorsFolder file = SafetensorsFolder::of_file(folder / kAdapterFile);
  match_adapter_tensors(config.spec, file);
  int64_t parameters = 0;
  for (const HfTensor& t : adapter_tensors(config.spec)) parameters += t.rows * t.cols();
  report["kind"] = "adapter folder";
  report["adapter"] = {{"base", config.adapter->base},
                       {"rank", config.adapter->rank},
                       {"alpha", config.adapter->alpha},
                       {"dora", config.adapter->dora},
                       {"modules", config.spec.adapter->targets.size()},
                       {"parameters", parameters},
                       {"bytes", size_of(folder / kAdapterFile)}};
  if (config.adapter->base_codes != WeightCodes::none)
    report["adapter"]["quantization_config"] = quantisation_of(config.adapter->base_codes);
}

Report of_model(const fs::path& folder) {
  const HfConfig config = read_hf_config(folder);
  Report report{{"kind", "model folder"}, {"path", folder.string()}};
  add_model(report, config);
  if (config.adapter)
    add_adapter(report, folder, config);
  else if (has_weights(folder))
    report["weights"] = weights_of(folder, config.spec);
  else
    report["weights"] = "none: it can be trained with model.init = \"random\"";
  return report;
}

// Checks that its tensors are those that its metadata ask for.
Report of_gguf(const fs::path& path) {
  const HfConfig config = read_hf_config(path);
  Report report{{"kind", "GGUF file"}, {"path", path.string()}};
  add_model(report, config);
  open_weights(path, config.spec);
  const GgufFile file(path);
  std::map<std::string, int64_t> types;
  for (const GgufTensor& t : file.tensors())
    if (const GgufTypeInfo* type = find_gguf_type(t.type)) ++types[std::string(type->name)];
  std::string text;
  for (const auto& [name, count] : types) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  report["tensors"] = text;
  report["tokenizer"] = file.fields().text("tokenizer.ggml.model", "none");
  report["bytes"] = size_of(path);
  return report;
}

Report of_config(const fs::path& file) {
  Report report{{"kind", "model config"}, {"path", file.string()}};
  add_model(report, read_hf_config(file));
  return report;
}

// --- checkpoints and runs ---

Report progress_of(const fs::path& checkpoint) {
  const Progressed at = read_progress(checkpoint);
  Report report{{"step", at.step}, {"samples", at.samples}, {"seed", at.seed}, {"data", at.data}};
  if (at.context > 0) report["context"] = at.context;
  if (at.held_out) report["held_out_loss"] = at.held_out->loss;
  return report;
}

Report optimizer_of(const fs::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::set<std::string> states;
  for (const auto& t : file.tensors()) states.insert(state_of_entry(t.name));
  return {{"states", joined(states)},
          {"dtypes", dtypes_of(file.tensors())},
          {"num_tensors", file.tensors().size()},
          {"bytes", size_of(path)}};
}

// Reads every byte.
Report of_checkpoint(const fs::path& folder) {
  const std::string note = require_whole(folder, CheckpointPart::all, *single_mesh().world, usable_cores());
  Report report = of_model(folder);
  report["kind"] = "checkpoint";
  report["checked"] = note.empty() ? "every byte is what was saved" : note;
  if (const auto others = CheckpointCheck(folder, CheckpointPart::all).strangers(); !others.empty())
    report["not_saved_with_it"] = others;
  report["progress"] = progress_of(folder);
  report["optimizer"] = optimizer_of(folder / "weft" / "optimizer.safetensors");
  return report;
}

// The last records of metrics.jsonl.
void add_metrics(Report& report, const fs::path& file) {
  if (!fs::exists(file)) return;
  const Metrics metrics = read_metrics(file);
  report["num_records"] = metrics.steps.size();
  if (metrics.damaged_lines > 0) report["damaged_lines"] = metrics.damaged_lines;
  if (!metrics.steps.empty()) report["last_step"] = Report::parse(to_json(metrics.steps.back()));
  if (!metrics.evals.empty()) report["last_eval"] = Report::parse(to_json(metrics.evals.back()))["eval"];
}

// All but the tensors, which `weft inspect` of the checkpoint itself reads.
std::string state_of(const fs::path& checkpoint) {
  try {
    return CheckpointCheck(checkpoint, CheckpointPart::all).has_manifest() ? "complete" : "complete, format 1";
  } catch (const FileError& e) { return fmt::format("damaged: {}", e.what()); }
}

Report data_of(const Recipe& r) {
  switch (r.train.objective) {
    case ObjectiveKind::cross_entropy:
    case ObjectiveKind::distill:
      return r.data.train;
    case ObjectiveKind::dpo:
    case ObjectiveKind::reward:
      return r.data.pairs;
    case ObjectiveKind::grpo:
    case ObjectiveKind::ppo:
      return r.data.rollouts;
    case ObjectiveKind::kto:
      break;
  }
  return r.data.examples;
}

Report of_run(const fs::path& folder) {
  const Recipe recipe = parse_recipe_file((folder / "recipe.toml").string(), {});
  Report report{{"kind", "run folder"},       {"path", folder.string()},
                {"model", recipe.model.path}, {"init", name_of(recipe.model.init)},
                {"data", data_of(recipe)},    {"train_iters", recipe.train.train_iters}};
  Report checkpoints = Report::array();
  for (const auto& c : checkpoint_folders(folder)) {
    checkpoints.push_back(
        {{"name", c.filename().string()}, {"step", step_of(c)}, {"bytes", bytes_below(c)}, {"state", state_of(c)}});
    try {
      if (const auto held_out = read_progress(c).held_out) checkpoints.back()["held_out_loss"] = held_out->loss;
    } catch (const FileError&) {  // its state says what is wrong with it
    }
  }
  report["checkpoints"] = checkpoints;
  for (const LocalCopyHere& copy : local_copies_here(folder, recipe.checkpoint.local_dir))
    report["local_copies_on_this_host"].push_back({{"step", copy.step},
                                                   {"written_by_ranks", copy.ranks},
                                                   {"shares_here", copy.here},
                                                   {"shares_of_neighbours", copy.of_neighbours},
                                                   {"bytes", copy.bytes}});
  if (const auto best = best_checkpoints(folder, 1); !best.empty())
    report["best_checkpoint"] = best[0].path.filename().string();
  add_metrics(report, folder / "metrics.jsonl");
  return report;
}

// --- tokens ---

// Passes over all ids: also a check that each is one.
void add_ids(Report& report, const TokenSource& tokens) {
  constexpr int64_t kPiece = 1 << 20, kFirst = 16;
  std::vector<int32_t> ids;
  int32_t least = std::numeric_limits<int32_t>::max(), most = 0;
  Report first = Report::array();
  for (int64_t at = 0; at < tokens.size(); at += kPiece) {
    ids.resize(size_t(std::min(kPiece, tokens.size() - at)));
    tokens.read(at, ids);
    const auto [low, high] = std::minmax_element(ids.begin(), ids.end());
    least = std::min(least, *low);
    most = std::max(most, *high);
    for (size_t i = 0; at == 0 && i < ids.size() && i < kFirst; ++i) first.push_back(ids[i]);
  }
  if (tokens.size() == 0) return;
  report["smallest_id"] = least;
  report["largest_id"] = most;
  report["first_ids"] = first;
}

Report of_tokens(const fs::path& path, const std::string& dtype) {
  const bool pair = is_megatron(path);
  const auto tokens = pair ? open_megatron_tokens(path, 0) : open_raw_tokens(path, dtype, 0);
  Report report{{"kind", pair ? "Megatron token files" : "raw token file"}, {"path", tokens->path()}};
  const int64_t bytes = size_of(tokens->path());
  if (!pair) report["read_as"] = dtype;
  report["tokens"] = tokens->size();
  if (pair) report["documents"] = tokens->num_documents();
  report["bytes"] = bytes;
  if (tokens->size() > 0) report["token_bytes"] = bytes / tokens->size();
  add_ids(report, *tokens);
  return report;
}

Report of_teacher_logits(const fs::path& path) {
  const TeacherLogits file(path);
  const TeacherLogitsSpec& s = file.spec();
  return {{"kind", "teacher's logits"},
          {"path", path.string()},
          {"top", s.top},
          {"tokens", s.num_samples * s.seq_length},
          {"samples", s.num_samples},
          {"seq_length", s.seq_length},
          {"vocab_size", s.vocab_size},
          {"temperature", s.temperature},
          {"teacher", s.teacher},
          {"bytes", size_of(path)}};
}

// --- what is it? ---

Report of_folder(const fs::path& folder) {
  if (const std::string why = why_no_model(folder); !why.empty()) throw FileError(why);
  if (is_checkpoint(folder)) return of_checkpoint(folder);
  if (fs::exists(folder / "recipe.toml")) return of_run(folder);
  if (fs::exists(folder / "config.json") || is_adapter_folder(folder)) return of_model(folder);
  throw FileError(fmt::format(
      "{}: no model folder (config.json), checkpoint (weft/state.json) or run folder (recipe.toml)", folder.string()));
}

Report of_file(const fs::path& file, const std::string& dtype) {
  if (is_gguf(file)) return of_gguf(file);
  if (is_teacher_logits(file)) return of_teacher_logits(file);
  const std::string extension = file.extension().string();
  if (extension == ".safetensors") return of_safetensors(file);
  if (extension == ".json") return of_config(file);
  if (extension == ".bin" || is_megatron(file)) return of_tokens(file, dtype);
  if (extension == ".idx") throw FileError(fmt::format("{}: its .bin file is missing", file.string()));
  throw FileError(fmt::format(
      "{}: weft inspects .safetensors, GGUF files, token files (.bin, or .bin with .idx), a teacher's logits and "
      "config.json; `weft plan` reads recipes",
      file.string()));
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  const fs::path path = options.path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status) && !is_megatron(path))
    throw FileError(fmt::format("{}: {}", path.string(), error ? error.message() : "no such file or folder"));
  const Report report = fs::is_directory(status) ? of_folder(path) : of_file(path, options.dtype);
  std::cout << (options.json ? report.dump(1, ' ', false, Report::error_handler_t::replace) + "\n" : to_text(report));
  return kExitOk;
}

}  // namespace weft
