#include "weft/train/checkpoint_state.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>

#include "weft/base/durable_file.h"
#include "weft/base/json.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/comm/agree.h"
#include "weft/device/host_parts.h"
#include "weft/models/hf_weights.h"
#include "weft/step/kept_states.h"
#include "weft/train/checkpoint_companions.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 2;  // 1: without a manifest

}  // namespace

SafetensorsLayout optimizer_layout(const ModelSpec& model, const Optimizer& optimizer, DType dtype) {
  const FileDType numbers = dtype == DType::f64 ? FileDType::f64 : FileDType::f32;
  std::vector<TensorInFile> tensors;
  for (const ParamSpec& p : all_params(model)) {
    const StatesInFile in = states_in_file(p, optimizer);
    const auto add = [&](const std::string& name, FileDType type, int64_t rows) {
      TensorInFile t{name, type, {rows}};
      for (int d = 1; d < p.shape.rank(); ++d) t.shape.push_back(p.shape[d]);
      if (rows > 0) tensors.push_back(std::move(t));
    };
    for (const std::string& state : in.names) {
      add(state_entry(p, state), numbers, in.rows_of_numbers);
      add(state_entry(p, state + kCodesSuffix), FileDType::u8, in.rows_of_codes);
      if (in.blocks > 0) tensors.push_back({state_entry(p, state + kAbsmaxSuffix), numbers, {in.blocks}});
    }
  }
  return SafetensorsLayout("optimizer.safetensors", std::move(tensors), {{"format", "weft-optimizer"}});
}

namespace {

void check_optimizer(const SafetensorsFile& file, const fs::path& path, const SafetensorsLayout& layout) {
  const std::vector<TensorInFile>& expected = layout.files()[0].tensors;
  for (const TensorInFile& t : expected) {
    const SafetensorsEntry* from = file.find(t.name);
    if (from == nullptr)
      throw FileError(fmt::format("{}: no tensor {}: the checkpoint was made with another optimizer or model",
                                  path.string(), t.name));
    if (from->shape != t.shape || from->dtype != t.dtype)
      throw FileError(fmt::format("{}: tensor {} has another shape or type than this run's, {} of {} numbers",
                                  path.string(), t.name, name_of(t.dtype), t.num_bytes() * 8 / bits_of(t.dtype)));
  }
  if (file.tensors().size() != expected.size())
    throw FileError(fmt::format("{}: {} tensors, {} expected: the checkpoint was made with another optimizer",
                                path.string(), file.tensors().size(), expected.size()));
}

// `model`: the file's.
void load_optimizer(const fs::path& path, const ModelSpec& model, const TrainingState& state,
                    const Optimizer& optimizer) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  check_optimizer(file, path, optimizer_layout(model, optimizer, state.params.precision().stat));
  const auto read = [&](const std::string& entry, int64_t offset, std::span<std::byte> to) {
    const auto from = file.bytes(*file.find(entry)).subspan(size_t(offset), to.size());
    std::copy(from.begin(), from.end(), to.begin());
  };
  std::set<std::string> there;
  for (const ParamSpec& p : all_params(model)) there.insert(p.name);
  for_each_kept(state.params, Use::load, optimizer, write_parts, read,
                [&](const ParamSpec& p) { return there.count(p.name) > 0; });
  file.check_whole();
}

}  // namespace

