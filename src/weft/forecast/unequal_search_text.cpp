// Searches on unequal devices as text and JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/forecast/search_parts.h"
#include "weft/forecast/unequal_search.h"
#include "weft/schedule/shares.h"

namespace weft {
namespace {

constexpr double kGiBOfStage = double(1 << 30), kMJOfStep = 1e6;

std::string money_text(double value) { return value > 0 ? fmt::format("{:.4g}", value) : "-"; }

std::string unequal_row(const UnequalLayout& l) {
  const UnequalForecast& f = l.forecast;
  return fmt::format("{:>8} {:>10} {:>12.0f} {:>7.1f} {:>10} {:>10}  {}\n", f.num_devices(),
                     duration_text(f.step.step_s), f.tokens_per_s(), f.mfu() * 100, money_text(f.price_per_step()),
                     money_text(f.joules_per_step() / kMJOfStep), to_string(l.layout));
}

// "stage 0: 12 blocks on H100-SXM, busy 1.20 s, 61.0 of 72.5 GiB"; stages that are alike in all but the time as one.
std::string stages_of_row(const UnequalLayout& l) {
  const UnequalForecast& f = l.forecast;
  std::string text;
  for (size_t s = 0; s < f.stages.size(); ++s) {
    const UnequalStage& stage = f.stages[s];
    text += fmt::format("         stage {}: {} blocks on {}, busy {}, {:.1f} of {:.1f} GiB\n", s, stage.blocks,
                        f.cluster.kinds[stage.slowest].device.name +
                            (stage.kinds.size() == 1 ? ""
                             : f.shares.empty()      ? " and quicker devices, which wait for it"
                                                     : " and others, whose ranks have other shares of the batch"),
                        duration_text(stage.busy_s), double(stage.memory_bytes) / kGiBOfStage,
                        stage.room_bytes / kGiBOfStage);
  }
  return text;
}

}  // namespace

std::string to_string(const UnequalSearchResult& r, const UnequalCluster& cluster, const SearchSpec& spec) {
  std::string devices;
  for (const ClusterSpec& kind : cluster.kinds)
    devices += fmt::format("{}{} {}", devices.empty() ? "" : ", ", kind.num_devices, kind.device.name);
  std::string text = fmt::format("searched {} layouts on {} of {}, by {}\n", r.counts.layouts, device_counts_text(spec),
                                 devices, name_of(spec.objective));
  text += counts_text(r.counts);
  if (r.not_looked_at > 0)
    text += fmt::format("  {} more might be as good by their bounds, and were not planned\n", r.not_looked_at);
  if (r.best.empty()) return text + "\n" + r.nearest + "\n";
  text += fmt::format("\nthe best\n{:>8} {:>10} {:>12} {:>7} {:>10} {:>10}  layout\n", "devices", "step", "tokens/s",
                      "MFU %", "price", "MJ");
  for (const UnequalLayout& l : r.best) text += unequal_row(l) + stages_of_row(l);
  const UnequalForecast& best = r.best[0].forecast;
  if (best.work.mesh.pp > 1)
    text += fmt::format("\nthe best one's cut of the blocks: parallel.pipeline_layout = {}\n", to_string(best.blocks));
  if (!best.shares.empty())
    text +=
        fmt::format("\nthe best one's shares of the batch: parallel.micro_batches = {}\n", text_of_shares(best.shares));
  return text;
}

nlohmann::json to_json(const UnequalSearchResult& r, const SearchSpec& spec) {
  nlohmann::json json = counts_json(r.counts, spec);
  json["not_looked_at"] = r.not_looked_at;
  for (const UnequalLayout& l : r.best) {
    nlohmann::json one = to_json(l.forecast, std::nullopt, spec.steps);
    one.erase("better_cut");
    one.erase("better_shares");
    one["layout"] = settings_json(l.layout);
    if (l.layout.pp > 1) one["layout"]["parallel.pipeline_layout"] = l.forecast.blocks;
    if (!l.forecast.shares.empty()) one["layout"]["parallel.micro_batches"] = l.forecast.shares;
    json["best"].push_back(std::move(one));
  }
  if (!r.nearest.empty()) json["nearest"] = r.nearest;
  return json;
}

}  // namespace weft
