#include "weft/forecast/score_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

using Ratios = std::map<std::string, std::vector<double>>;

std::vector<ScoreReport::Line> lines_of(const Ratios& ratios) {
  std::vector<ScoreReport::Line> lines;
  for (const auto& [name, values] : ratios) lines.push_back({name, errors_of(values)});
  return lines;
}

bool is_complete(const RunRow& row) { return row.n_layers > 0 && row.d_model > 0 && row.measured_rate(); }

// The ratio of forecast to measured scaling, of each two rows of a group with other numbers of devices.
std::vector<double> scaling_ratios(const std::vector<PlannedRow>& rows, const std::vector<RowForecast>& forecasts) {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].reason.empty() && rows[i].row.measured_rate() && !rows[i].row.group.empty())
      groups[fmt::format("{} {} {}", rows[i].row.group, rows[i].row.precision, rows[i].row.seq_len)].push_back(i);
  std::vector<double> ratios;
  for (const auto& [name, group] : groups)
    for (const size_t a : group)
      for (const size_t b : group) {
        if (rows[a].row.n_gpus >= rows[b].row.n_gpus) continue;
        const double measured = *rows[b].row.measured_rate() / *rows[a].row.measured_rate();
        ratios.push_back(forecasts[b].tokens_per_s_per_gpu / forecasts[a].tokens_per_s_per_gpu / measured);
      }
  return ratios;
}

void add_memory(const PlannedRow& row, const RowForecast& forecast, Ratios& by_kind, ScoreReport& report) {
  const double device_gib = preset_of(row.row.device).device.memory_bytes / double(1 << 30);
  const bool out = row.row.outcome == "OOM", forecast_out = forecast.peak_memory_gib > device_gib;
  ++report.out_of_memory[out][forecast_out];
  if (row.row.peak_memory_gib && !out)
    by_kind[row.row.mem_kind.empty() ? "not said" : row.row.mem_kind].push_back(forecast.peak_memory_gib /
                                                                                *row.row.peak_memory_gib);
}

void add_pairs(const std::vector<PlannedRow>& rows, const std::vector<RowForecast>& forecasts,
               const std::vector<RowPair>& pairs, ScoreReport& report) {
  std::map<std::string, double> rate_of;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].reason.empty()) rate_of[rows[i].row.id] = forecasts[i].tokens_per_s_per_gpu;
  report.pairs = pairs.size();
  for (const RowPair& pair : pairs) {
    const auto faster = rate_of.find(pair.faster), slower = rate_of.find(pair.slower);
    if (faster == rate_of.end() || slower == rate_of.end()) continue;
    report.pairs_right += faster->second > slower->second;
  }
}

std::string table_of(const std::string& title, const std::vector<ScoreReport::Line>& lines) {
  size_t width = title.size();
  for (const auto& line : lines) width = std::max(width, line.name.size());
  std::string text = fmt::format("{:<{}} {:>6} {:>9} {:>9} {:>9}\n", title, width, "rows", "median", "90th", "bias");
  for (const auto& [name, e] : lines)
    text += fmt::format("{:<{}} {:>6} {:>8.1f}% {:>8.1f}% {:>+8.1f}%\n", name, width, e.rows, e.median * 100,
                        e.p90 * 100, e.bias * 100);
  return text;
}

nlohmann::json to_json(const Errors& e) {
  return {{"rows", e.rows}, {"median", e.median}, {"p90", e.p90}, {"bias", e.bias}};
}

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
  std::string text = "\"";
  for (const char c : cell) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

double part_of(size_t some, size_t all) { return all == 0 ? 0 : double(some) / double(all); }

}  // namespace