void save_progress(const fs::path& file, const Progressed& progressed, const std::string& tokenizer) {
  nlohmann::json json{
      {"format", kFormat},       {"step", progressed.step},      {"samples", progressed.samples},
      {"data", progressed.data}, {"seed", progressed.seed},      {"sources", to_json(progressed.sources)},
      {"tokenizer", tokenizer},  {"context", progressed.context}};
  if (!progressed.base.empty()) json["base"] = progressed.base;
  if (!progressed.teacher.empty()) json["teacher"] = progressed.teacher;
  if (!progressed.reference.empty()) json["reference"] = progressed.reference;
  if (const auto& h = progressed.held_out) json["held_out"] = {{"loss", h->loss}, {"tokens", h->tokens}};
  if (const auto& p = progressed.place)
    json["place"] = {{"phase", p->phase}, {"mix", p->mix}, {"next_sample", p->next_sample}, {"begun", p->begun}};
  if (const auto& s = progressed.spikes) {
    nlohmann::json gaps = nlohmann::json::array();
    for (const SpikeState::Gap& gap : s->gaps) gaps.push_back({{"step", gap.step}, {"batches", gap.batches}});
    json["spikes"] = {{"losses", s->losses},
                      {"grad_norms", s->grad_norms},
                      {"batches", s->batches},
                      {"skipped_steps", s->skipped_steps},
                      {"gaps", gaps}};
  }
  if (const auto& s = progressed.loss_scale)
    json["loss_scale"] = {{"scale", s->scale},
                          {"good_steps", s->good_steps},
                          {"hysteresis_left", s->hysteresis_left},
                          {"skipped_steps", s->skipped_steps}};
  write_file_durably(file, json.dump(1) + "\n");
}

namespace {

std::optional<HeldOut> held_out_in(const JsonFields& fields) {
  if (!fields.has("held_out")) return {};
  const JsonFields h = fields.object("held_out");
  return HeldOut{.loss = h.number("loss", {}), .tokens = h.integer("tokens", {.min = 1})};
}

std::optional<LossScaleState> loss_scale_in(const JsonFields& fields) {
  if (!fields.has("loss_scale")) return {};
  const JsonFields s = fields.object("loss_scale");
  return LossScaleState{.scale = s.number("scale", {.min = std::numeric_limits<double>::min()}),
                        .good_steps = s.integer("good_steps", {.min = 0}),
                        .hysteresis_left = s.integer("hysteresis_left", {.min = 0}),
                        .skipped_steps = s.integer("skipped_steps", {.min = 0})};
}

std::optional<MixPlace> place_in(const JsonFields& fields) {
  if (!fields.has("place")) return {};
  const JsonFields p = fields.object("place");
  MixPlace place{.phase = p.integer("phase", {.min = 0}),
                 .mix = p.integer("mix", {.min = 0}),
                 .next_sample = p.integer("next_sample", {.min = 0})};
  for (const auto& n : p.list("begun", "a list of numbers of samples")) {
    if (!n.is_number_integer() || n.get<int64_t>() < 0) p.fail("begun", "a list of numbers of samples");
    place.begun.push_back(n.get<int64_t>());
  }
  return place;
}

std::optional<SpikeState> spikes_in(const JsonFields& fields, const std::string& source) {
  if (!fields.has("spikes")) return {};
  const JsonFields s = fields.object("spikes");
  SpikeState state{.skipped_steps = s.integer("skipped_steps", {.min = 0})};
  const auto numbers = [&](const char* key, std::vector<double>& to) {
    for (const auto& n : s.list(key, "a list of numbers")) {
      if (!n.is_number()) s.fail(key, "a list of numbers");
      to.push_back(n.get<double>());
    }
  };
  numbers("losses", state.losses);
  numbers("grad_norms", state.grad_norms);
  if (state.losses.size() != state.grad_norms.size()) s.fail("grad_norms", "as many numbers as losses");
  for (const auto& n : s.list("batches", "a list of numbers of batches")) {
    if (!n.is_number_integer() || n.get<int64_t>() < 0) s.fail("batches", "a list of numbers of batches");
    state.batches.push_back(n.get<int64_t>());
  }
  for (const auto& n : s.list("gaps", "a list of gaps")) {
    const JsonFields gap(n, source, "spikes.gaps.");
    state.gaps.push_back({.step = gap.integer("step", {.min = 0}), .batches = gap.integer("batches", {.min = 1})});
  }
  return state;
}

Progressed load_progress(const fs::path& file) {
  const nlohmann::json json = read_json_file(file);
  const JsonFields fields(json, file.string());
  if (const int64_t format = fields.integer("format", {.min = 1}); format > kFormat)
    fields.fail("format", fmt::format("format {}, which this weft writes; use the weft that wrote it", kFormat));
  const nlohmann::json* seed = fields.find("seed");
  if (seed == nullptr || !seed->is_number_integer()) fields.fail("seed", "a whole number");
  return {.step = fields.integer("step", {.min = 0}),
          .samples = fields.integer("samples", {.min = 0}),
          .data = fields.string("data"),
          .seed = seed->get<uint64_t>(),
          .loss_scale = loss_scale_in(fields),
          .sources =
              fields.has("sources") ? run_sources_of(*fields.find("sources"), file.string()) : std::vector<RunSource>(),
          .context = fields.has("context") ? fields.integer("context", {.min = 1}) : 0,
          .held_out = held_out_in(fields),
          .base = fields.has("base") ? fields.string("base") : "",
          .teacher = fields.has("teacher") ? fields.string("teacher") : "",
          .reference = fields.has("reference") ? fields.string("reference") : "",
          .place = place_in(fields),
          .spikes = spikes_in(fields, file.string())};
}

}  // namespace

