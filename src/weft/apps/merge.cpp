#include <fmt/format.h>

#include <filesystem>
#include <iostream>

#include "weft/apps/commands.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/models/hf_weights.h"
#include "weft/models/merge_adapter.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/checkpoint_companions.h"
#include "weft/train/text_generator.h"
#include "weft/train/trained_context.h"

namespace weft {

int run_merge(const MergeOptions& o) {
  namespace fs = std::filesystem;
  const fs::path adapter = model_folder_of(o.adapter, [](const std::string& line) { std::cerr << line << "\n"; });
  const fs::path out = fs::path(o.out).lexically_normal();
  HfConfig config = read_hf_config(adapter);
  if (!config.adapter)
    throw ConfigError(fmt::format("{}: has no adapter_config.json: there is nothing to merge", adapter.string()));
  if (is_there(out)) throw ConfigError(fmt::format("--out {}: is there already: name a new folder", o.out));
  const fs::path base = base_of_adapter(adapter, *config.adapter);
  const DType dtype = merged_dtype(base);
  ModelSpec plain = config.spec;
  plain.adapter.reset();
  const SafetensorsLayout layout = hf_layout(plain, dtype);
  std::error_code error;
  if (out.has_parent_path()) fs::create_directories(out.parent_path(), error);
  if (error) throw FileError(fmt::format("{}: {}; choose another --out", o.out, error.message()));
  DurableFolder folder(out);
  create_files(folder.building(), layout);
  write_merged(adapter, config, layout, dtype, folder.building());
  write_file_durably(folder.building() / "config.json", config_of_merged(adapter, config, dtype).dump(2) + "\n");
  if (!find_tokenizer(adapter).empty()) copy_companions(adapter, {}, folder.building());
  copy_companions(base, {}, folder.building());  // what is not there yet
  folder.commit();
  std::cout << fmt::format("{}: {} with the adapter {}, {} of its matrices changed by it{}\n", out.string(),
                           base.string(), adapter.string(), config.spec.adapter->targets.size(),
                           config.spec.adapter->base_codes == WeightCodes::none
                               ? ""
                               : "; those of blocks are what the codes beside it stood for");
  return kExitOk;
}

}  // namespace weft
