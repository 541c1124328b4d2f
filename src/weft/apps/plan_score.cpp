// `weft plan score`: forecasts beside what others measured.
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/forecast/link_rows.h"
#include "weft/forecast/score_report.h"

namespace weft {
namespace {

constexpr size_t kFolds = 8;  // of groups

Profiles profiles_for(const PlanScoreOptions& options) {
  if (options.profiles.empty()) return Profiles::built_in();
  std::ifstream file(options.profiles);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw FileError(fmt::format("{}: cannot be read", options.profiles));
  return Profiles::parse(text.str(), options.profiles);
}

std::vector<RowForecast> forecasts_for(const PlanScoreOptions& options, const std::vector<PlannedRow>& planned,
                                       const Profiles& profiles) {
  if (!options.cross_validate.empty()) {
    std::cerr << fmt::format("fitting the numbers of programs once for each {} left out\n", options.cross_validate);
    if (options.cross_validate == "source")
      return cross_validate(planned, profiles, [](const RunRow& r) { return r.source; });
    std::map<std::string, size_t> number;  // of each group: dealt out over few folds, as each is a fit
    for (const PlannedRow& p : planned) number.try_emplace(p.row.group, number.size() % kFolds);
    return cross_validate(planned, profiles, [&](const RunRow& r) { return std::to_string(number.at(r.group)); });
  }
  std::vector<RowForecast> forecasts(planned.size());
  for (size_t i = 0; i < planned.size(); ++i)
    if (planned[i].reason.empty()) forecasts[i] = forecast_of(planned[i], profiles);
  return forecasts;
}

// Printed, or added to the json.
void add_collectives(const std::string& file, nlohmann::json* json) {
  if (json == nullptr) std::cout << "\nmeasured collectives\n";
  for (const LinkErrors& line : link_errors(read_link_rows(file))) {
    const Errors& e = line.errors;
    if (json == nullptr)
      std::cout << fmt::format("  {:<60} {:>4} rows, median {:.1f} %, 90th {:.1f} %, bias {:+.1f} %\n", line.name,
                               e.rows, e.median * 100, e.p90 * 100, e.bias * 100);
    else
      (*json)["collectives"][line.name] = {{"rows", e.rows}, {"median", e.median}, {"p90", e.p90}, {"bias", e.bias}};
  }
}

}  // namespace

int run_plan_score(const PlanScoreOptions& options) {
  if (options.again && options.out.empty() && options.fit.empty())
    throw ConfigError("--again replaces the file of --out or --fit: it needs one of them");
  if (!options.out.empty()) require_replaceable("--out", options.out, options.again);
  if (!options.fit.empty()) require_replaceable("--fit", options.fit, options.again);
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
  const std::vector<RowForecast> forecasts = forecasts_for(options, planned, profiles);
  if (!options.out.empty()) write_file_durably(options.out, forecasts_csv(planned, forecasts));
  const ScoreReport report = score_of(planned, forecasts, pairs);
  nlohmann::json json = options.json ? to_json(report) : nlohmann::json();
  if (!options.json) std::cout << to_string(report);
  if (!options.collectives.empty()) add_collectives(options.collectives, options.json ? &json : nullptr);
  if (options.json) std::cout << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  return kExitOk;
}

}  // namespace weft
