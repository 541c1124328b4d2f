// Any JSON as a dataset's manifest, signed as if weft had written it: refused with an Error, or audited, compared with
// itself and asked for a token file, for its sources and for what it holds out.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "temporary_folder.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/pipeline/dataset.h"
#include "weft/pipeline/dataset_files.h"
#include "weft/pipeline/provenance.h"

namespace {

namespace fs = std::filesystem;

// With a token file, so that a manifest that lists train-00000 is believed further.
struct DatasetFolder : TemporaryFolder {
  DatasetFolder() {
    fs::create_directories(path() / "tokens");
    for (const char* name : {"train-00000.bin", "train-00000.idx", "train-00000.documents"})
      std::ofstream(path() / "tokens" / name) << "12345678";
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const DatasetFolder made;
  const fs::path& folder = made.path();
  nlohmann::json manifest;
  try {
    manifest = weft::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const weft::Error&) { return 0; }
  if (!manifest.is_object()) return 0;
  manifest.erase("version");
  manifest["version"] = weft::to_hex(weft::hash128(manifest.dump()));
  std::ofstream(folder / "manifest.json") << manifest.dump();
  try {
    const weft::Dataset dataset = weft::open_dataset(folder);
    if (!weft::differences(dataset, dataset).empty()) std::abort();
    weft::audit_dataset(folder);
    if (const auto file = weft::find_dataset(folder / "tokens" / "train-00000")) weft::Provenance{*file}.document(0);
  } catch (const weft::Error&) {}
  for (const auto part : {weft::DatasetPart::train, weft::DatasetPart::valid}) {
    try {
      if (weft::dataset_sources(folder, part).at(0).files.empty()) std::abort();
    } catch (const weft::Error&) {}
  }
  return 0;
}
