// `weft export --gptq`, `--bf16` and `--draft`: Hugging Face folders.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/judged_loss.h"
#include "weft/apps/measure.h"
#include "weft/apps/new_folder.h"
#include "weft/apps/progress_lines.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/models/draft_model.h"
#include "weft/models/gptq_folder.h"
#include "weft/models/hf_config.h"
#include "weft/models/merge_adapter.h"
#include "weft/train/checkpoint_companions.h"
#include "weft/train/gptq_pass.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void tell_user(const std::string& line) { std::cerr << line << "\n"; }

void tell_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::cout << "note: " << note << "\n";
}

struct ModelToWrite {
  fs::path folder;
  HfConfig config;
};

ModelToWrite model_to_write(const ExportOptions& o, std::string_view option) {
  ModelToWrite m{model_folder_of(o.model, tell_user), {}};
  m.config = read_hf_config(m.folder);
  if (m.config.adapter)
    throw ConfigError(fmt::format("{}: {} is an adapter: weft merge makes a full model of it and its base first",
                                  option, m.folder.string()));
  if (o.data.empty())  // else told where the loss is measured
    for (const std::string& warning : m.config.warnings) tell_user("note: " + warning);
  return m;
}

std::string tokenizer_of_model_texts(const ExportOptions& o, const fs::path& model) {
  const std::string wanted = o.tokenizer == "none" ? "auto" : o.tokenizer;
  return tokenizer_of_model(model, recipe_of_checkpoint(model), wanted).name;
}

// Windows of the text, evenly over all of it; only those that are full, so that no filler counts.
std::vector<WholeSample> windows_to_calibrate(const ExportOptions& o, const ModelToWrite& m, int64_t window) {
  EvalOptions eval;
  eval.data = o.calibrate;
  eval.tokenizer = tokenizer_of_model_texts(o, m.folder);
  const Recipe::Parallel alone;
  const ForwardShape shape{.precision = kF32, .seq_length = window, .size = 1};
  const DataSpec data =
      data_to_measure(eval, {m.folder, recipe_of_checkpoint(m.folder), m.config, shape, alone, tell_user});
  const auto text = open_eval_windows(data);
  std::vector<WholeSample> all;
  const int64_t wanted = std::min(o.samples, text->num_windows());
  for (int64_t i = 0; i < wanted; ++i) {
    WholeSample sample(window);
    text->read(i * text->num_windows() / wanted, sample.rows());
    const bool full = std::count(sample.counted.begin(), sample.counted.end(), uint8_t{0}) == 0;
    if (full) all.push_back(std::move(sample));
  }
  if (all.empty())
    throw ConfigError(fmt::format("--calibrate: the text is shorter than a window of {} tokens: give more", window));
  return all;
}

int64_t bytes_of_files(const SafetensorsLayout& layout) {
  int64_t bytes = 0;
  for (const SafetensorsLayout::File& file : layout.files()) bytes += file.bytes;
  return bytes;
}

void write_beside(const fs::path& model, const nlohmann::json& config, const fs::path& to) {
  write_file_durably(to / "config.json", config.dump(2) + "\n");
  copy_companions(model, {}, to);
}

std::vector<int64_t> layers_of_draft(const ExportOptions& o, const ModelToWrite& m) {
  if (!o.layers.empty()) return o.layers;
  if (o.num_layers == 0)
    throw ConfigError("--draft: which layers? --layers 0,3,7, or --num-layers 3: so many, evenly over the model");
  if (o.num_layers > m.config.spec.num_layers)
    throw ConfigError(
        fmt::format("--num-layers {}: {} has {}", o.num_layers, m.folder.string(), m.config.spec.num_layers));
  return spread_layers(m.config.spec.num_layers, o.num_layers);
}

void require_gptq_options(const ExportOptions& o) {
  if (o.calibrate.empty()) throw ConfigError("--gptq: there is nothing to calibrate on; add --calibrate FILES");
  if (o.data.empty())
    throw ConfigError(
        "--gptq: there is nothing to measure what is lost on; add --data FILES, of text that is not calibrated on");
}

// Text that the codes were fitted to loses less than other text.
void tell_of_shared_text(const ExportOptions& o) {
  for (const fs::path data : o.data)
    for (const fs::path calibrate : o.calibrate) {
      std::error_code not_there;
      if (fs::equivalent(data, calibrate, not_there))
        tell_notes(
            {fmt::format("{} is calibrated on and measured on: other text may lose more; name held-out text as "
                         "--data",
                         data.string())});
    }
}

}  // namespace

