#include "weft/train/checkpoint_state.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "weft/base/durable_file.h"
#include "weft/base/json.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/comm/agree.h"
#include "weft/device/host_parts.h"
#include "weft/models/hf_weights.h"
#include "weft/sharding/rows_to_save.h"
#include "weft/train/checkpoint_companions.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 2;  // 1: without a manifest

std::string state_entry(const ParamSpec& p, const std::string& state) { return p.name + "." + state; }

// The tensors of the optimizer, of the whole model: each as its weight, in the run's statistics dtype.
SafetensorsLayout optimizer_layout(const ModelSpec& model, const Optimizer& optimizer, DType dtype) {
  std::vector<TensorInFile> tensors;
  for (const ParamSpec& p : all_params(model)) {
    for (const std::string& state : optimizer.state_names(p)) {
      TensorInFile t{state_entry(p, state), dtype == DType::f64 ? FileDType::f64 : FileDType::f32, {}};
      for (int d = 0; d < p.shape.rank(); ++d) t.shape.push_back(p.shape[d]);
      tensors.push_back(std::move(t));
    }
  }
  return SafetensorsLayout("optimizer.safetensors", std::move(tensors), {{"format", "weft-optimizer"}});
}

// Calls f(entry, offset in bytes, bytes) for the rows of the optimizer's tensors that this rank keeps (to save: its
// share of them), as `parts` (read_parts, write_parts) gives them; rows that lie together, in memory and in the file,
// at once.
enum class Use : uint8_t { load, save };
template <class Parts, class F>
void for_each_kept(const TrainingState& state, Use use, const Optimizer& optimizer, const Parts& parts, const F& f) {
  const auto copies = use == Use::load ? ParamStore::Copies::with : ParamStore::Copies::without;
  for (const Param* p : state.params.params(copies)) {
    const auto names = optimizer.state_names(p->spec());
    const int64_t width = p->spec().shape.elements() / p->spec().shape[0];
    for (const ParamStore::Stored& block : state.params.stored(*p)) {
      const bool together = block.cols.count == width;
      const Run share = use == Use::load ? Run{0, block.rows.count} : rows_to_save(state.params, *p, block);
      for (size_t k = 0; share.count > 0 && k < names.size(); ++k) {
        const Tensor kept = block.states[k].slice_rows(share.first, share.count);
        parts(state.params.memory(), kept, [&](const Tensor& part, int64_t first_row) {
          for (int64_t r = 0; r < (together ? 1 : part.rows()); ++r) {
            const Tensor rows = together ? part : part.slice_rows(r, 1);
            const int64_t first = (block.rows.first + share.first + first_row + r) * width + block.cols.first;
            f(state_entry(p->spec(), names[k]), first * size_of(rows.dtype),
              std::span(static_cast<std::byte*>(rows.data), size_t(rows.bytes())));
          }
        });
      }
    }
  }
}

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

void load_optimizer(const fs::path& path, const ModelSpec& model, const TrainingState& state,
                    const Optimizer& optimizer) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  check_optimizer(file, path, optimizer_layout(model, optimizer, state.params.precision().stat));
  const auto read = [&](const std::string& entry, int64_t offset, std::span<std::byte> to) {
    const auto from = file.bytes(*file.find(entry)).subspan(size_t(offset), to.size());
    std::copy(from.begin(), from.end(), to.begin());
  };
  for_each_kept(state, Use::load, optimizer, write_parts, read);
  file.check_whole();
}

// `tokenizer`: the name of its file in the checkpoint.
void save_progress(const fs::path& file, const Progressed& progressed, const std::string& tokenizer) {
  nlohmann::json json{
      {"format", kFormat},       {"step", progressed.step},      {"samples", progressed.samples},
      {"data", progressed.data}, {"seed", progressed.seed},      {"sources", to_json(progressed.sources)},
      {"tokenizer", tokenizer},  {"context", progressed.context}};
  if (const auto& h = progressed.held_out) json["held_out"] = {{"loss", h->loss}, {"tokens", h->tokens}};
  if (const auto& s = progressed.loss_scale)
    json["loss_scale"] = {{"scale", s->scale},
                          {"good_steps", s->good_steps},
                          {"hysteresis_left", s->hysteresis_left},
                          {"skipped_steps", s->skipped_steps}};
  write_file_durably(file, json.dump(1) + "\n");
}

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
          .held_out = held_out_in(fields)};
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