ScoreReport score_of(const std::vector<PlannedRow>& rows, const std::vector<RowForecast>& forecasts,
                     const std::vector<RowPair>& pairs) {
  ScoreReport report;
  Ratios strata, sources, memory, kinds;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PlannedRow& row = rows[i];
    report.complete += is_complete(row.row);
    if (!row.reason.empty()) {
      report.missing.emplace_back(row.row.id, row.reason);
      continue;
    }
    add_memory(row, forecasts[i], memory, report);
    const auto measured = row.row.measured_rate();
    if (!measured) continue;
    ++report.forecast;
    report.planned_only += row.forecast_only;
    const double ratio = forecasts[i].tokens_per_s_per_gpu / *measured;
    strata[stratum_of(row.row)].push_back(ratio);
    sources[row.row.source].push_back(ratio);
    kinds[row.row.moe_experts > 0 ? "moe" : "dense"].push_back(ratio);
    kinds["all"].push_back(ratio);
  }
  report.strata = lines_of(strata);
  report.sources = lines_of(sources);
  report.memory = lines_of(memory);
  report.dense = errors_of(kinds["dense"]);
  report.moe = errors_of(kinds["moe"]);
  report.all = errors_of(kinds["all"]);
  report.scaling = errors_of(scaling_ratios(rows, forecasts));
  add_pairs(rows, forecasts, pairs, report);
  return report;
}

std::string to_string(const ScoreReport& r) {
  std::string text = table_of("tokens/s by device and precision", r.strata) + "\n" + table_of("by source", r.sources) +
                     "\n" + table_of("over all", {{"dense", r.dense}, {"MoE", r.moe}, {"all", r.all}}) + "\n" +
                     table_of("scaling, one number of devices to another", {{"pairs of a group", r.scaling}});
  if (!r.memory.empty()) text += "\n" + table_of("memory by what was measured", r.memory);
  text += fmt::format(
      "\nout of memory: {} runs that did were forecast to, {} were not; {} runs that did not were forecast to\n",
      r.out_of_memory[1][1], r.out_of_memory[1][0], r.out_of_memory[0][1]);
  if (r.pairs > 0)
    text += fmt::format("pairs ranked right: {} of {} ({:.1f} %)\n", r.pairs_right, r.pairs,
                        part_of(r.pairs_right, r.pairs) * 100);
  text += fmt::format(
      "rows with architecture and throughput: {}, forecast: {} ({:.1f} %); of these {} are planned only: weft does not "
      "train in their precision, or with offload\n",
      r.complete, r.forecast, part_of(r.forecast, r.complete) * 100, r.planned_only);
  if (!r.missing.empty()) text += fmt::format("not forecast ({}):\n", r.missing.size());
  for (const auto& [id, reason] : r.missing) text += fmt::format("  {}: {}\n", id, reason);
  return text;
}

nlohmann::json to_json(const ScoreReport& r) {
  nlohmann::json json{{"dense", to_json(r.dense)},       {"moe", to_json(r.moe)},  {"all", to_json(r.all)},
                      {"scaling", to_json(r.scaling)},   {"complete", r.complete}, {"forecast", r.forecast},
                      {"planned_only", r.planned_only},  {"pairs", r.pairs},       {"pairs_right", r.pairs_right},
                      {"out_of_memory", r.out_of_memory}};
  for (const auto& line : r.strata) json["strata"][line.name] = to_json(line.errors);
  for (const auto& line : r.sources) json["sources"][line.name] = to_json(line.errors);
  for (const auto& line : r.memory) json["memory"][line.name] = to_json(line.errors);
  for (const auto& [id, reason] : r.missing) json["missing"][id] = reason;
  return json;
}

// Of a row that is forecast: what weft does not train, and where it is planned otherwise than it says.
std::string remarks_of(const PlannedRow& row) {
  std::string text =
      row.forecast_only ? "planned only: " + row.row.precision + (row.row.offload.empty() ? "" : ", " + row.row.offload)
                        : "";
  for (const std::string& note : row.notes) text += (text.empty() ? "" : "; ") + note;
  return text;
}

std::string forecasts_csv(const std::vector<PlannedRow>& rows, const std::vector<RowForecast>& forecasts) {
  std::string text = "id,tokens_per_s_per_gpu,peak_memory_gib,reason\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const PlannedRow& row = rows[i];
    if (row.reason.empty())
      text += fmt::format("{},{:.6g},{:.4g},{}\n", quoted(row.row.id), forecasts[i].tokens_per_s_per_gpu,
                          forecasts[i].peak_memory_gib, quoted(remarks_of(row)));
    else
      text += fmt::format("{},,,{}\n", quoted(row.row.id), quoted(row.reason));
  }
  return text;
}

}  // namespace weft
