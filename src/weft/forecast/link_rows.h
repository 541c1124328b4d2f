// Measured collectives, one to a row of a CSV file (NCCL's tests and the like), and what link_time says of each.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/forecast/links.h"
#include "weft/forecast/score.h"

namespace weft {

struct LinkRow {
  int64_t line = 0;
  std::string system, collective;
  int ranks = 0, nodes = 1;
  double message_bytes = 0;  // 0: the source does not say: a large one
  double bytes_per_s = 0;    // as measured: what leaves each rank in a second ("bus bandwidth")
};

// Columns system, n_gpus, nodes, collective, message_bytes, busbw_gb_s; others are passed over. Throws FileError with
// line and column for what is no number or out of range.
std::vector<LinkRow> read_link_rows(const std::filesystem::path& path);

// Bytes a second that leave each rank. Throws ConfigError where no preset is of the row's system.
double forecast_of(const LinkRow& row);

// "8xH200 NVLink4 node, all_reduce": how far the forecasts of its rows are off.
struct LinkErrors {
  std::string name;
  Errors errors;
};
std::vector<LinkErrors> link_errors(const std::vector<LinkRow>& rows);

}  // namespace weft