namespace {

void create_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw FileError(fmt::format("{}: {}; free space or choose another run.dir", folder.string(), error.message()));
}

}  // namespace

fs::path save_checkpoint(const fs::path& run, const TrainingState& state, const CheckpointSource& source) {
  const fs::path parent = run / "checkpoints", path = parent / fmt::format("step-{}", source.progressed.step);
  const DType dtype = state.params.precision().stat;
  const SafetensorsLayout weights = hf_layout(source.model, dtype);
  const SafetensorsLayout optimizer = optimizer_layout(source.model, source.optimizer, dtype);
  Communicator& ranks = *state.params.mesh().world;
  const bool leads = ranks.rank() == 0;
  std::unique_ptr<DurableFolder> folder;
  agree(ranks, [&] {
    if (!leads) return;
    create_folders(parent);
    folder = std::make_unique<DurableFolder>(path);
    create_folders(folder->building() / "weft");
    create_files(folder->building(), weights);
    create_files(folder->building() / "weft", optimizer);
  });
  std::vector<uint64_t> weight_sums, optimizer_sums;
  agree(ranks, [&] {
    const fs::path here = DurableFolder::building_name(path);
    SharedWriter to_weights(here, weights), to_optimizer(here / "weft", optimizer);
    write_hf_weights(to_weights, source.model, state.params);
    const auto write = [&](const std::string& entry, int64_t offset, std::span<std::byte> from) {
      to_optimizer.write(entry, offset, from);
    };
    for_each_kept(state, Use::save, source.optimizer, read_parts, write);
    to_weights.sync();
    to_optimizer.sync();
    weight_sums = to_weights.sums();
    optimizer_sums = to_optimizer.sums();
  });
  sum_over(ranks, weight_sums);
  sum_over(ranks, optimizer_sums);
  agree(ranks, [&] {
    if (!leads) return;
    const fs::path here = folder->building();
    write_file_durably(source.adapter ? here / "weft" / "config.json" : here / "config.json",
                       source.config.dump(2) + "\n");
    if (source.adapter)
      write_file_durably(here / "adapter_config.json", to_json(*source.adapter, source.model).dump(2) + "\n");
    const std::string tokenizer = copy_companions(source.model_folder, source.tokenizer, here);
    write_file_durably(here / "weft" / "recipe.toml", source.recipe);
    save_progress(here / "weft" / "state.json", source.progressed, source.is_tokenizer_known ? tokenizer : "");
    Manifest manifest{.step = source.progressed.step, .files = {}};
    manifest.add("", weights, weight_sums);
    manifest.add("weft/", optimizer, optimizer_sums);
    manifest.add_others(here);
    write_file_durably(here / kManifestFile, to_text(manifest));
  });
  const fs::path here = DurableFolder::building_name(path);
  drop_from_memory(here);
  const CheckOutcome checked = check_checkpoint(here, CheckpointPart::all, ranks, source.num_threads);
  agree(ranks, [&] {
    if (!checked.damage.empty())
      throw FileError(fmt::format("{}: what is read is not what was written; is the disk sound?", checked.damage));
    if (leads) folder->commit();
  });
  return path;
}

Progressed load_checkpoint(const fs::path& checkpoint, const ModelSpec& model, TrainingState& state,
                           const Optimizer& optimizer) {
  const Progressed progressed = read_progress(checkpoint);
  if (progressed.step != step_of(checkpoint))
    throw FileError(
        fmt::format("{}: its state.json says step {}; restore it, or remove the folder to go on from an older one",
                    checkpoint.string(), progressed.step));
  read_hf_weights(checkpoint, model, state.params);
  load_optimizer(checkpoint / "weft" / "optimizer.safetensors", model, state, optimizer);
  return progressed;
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
