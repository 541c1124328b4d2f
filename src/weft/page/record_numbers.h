// A line of metrics.jsonl as numbers with names, without knowing which fields there are (docs/formats/page.md).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

enum class RecordKind : uint8_t { step, held_out, task };
std::string_view name_of(RecordKind kind);

struct RecordNumbers {
  int64_t step = 0;
  RecordKind kind = RecordKind::step;
  // As the page names them: "loss", "waits_s.tp", "router_entropy.0", "expert_load.0.max_over_mean", "held_out.loss",
  // "piqa.acc". NaN where it is null.
  std::vector<std::pair<std::string, double>> numbers = {};
};

// Whether the line is a record; else `record` is left in any state. Any text may be given: at most kMostNumbers are
// taken, what is nested deeper is passed over, as is what has no name or one of more than kLongestKey bytes, and memory
// does not grow with the depth.
inline constexpr size_t kMostNumbers = 4096, kLongestKey = 200;
bool read_record(std::string_view line, RecordNumbers& record);

}  // namespace weft
