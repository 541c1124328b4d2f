// What ranks sent each other in one step of a run (traffic.json), as a matrix for each axis.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace weft {

inline constexpr int kMostTrafficRanks = 1024;
inline constexpr int kMostTrafficCells = 64;  // rows and columns: more ranks share them

// What /api/traffic says beside the run (docs/formats/page.md), of a run's folder. Throws FileError where the file is
// not as docs/formats/metrics.md has it.
nlohmann::ordered_json traffic_map(const std::filesystem::path& run);

}  // namespace weft
