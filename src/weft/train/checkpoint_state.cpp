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

constexpr int kFormat = 2;                                                  // 1: without a manifest
constexpr const char *kCodesSuffix = ".codes", *kAbsmaxSuffix = ".absmax";  // of names of states in 8 bits

std::string state_entry(const ParamSpec& p, const std::string& state) { return p.name + "." + state; }

// Where the parts of a weight lie in the file, of each of its states: those that are numbers in one tensor, one after
// the other, and those that are codes in another, beside one of their blocks' numbers.
struct StatesInFile {
  struct InTensor {
    Run rows;  // of the whole weight
    bool are_codes;
    int64_t first_row, first_block;  // in the tensors
  };
  std::vector<std::string> names;
  std::vector<InTensor> parts;
  int64_t rows_of_numbers = 0, rows_of_codes = 0, blocks = 0;
};

StatesInFile states_in_file(const ParamSpec& p, const Optimizer& optimizer) {
  StatesInFile in{.names = optimizer.state_names(p), .parts = {}};
  if (in.names.empty()) return in;
  for (const HeldPart& part : held_parts(p, {})) {
    const int64_t elements = elements_of_part(p, part);
    const bool are_codes = optimizer.states(p, elements)[0].levels.has_value();
    int64_t& rows = are_codes ? in.rows_of_codes : in.rows_of_numbers;
    in.parts.push_back({part.part_rows, are_codes, rows, in.blocks});
    rows += part.part_rows.count;
    if (are_codes) in.blocks += code_blocks(p, part).num_blocks(elements);
  }
  return in;
}

// The tensors of the optimizer, of the whole model: numbers in the run's statistics dtype.
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

std::span<std::byte> bytes_of(const Tensor& t) { return {static_cast<std::byte*>(t.data), size_t(t.bytes())}; }

// Calls f(entry, offset in bytes, bytes) for the rows of the optimizer's tensors that this rank keeps (to save: its
// share of them), as `parts` (read_parts, write_parts) gives them; rows that lie together, in memory and in the file,
// at once. A block's number is saved by the rank that saves the block's first element.
enum class Use : uint8_t { load, save };
template <class Parts, class F>
class KeptStates {
 public:
  KeptStates(const TrainingState& state, Use use, const Parts& parts, const F& f)
      : params_(state.params), use_(use), parts_(parts), f_(f) {}

  void for_each(const Optimizer& optimizer) {
    const auto copies = use_ == Use::load ? ParamStore::Copies::with : ParamStore::Copies::without;
    for (const Param* p : params_.params(copies)) {
      const StatesInFile in = states_in_file(p->spec(), optimizer);
      if (in.names.empty()) continue;
      for (const ParamStore::Stored& block : params_.stored(*p)) {
        const Run share = use_ == Use::load ? Run{0, block.rows.count} : rows_to_save(params_, *p, block);
        for (size_t k = 0; share.count > 0 && k < in.names.size(); ++k)
          of_state({.weight = p->spec(), .in = in.parts[size_t(block.part)], .name = in.names[k], .block = block}, k,
                   share);
      }
    }
  }

 private:
  struct Kept {
    const ParamSpec& weight;
    const StatesInFile::InTensor& in;
    const std::string& name;
    const ParamStore::Stored& block;
    int64_t width() const { return width_of(weight); }
    bool is_together() const { return block.cols.count == width(); }
    // The number, in its part, of a row's first element here.
    int64_t element_of_row(int64_t row) const {
      return (block.rows.first + row - in.rows.first) * width() + block.cols.first;
    }
  };
  void of_state(const Kept& kept, size_t k, Run share) {
    const std::string entry = state_entry(kept.weight, kept.in.are_codes ? kept.name + kCodesSuffix : kept.name);
    const Tensor rows = kept.block.states[k].slice_rows(share.first, share.count);
    parts_(params_.memory(), rows, [&](const Tensor& part, int64_t first_row) {
      for (int64_t r = 0; r < (kept.is_together() ? 1 : part.rows()); ++r) {
        const Tensor run = kept.is_together() ? part : part.slice_rows(r, 1);
        const int64_t first = kept.in.first_row * kept.width() + kept.element_of_row(share.first + first_row + r);
        f_(entry, first * size_of(run.dtype), bytes_of(run));
      }
    });
    if (kept.in.are_codes) of_blocks(kept, kept.block.blocks[k], share);
  }
  void of_blocks(const Kept& kept, const StateBlocks& blocks, Run share) {
    const std::string entry = state_entry(kept.weight, kept.name + kAbsmaxSuffix);
    const int64_t first_here = blocks.at.first_block();
    const std::vector<Run> wanted =
        use_ == Use::load ? std::vector<Run>{{first_here, blocks.absmax.elements()}} : blocks_begun(kept, share);
    parts_(params_.memory(), blocks.absmax, [&](const Tensor& part, int64_t first) {
      for (const Run& run : wanted) {
        const Run here = overlap(run, {first_here + first, part.rows()});
        if (here.count == 0) continue;
        const Tensor numbers = part.slice_rows(here.first - first_here - first, here.count);
        f_(entry, (kept.in.first_block + here.first) * size_of(numbers.dtype), bytes_of(numbers));
      }
    });
  }
  // The blocks whose first element is in these rows here.
  static std::vector<Run> blocks_begun(const Kept& kept, Run share) {
    std::vector<Run> all;
    const int64_t at_once = kept.is_together() ? share.count : 1;
    for (int64_t row = share.first; row < share.end(); row += at_once) {
      const int64_t begin = kept.element_of_row(row), end = begin + at_once * kept.block.cols.count;
      const int64_t first = (begin + kCodeBlock - 1) / kCodeBlock, count = (end + kCodeBlock - 1) / kCodeBlock - first;
      if (count > 0) all.push_back({first, count});
    }
    return all;
  }

  const ParamStore& params_;
  const Use use_;
  const Parts& parts_;
  const F& f_;
};
template <class Parts, class F>
void for_each_kept(const TrainingState& state, Use use, const Optimizer& optimizer, const Parts& parts, const F& f) {
  KeptStates<Parts, F>(state, use, parts, f).for_each(optimizer);
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
  if (!progressed.base.empty()) json["base"] = progressed.base;
  if (!progressed.teacher.empty()) json["teacher"] = progressed.teacher;
  if (!progressed.reference.empty()) json["reference"] = progressed.reference;
  if (const auto& h = progressed.held_out) json["held_out"] = {{"loss", h->loss}, {"tokens", h->tokens}};
  if (const auto& p = progressed.place)
    json["place"] = {{"phase", p->phase}, {"mix", p->mix}, {"next_sample", p->next_sample}, {"begun", p->begun}};
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
          .place = place_in(fields)};
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