fs::path config_in_checkpoint(const fs::path& checkpoint) {
  return is_adapter_folder(checkpoint) ? checkpoint / "weft" / "config.json" : checkpoint / "config.json";
}

Progressed read_progress(const fs::path& checkpoint) { return load_progress(checkpoint / "weft" / "state.json"); }

std::vector<fs::path> all_checkpoints(const fs::path& run) {
  std::vector<fs::path> found = checkpoint_folders(run);
  std::error_code none;
  std::erase_if(found, [&](const fs::path& folder) { return !fs::exists(folder / "weft" / "state.json", none); });
  return found;
}

std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  const auto all = all_checkpoints(run);
  if (all.empty()) return {};
  return all.back();
}

Progressed load_checkpoint(const fs::path& checkpoint, const ModelSpec& model, TrainingState& state,
                           const Optimizer& optimizer, int num_threads) {
  const Progressed progressed = read_progress(checkpoint);
  if (progressed.step != step_of(checkpoint))
    throw FileError(
        fmt::format("{}: its state.json says step {}; restore it, or remove the folder to go on from an older one",
                    checkpoint.string(), progressed.step));
  read_hf_weights(checkpoint, model, state.params, num_threads);
  load_optimizer(checkpoint / "weft" / "optimizer.safetensors", model, state, optimizer);
  return progressed;
}

void load_what_is_common(const fs::path& checkpoint, const ModelSpec& there, TrainingState& state,
                         const Optimizer& optimizer, int num_threads) {
  if (there.adapter)
    read_adapter_weights(checkpoint, there, state.params);
  else
    read_hf_weights(checkpoint, there, state.params, num_threads);
  load_optimizer(checkpoint / "weft" / "optimizer.safetensors", there, state, optimizer);
}

std::string state_of_entry(std::string_view entry) {
  for (const std::string_view suffix : {kCodesSuffix, kAbsmaxSuffix})
    if (entry.ends_with(suffix)) entry.remove_suffix(suffix.size());
  return std::string(entry.substr(entry.rfind('.') + 1));
}

CheckpointBytes checkpoint_bytes(const ModelSpec& model, const Optimizer& optimizer, DType dtype) {
  CheckpointBytes bytes;
  for (const SafetensorsLayout& layout : {hf_layout(model, dtype), optimizer_layout(model, optimizer, dtype)})
    for (const SafetensorsLayout::File& file : layout.files()) {
      bytes.total += file.bytes;
      bytes.largest_file = std::max(bytes.largest_file, file.bytes);
    }
  return bytes;
}

}  // namespace weft