int run_gptq_export(const ExportOptions& given) {
  constexpr double kUsualMaxLoss = 0.1;
  ExportOptions o = given;
  if (!o.max_loss) o.max_loss = kUsualMaxLoss;
  require_gptq_options(o);
  const fs::path out = require_new_folder("--gptq", o.gptq);
  const ModelToWrite m = model_to_write(o, "--gptq");
  const GptqFolder folder(
      m.config, {.bits = int(o.bits), .group_size = o.group_size < 0 ? 0 : o.group_size, .by_size = o.desc_act});
  tell_of_shared_text(o);
  const JudgedLoss loss(o, m.folder, m.config.spec, tokenizer_of_model_texts(o, m.folder));
  const std::vector<WholeSample> windows = windows_to_calibrate(o, m, loss.window());
  ModelOptions cores;
  cores.threads = o.threads;
  const Machine machine = machine_for(cores);
  const SafetensorsLayout layout = folder.layout();
  make_parent("--gptq", out);
  DurableFolder building(out);
  create_files(building.building(), layout);
  SharedWriter writer(building.building(), layout);
  ProgressLines progress("matrices");
  const GptqWritten written =
      write_gptq({.model = m.folder, .spec = m.config.spec, .folder = folder, .machine = machine, .windows = windows},
                 writer, [&](int64_t done, int64_t all) { progress(done, all); });
  writer.sync();
  write_beside(m.folder, folder.config(), building.building());
  tell_notes(written.notes);
  tell_notes(folder.notes());
  if (written.num_unseen > 0)
    std::cout << fmt::format(
        "note: {} of {} matrices saw fewer than {} tokens, and were rounded number by number: {}{}\n",
        written.num_unseen, written.num_matrices, kLeastInputs, written.unseen,
        written.num_unseen > 1 ? " and others; more --samples or other text reaches them" : "");
  loss.judge(building.building(), fmt::format("--bits {}", o.bits),
             o.bits < 8 ? "take --bits 8, a smaller --group-size or more --samples" : "take --bf16 or more --samples");
  building.commit();
  std::cout << fmt::format("{}: {} matrices in {} bits, calibrated on {} windows of {} tokens; {} bytes\n",
                           out.string(), written.num_matrices, o.bits, windows.size(), loss.window(),
                           bytes_of_files(layout));
  return kExitOk;
}

int run_bf16_export(const ExportOptions& o) {
  const fs::path out = require_new_folder("--bf16", o.bf16);
  const ModelToWrite m = model_to_write(o, "--bf16");
  std::optional<JudgedLoss> loss;
  if (!o.data.empty()) loss.emplace(o, m.folder, m.config.spec, tokenizer_of_model_texts(o, m.folder));
  const auto source = open_weights(m.folder, m.config.spec);
  const SafetensorsLayout layout = layout_in(source->tensors(), FileDType::bf16);
  make_parent("--bf16", out);
  DurableFolder building(out);
  create_files(building.building(), layout);
  SharedWriter writer(building.building(), layout);
  for (size_t i = 0; i < source->tensors().size(); ++i) copy_tensor(*source, i, FileDType::bf16, writer);
  writer.sync();
  source->check_whole();
  write_beside(m.folder, hf_config_of(m.config, DType::bf16), building.building());
  tell_notes(source->notes());
  if (loss) loss->judge(building.building(), "--bf16", "keep the model as it is");
  building.commit();
  std::cout << fmt::format("{}: {} tensors in bf16; {} bytes\n", out.string(), layout.num_tensors(),
                           bytes_of_files(layout));
  return kExitOk;
}

int run_draft_export(const ExportOptions& o) {
  const fs::path out = require_new_folder("--draft", o.draft);
  const ModelToWrite m = model_to_write(o, "--draft");
  const std::vector<int64_t> layers = layers_of_draft(o, m);
  const DType dtype = merged_dtype(m.folder);
  const FileDType type = dtype == DType::bf16 ? FileDType::bf16 : FileDType::f32;
  const HfConfig config = draft_config(m.config, layers, dtype);
  std::optional<JudgedLoss> loss;
  if (!o.data.empty()) loss.emplace(o, m.folder, m.config.spec, tokenizer_of_model_texts(o, m.folder));
  const auto source = open_weights(m.folder, m.config.spec);
  const SafetensorsLayout layout = layout_in(hf_tensors(config.spec), type);
  make_parent("--draft", out);
  DurableFolder building(out);
  create_files(building.building(), layout);
  SharedWriter writer(building.building(), layout);
  write_draft(*source, config.spec, layers, type, writer);
  write_beside(m.folder, config.json, building.building());
  tell_notes(source->notes());
  if (loss) loss->judge(building.building(), "--draft", "take more layers, or train the draft first");
  building.commit();
  std::cout << fmt::format("{}: {} of {} layers ({}), {} tensors in {}; {} bytes\n", out.string(), layers.size(),
                           m.config.spec.num_layers, fmt::join(layers, ", "), layout.num_tensors(), name_of(type),
                           bytes_of_files(layout));
  return kExitOk;
}

}  // namespace weft
