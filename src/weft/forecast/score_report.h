// What `weft plan score` prints: how far forecasts of measured runs are off, by kind of run.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "weft/forecast/score.h"

namespace weft {

struct ScoreReport {
  struct Line {
    std::string name;
    Errors errors;
  };
  std::vector<Line> strata;  // device, dense or MoE, precision
  std::vector<Line> sources;
  Errors dense, moe, all;
  // Rows whose source says architecture and throughput; of them those that are forecast; all that are not, with why.
  size_t complete = 0, forecast = 0;
  std::vector<std::pair<std::string, std::string>> missing;
  size_t planned_only = 0;   // of those that are forecast: weft does not train in their precision or with offload
  std::vector<Line> memory;  // by what the source measured
  // Runs [measured][forecast]: 0 fits, 1 out of memory.
  std::array<std::array<size_t, 2>, 2> out_of_memory = {};
  Errors scaling;  // of the ratio of two rates of a group, one device count to another
  size_t pairs = 0, pairs_right = 0;
};

// `forecasts` in the order of `rows`; those of rows with a reason are not looked at.
ScoreReport score_of(const std::vector<PlannedRow>& rows, const std::vector<RowForecast>& forecasts,
                     const std::vector<RowPair>& pairs);
std::string to_string(const ScoreReport& report);
nlohmann::json to_json(const ScoreReport& report);

// id,tokens_per_s_per_gpu,peak_memory_gib,reason: a line for every row.
std::string forecasts_csv(const std::vector<PlannedRow>& rows, const std::vector<RowForecast>& forecasts);

}  // namespace weft
