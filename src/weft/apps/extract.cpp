#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/judged_loss.h"
#include "weft/apps/new_folder.h"
#include "weft/apps/progress_lines.h"
#include "weft/base/durable_file.h"
#include "weft/base/threads.h"
#include "weft/models/extract_adapter.h"
#include "weft/models/hf_weights.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/checkpoint_companions.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void tell(const Extracted& e, const ExportOptions& o) {
  if (!e.others.empty())
    std::cout << fmt::format(
        "note: left out, as no adapter of it is made: {}{}, which differ{} too, by {:.3g} % of the whole difference\n",
        e.others[0], e.others.size() > 1 ? fmt::format(" and {} other tensors", e.others.size() - 1) : "",
        e.others.size() > 1 ? "" : "s", 100 * e.others_all / std::hypot(e.others_all, e.all));
  std::cout << fmt::format(
      "{}: {} matrices, rank {}: lacks {:.3g} % of the difference (root of the sum of squares), at worst {:.3g} %, of "
      "{}\n",
      o.out, e.num_matrices, o.rank, 100 * e.left / e.all, 100 * e.worst_share, e.worst);
}

}  // namespace

int run_extract(const ExportOptions& o) {
  const auto say = [](const std::string& line) { std::cerr << line << "\n"; };
  const fs::path model = model_folder_of(o.model, say), out = require_new_folder("--out", o.out);
  const ExtractRequest request{.model = model,
                               .base = fs::absolute(model_folder_of(o.lora_of, say)).lexically_normal(),
                               .rank = o.rank,
                               .targets = o.targets,
                               .threads = o.threads > 0 ? int(o.threads) : usable_cores()};
  const HfConfig config = extracted_config(request);
  std::optional<JudgedLoss> loss;
  if (!o.data.empty())
    loss.emplace(o, model, config.spec, tokenizer_of_model(model, recipe_of_checkpoint(model), "auto").name);
  const SafetensorsLayout layout = hf_layout(config.spec, DType::f32);
  make_parent("--out", out);
  DurableFolder folder(out);
  create_files(folder.building(), layout);
  ProgressLines progress("matrices");
  const Extracted extracted = write_extracted(request, config, layout, folder.building(),
                                              [&](int64_t done, int64_t all) { progress(done, all); });
  write_file_durably(folder.building() / "adapter_config.json", to_json(*config.adapter, config.spec).dump(2) + "\n");
  if (!find_tokenizer(model).empty()) copy_companions(model, {}, folder.building());
  if (loss) loss->judge(folder.building(), fmt::format("--rank {}", o.rank), "take a larger --rank, or more --targets");
  folder.commit();
  tell(extracted, o);
  return kExitOk;
}

}  // namespace weft
