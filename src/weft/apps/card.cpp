// `weft card`.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "weft/apps/commands.h"
#include "weft/apps/governance.h"
#include "weft/apps/required_results.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/plain_file.h"
#include "weft/history/model_card.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// A card that somebody else wrote, or wrote on, stays.
void require_own_card(const fs::path& file, bool force) {
  constexpr int64_t kMostBytes = 64 << 20;
  if (!is_plain_file(file, kMostBytes) || force) return;
  std::stringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  if (text.str().find(kCardMark) == std::string::npos)
    throw ConfigError(
        fmt::format("{}: is there already, and weft did not write it: --force replaces it, --out names another file",
                    file.string()));
}

}  // namespace

int run_card(const CardOptions& o) {
  const fs::path folder = model_folder_of(o.model, [](const std::string& line) { std::cerr << line << "\n"; });
  if (!fs::is_directory(folder) && o.out.empty())
    throw ConfigError(fmt::format("{}: is no folder: --out FILE says where its card is to be", folder.string()));
  const fs::path file = o.out.empty() ? folder / "README.md" : fs::path(o.out);
  require_own_card(file, o.force);
  const ModelOrigin origin = origin_of(folder);
  const HfConfig config = read_hf_config(folder);
  const CardFacts facts{.origin = origin,
                        .config = config,
                        .results = recorded_results(folder, o.results),
                        .licence = o.licence,
                        .watts = o.watts,
                        .grams_per_kwh = o.grams_per_kwh.value_or(kUsualGramsPerKwh),
                        .source_of_grams = o.grams_per_kwh ? "as the author of this card says" : kSourceOfUsualGrams};
  write_file_durably(file, model_card(facts));
  std::cout << fmt::format("{}: written\n", file.string());
  return kExitOk;
}

}  // namespace weft
