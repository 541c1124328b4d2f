// `weft plan score`: forecasts beside what others measured.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "weft/apps/commands.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/forecast/score_report.h"

namespace weft {
namespace {

Profiles profiles_for(const PlanScoreOptions& options) {
  if (options.profiles.empty()) return Profiles::built_in();
  std::ifstream file(options.profiles);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw FileError(fmt::format("{}: cannot be read", options.profiles));
  return Profiles::parse(text.str(), options.profiles);
}

}  // namespace

int run_plan_score(const PlanScoreOptions& options) {
  const std::vector<RunRow> rows = read_run_rows(options.rows);
  const std::vector<RowPair> pairs = options.pairs.empty() ? std::vector<RowPair>() : read_pairs(options.pairs);
  Profiles profiles = profiles_for(options);
  const std::vector<PlannedRow> planned = plan_rows(rows, [&](size_t done) {
    if (done % 100 == 0) std::cerr << fmt::format("planned {} of {} rows\n", done, rows.size());
  });
  if (!options.fit.empty()) {
    profiles = fit_profiles(planned, profiles);
    write_file_durably(options.fit, profiles.to_toml());
  }
  std::vector<RowForecast> forecasts(planned.size());
  for (size_t i = 0; i < planned.size(); ++i)
    if (planned[i].reason.empty()) forecasts[i] = forecast_of(planned[i], profiles);
  if (!options.out.empty()) write_file_durably(options.out, forecasts_csv(planned, forecasts));
  const ScoreReport report = score_of(planned, forecasts, pairs);
  std::cout << (options.json ? to_json(report).dump(1) + "\n" : to_string(report));
  return kExitOk;
}

}  // namespace weft
