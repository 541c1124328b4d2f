// `weft log`.
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/commands.h"
#include "weft/apps/governance.h"
#include "weft/apps/release.h"
#include "weft/base/error.h"
#include "weft/history/chained_log.h"
#include "weft/models/fingerprint.h"
#include "weft/train/text_generator.h"

namespace weft {

int run_log_verify(const LogOptions& o) {
  const LogCheck check = check_log(o.file, o.hash);
  if (!check.fault.empty()) {
    std::cout << fmt::format("{}: {}; {} lines before it are whole\n", o.file, check.fault, check.lines);
    return kExitFailure;
  }
  if (!o.hash.empty() && !check.has_hash) {
    std::cout << fmt::format("{}: no line has the hash {}: its end was cut off, or it is another log\n", o.file,
                             o.hash);
    return kExitFailure;
  }
  std::cout << fmt::format("{}: whole, {} lines; the last has the hash {}\n", o.file, check.lines,
                           check.head.empty() ? "(none)" : check.head);
  return kExitOk;
}

int run_log_add(const LogOptions& o) {
  nlohmann::ordered_json entry = log_entry("note");
  entry["text"] = o.text;
  if (!o.model.empty()) {
    const auto folder = model_folder_of(o.model, [](const std::string& line) { std::cerr << line << "\n"; });
    const ModelOrigin origin = origin_of(folder);
    entry["models"] = nlohmann::ordered_json::array();
    entry["models"].push_back({{"path", origin.folder.string()},
                               {"weights", fingerprint_of_weights(folder)},
                               {"parts", to_json(origin.parts)}});
  }
  std::cout << append_to_log(o.file, entry) << "\n";
  return kExitOk;
}

}  // namespace weft
