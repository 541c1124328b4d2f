// Forecasts of measured runs (run_rows.h) and how far they are off.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/forecast/price.h"
#include "weft/forecast/run_rows.h"

namespace weft {

// A row that is planned, so that it can be priced with any profile.
struct PlannedRow {
  RunRow row;
  std::string reason;                   // why it cannot be forecast; else empty
  std::vector<std::string> notes;       // where it is planned otherwise than the row says
  bool forecast_only = false;           // in a precision, or with offload, that weft does not train in
  std::shared_ptr<const RunWork> work;  // shared by rows that differ in nothing that is planned
  double bubble_factor = 1;
  double memory_bytes = 0;  // of the fullest rank, as weft plans it ...
  double kept_bytes = 0;    // ... and of it weights, gradients and optimizer state
};
// `progress` hears how many rows are done. Looks at no measured figure.
std::vector<PlannedRow> plan_rows(const std::vector<RunRow>& rows, const std::function<void(size_t)>& progress);

struct RowForecast {
  double tokens_per_s_per_gpu = 0, peak_memory_gib = 0;
};
// Throws nothing; `planned.reason` must be empty.
RowForecast forecast_of(const PlannedRow& planned, const Profiles& profiles);

// The names of its device, dense or MoE, precision: "H100-SXM dense bf16".
std::string stratum_of(const RunRow& row);

// How far forecasts are off, as parts of what was measured.
struct Errors {
  size_t rows = 0;
  double median = 0, p90 = 0;  // of |forecast / measured - 1|
  double bias = 0;             // the median of forecast / measured, - 1
};
Errors errors_of(std::vector<double> ratios);

// Pairs of rows, one of which is the faster: a CSV file with columns faster_id and slower_id.
struct RowPair {
  std::string faster, slower;
};
std::vector<RowPair> read_pairs(const std::filesystem::path& path);

// Profiles fitted to the measured rates of rows, beginning with `base`: each number is moved, one after the other, so
// that the mean of |log(forecast / measured)| falls; the further a number is from `base`, the more it must gain.
// Programs of `base` without a row stay as they are.
Profiles fit_profiles(const std::vector<PlannedRow>& rows, const Profiles& base);

// Each row as it is forecast with profiles fitted to the rows of all other folds alone: leave a whole source out at a
// time, or a model and device. A program that no other fold has is any program. Rows that cannot be forecast: zeros.
std::vector<RowForecast> cross_validate(const std::vector<PlannedRow>& rows, const Profiles& base,
                                        const std::function<std::string(const RunRow&)>& fold_of);

}  // namespace weft
