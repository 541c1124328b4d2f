#include "weft/train/checkpoint_state.h"

#include <algorithm>
#include <charconv>

#include "weft/base/json.h"
#include "weft/checkpoint/durable_file.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/checkpoint/safetensors_writer.h"
#include "weft/models/hf_weights.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr std::string_view kPrefix = "step-";

FileDType file_dtype(DType t) {
  return t == DType::f64 ? FileDType::f64 : t == DType::bf16 ? FileDType::bf16 : FileDType::f32;
}

int64_t step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char *first = name.data() + kPrefix.size(), *last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last ? step : -1;
}

std::string state_entry(const Param& p, const std::string& state) { return p.spec().name + "." + state; }

void save_optimizer(const fs::path& file, const TrainingState& state, const Optimizer& optimizer) {
  std::vector<TensorToWrite> tensors;
  const auto names = optimizer.state_names();
  for (const Param* p : state.params.params()) {
    for (size_t k = 0; k < names.size(); ++k) {
      const Tensor t = state.params.state(*p, int(k));
      TensorToWrite w{.name = state_entry(*p, names[k]), .dtype = file_dtype(t.dtype), .shape = {}, .data = {}};
      for (int d = 0; d < t.shape.rank(); ++d) w.shape.push_back(t.shape[d]);
      w.data = [t](const ByteSink& sink) { sink({static_cast<const std::byte*>(t.data), size_t(t.bytes())}); };
      tensors.push_back(std::move(w));
    }
  }
  write_safetensors(file, std::move(tensors), {{"format", "weft-optimizer"}});
}

void load_optimizer(const fs::path& path, const TrainingState& state, const Optimizer& optimizer) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto names = optimizer.state_names();
  size_t expected = 0;
  for (const Param* p : state.params.params()) {
    for (size_t k = 0; k < names.size(); ++k, ++expected) {
      const Tensor to = state.params.state(*p, int(k));
      const SafetensorsEntry* from = file.find(state_entry(*p, names[k]));
      if (from == nullptr) {
        throw FileError(fmt::format("{}: no tensor {}: the checkpoint was made with another optimizer or model",
                                    path.string(), state_entry(*p, names[k])));
      }
      std::vector<int64_t> shape;
      for (int d = 0; d < to.shape.rank(); ++d) shape.push_back(to.shape[d]);
      if (from->shape != shape || from->dtype != file_dtype(to.dtype)) {
        throw FileError(fmt::format("{}: tensor {} has another shape or type than this run's, {}", path.string(),
                                    from->name, to.to_string()));
      }
      const auto bytes = file.bytes(*from);
      std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(to.data));
    }
  }
  if (file.tensors().size() != expected) {
    throw FileError(fmt::format("{}: {} tensors, {} expected: the checkpoint was made with another optimizer",
                                path.string(), file.tensors().size(), expected));
  }
}

// Tokenizer and generation settings of the model's folder: all its small files that are not weights.
void copy_companions(const fs::path& from, const fs::path& to) {
  for (const char* name :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json",
        "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"}) {
    std::error_code error;
    if (fs::exists(from / name, error)) fs::copy_file(from / name, to / name, error);
    if (error)
      throw FileError(
          fmt::format("{}: cannot be copied to {}: {}", (from / name).string(), to.string(), error.message()));
  }
}

void save_progress(const fs::path& file, const Progressed& progressed) {
  const nlohmann::json json{{"format", kFormat},
                            {"step", progressed.step},
                            {"samples", progressed.samples},
                            {"data", progressed.data},
                            {"seed", progressed.seed}};
  write_file_durably(file, json.dump(1) + "\n");
}

Progressed load_progress(const fs::path& file) {
  const nlohmann::json json = read_json_file(file);
  const JsonFields fields(json, file.string());
  if (const int64_t format = fields.integer("format", {.min = 1}); format != kFormat) {
    fields.fail("format", fmt::format("format {}, which this weft writes; use the weft that wrote it", kFormat));
  }
  const nlohmann::json* seed = fields.find("seed");
  if (seed == nullptr || !seed->is_number_integer()) fields.fail("seed", "a whole number");
  return {.step = fields.integer("step", {.min = 0}),
          .samples = fields.integer("samples", {.min = 0}),
          .data = fields.string("data"),
          .seed = seed->get<uint64_t>()};
}

}  // namespace

std::vector<fs::path> all_checkpoints(const fs::path& run) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", none)) {
    if (step_of(entry.path()) >= 0 && fs::exists(entry.path() / "weft" / "state.json", none))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) { return step_of(a) < step_of(b); });
  return found;
}

std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  const auto all = all_checkpoints(run);
  if (all.empty()) return {};
  return all.back();
}

fs::path save_checkpoint(const fs::path& run, const ModelSpec& model, const TrainingState& state,
                         const Optimizer& optimizer, const Progressed& progressed, const CheckpointSource& source) {
  const fs::path parent = run / "checkpoints", path = parent / fmt::format("{}{}", kPrefix, progressed.step);
  std::error_code error;
  fs::create_directories(parent, error);
  if (error)
    throw FileError(fmt::format("{}: {}; free space or choose another run.dir", parent.string(), error.message()));
  DurableFolder folder(path);
  const fs::path here = folder.building();
  fs::create_directories(here / "weft", error);
  if (error)
    throw FileError(fmt::format("{}: {}; free space or choose another run.dir", here.string(), error.message()));
  save_hf_weights(here, model, state.params);
  write_file_durably(here / "config.json", hf_config_of(source.config, state.params.precision().stat).dump(2) + "\n");
  copy_companions(source.model_folder, here);
  save_optimizer(here / "weft" / "optimizer.safetensors", state, optimizer);
  write_file_durably(here / "weft" / "recipe.toml", source.recipe);
  save_progress(here / "weft" / "state.json", progressed);
  folder.commit();
  return path;
}

Progressed load_checkpoint(const fs::path& checkpoint, const ModelSpec& model, TrainingState& state,
                           const Optimizer& optimizer) {
  const Progressed progressed = load_progress(checkpoint / "weft" / "state.json");
  if (progressed.step != step_of(checkpoint))
    throw FileError(
        fmt::format("{}: its state.json says step {}; restore it, or remove the folder to go on from an older one",
                    checkpoint.string(), progressed.step));
  load_hf_weights(checkpoint, model, state.params);
  load_optimizer(checkpoint / "weft" / "optimizer.safetensors", state, optimizer);
  return progressed;
}

void prune_checkpoints(const fs::path& run, int64_t keep) {
  std::error_code ignored;  // what cannot be removed now is tried again after the next save
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
    if (entry.path().extension() == ".tmp") fs::remove_all(entry.path(), ignored);
  }
  const auto all = all_checkpoints(run);
  for (size_t i = 0; keep > 0 && i + size_t(keep) < all.size(); ++i) fs::remove_all(all[i], ignored);
}

}  // namespace weft
