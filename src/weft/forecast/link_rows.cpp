#include "weft/forecast/link_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "weft/base/error.h"
#include "weft/forecast/csv.h"

namespace weft {
namespace {

constexpr double kLargeMessage = 512e6;  // of rows that do not say a size
constexpr double kMostNumber = 1e15;
constexpr int kNode = 8;  // devices of every node in such files

double number_of(const std::string& cell, const std::string& where, double least) {
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value) || value < least || value > kMostNumber)
    throw FileError(fmt::format("{} = \"{}\" must be a number from {:g} to {:g}", where, cell, least, kMostNumber));
  return value;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

ClusterSpec cluster_of(const LinkRow& row) {
  std::string best, best_chip;  // the longest chip's name that is there: GB200 has B200 in it
  for (const std::string& name : device_names()) {
    const std::string chip = name.starts_with("RTX") ? name : name.substr(0, name.find('-'));
    if (has(row.system, chip) && chip.size() > best_chip.size()) best = name, best_chip = chip;
  }
  if (!best.empty()) return preset_of(best == "A100-SXM-40GB" ? "A100-SXM-80GB" : best);
  if (!has(row.system, "8-GPU node")) throw ConfigError(fmt::format("no preset is of the system \"{}\"", row.system));
  ClusterSpec c = preset_of("A100-SXM-80GB");  // what its rates inside a node are like
  c.scale_out.bytes_per_s = 12.5e9;
  return c;
}

Exchange exchange_of(const LinkRow& row) {
  const std::string& name = row.collective;
  if (has(name, "all2all") || has(name, "all_to_all")) return Exchange::all_to_all;
  if (has(name, "gather") || has(name, "scatter")) return Exchange::gather;
  if (has(name, "pp_size") || has(name, "send")) return Exchange::message;
  return Exchange::all_reduce;
}

// "consec_1": ranks that are next to each other; "consec_0": as far apart as they can be.
AxisSpread spread_of(const LinkRow& row) {
  const bool crosses = row.nodes > 1 && !has(row.collective, "consec_1");
  AxisSpread spread{.ranks = row.ranks, .in_domain = std::min(row.ranks, kNode)};
  if (exchange_of(row) == Exchange::message) spread = {.ranks = 2, .in_domain = 2};
  if (crosses) spread.in_domain = std::max(1, spread.ranks / row.nodes);
  return spread;
}

}  // namespace

std::vector<LinkRow> read_link_rows(const std::filesystem::path& path) {
  CsvReader csv(path);
  const auto column = [&](const char* name) {
    const auto found = std::find(csv.names().begin(), csv.names().end(), name);
    if (found == csv.names().end()) throw FileError(fmt::format("{}: line 1 has no column {}", path.string(), name));
    return size_t(found - csv.names().begin());
  };
  const size_t system = column("system"), ranks = column("n_gpus"), nodes = column("nodes"),
               collective = column("collective"), bytes = column("message_bytes"), rate = column("busbw_gb_s");
  std::vector<LinkRow> rows;
  while (const auto cells = csv.next()) {
    const auto number = [&](size_t at, const char* name, double least) {
      return number_of((*cells)[at], fmt::format("{}:{}: {}", path.string(), csv.line(), name), least);
    };
    LinkRow& row = rows.emplace_back();
    row.line = csv.line();
    row.system = (*cells)[system];
    row.collective = (*cells)[collective];
    row.ranks = int(std::min(number(ranks, "n_gpus", 2), 1e6));
    row.nodes = int(std::min(number(nodes, "nodes", 1), 1e6));
    row.message_bytes = (*cells)[bytes].empty() ? 0 : number(bytes, "message_bytes", 1);
    row.bytes_per_s = number(rate, "busbw_gb_s", 1e-6) * 1e9;
  }
  return rows;
}

double forecast_of(const LinkRow& row) {
  const Exchange what = exchange_of(row);
  const double message = row.message_bytes > 0 ? row.message_bytes : kLargeMessage;
  const double others = double(row.ranks - 1) / row.ranks;  // of the ranks
  const double bytes = message * (what == Exchange::all_reduce ? 2 * others : what == Exchange::message ? 1 : others);
  const ProgramProfile usual;
  return bytes /
         seconds_of(link_time(what, bytes, spread_of(row), cluster_of(row)), usual.network, usual.hop_us * 1e-6);
}

std::vector<LinkErrors> link_errors(const std::vector<LinkRow>& rows) {
  std::map<std::string, std::vector<double>> ratios;
  for (const LinkRow& row : rows)
    ratios[fmt::format("{}, {}", row.system, row.collective)].push_back(forecast_of(row) / row.bytes_per_s);
  std::vector<LinkErrors> errors;
  for (const auto& [name, of_name] : ratios) errors.push_back({name, errors_of(of_name)});
  return errors;
}

}  // namespace weft
