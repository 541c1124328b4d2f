// What a search is asked and what it says, as text and JSON.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/forecast/layout_planner.h"
#include "weft/forecast/search_parts.h"

namespace weft {
namespace {

constexpr double kGiBOfMemory = double(1 << 30), kMJ = 1e6;
constexpr int64_t kMostDevices = kMostRanks;

// The number that the text is; none for anything else.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string step_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string row_of(const FoundLayout& f) {
  return fmt::format("{:>8} {:>10} {:>12.0f} {:>7.1f} {:>8.1f} {:>10} {:>10}  {}\n", f.layout.num_devices(),
                     step_text(f.step.step_s), f.tokens_per_s, f.mfu * 100, double(f.memory_bytes) / kGiBOfMemory,
                     f.price > 0 ? fmt::format("{:.4g}", f.price) : "-",
                     f.joules > 0 ? fmt::format("{:.4g}", f.joules / kMJ) : "-", to_string(f.layout));
}

std::string heading() {
  return fmt::format("{:>8} {:>10} {:>12} {:>7} {:>8} {:>10} {:>10}  layout\n", "devices", "step", "tokens/s", "MFU %",
                     "GiB", "price", "MJ");
}

nlohmann::json json_of(const FoundLayout& f) {
  return {{"num_devices", f.layout.num_devices()},
          {"step_s", f.step.step_s},
          {"tokens_per_s", f.tokens_per_s},
          {"mfu", f.mfu},
          {"memory_bytes", f.memory_bytes},
          {"price_per_step", f.price},
          {"joules_per_step", f.joules},
          {"layout", settings_json(f.layout)},
          {"neighbours", f.neighbours}};
}

}  // namespace

nlohmann::json settings_json(const LayoutChoice& c) {
  nlohmann::json json{{"parallel.dp", c.dp},
                      {"parallel.tp", c.tp},
                      {"parallel.pp", c.pp},
                      {"parallel.cp", c.cp},
                      {"parallel.ep", c.ep},
                      {"parallel.zero_stage", c.zero_stage},
                      {"parallel.zero_shard_size", c.zero_shard_size},
                      {"parallel.recompute", name_of(c.recompute)},
                      {"parallel.pipeline_schedule", name_of(c.schedule)},
                      {"parallel.virtual_pipeline_parallel_size", c.chunks},
                      {"parallel.cp_comm_type", name_of(c.cp_comm_type)},
                      {"parallel.cp_a2a_size", c.cp_a2a_size},
                      {"parallel.sequence_parallel", c.sequence_parallel},
                      {"train.micro_batch_size", c.micro_batch_size}};
  if (!c.order.empty()) json["parallel.order"] = c.order;
  return json;
}

std::string device_counts_text(const SearchSpec& spec) {
  if (spec.device_counts.size() == 1) return fmt::format("{}", spec.device_counts[0]);
  return fmt::format("{} to {}", spec.device_counts.front(), spec.device_counts.back());
}

std::string counts_text(const SearchCounts& n) {
  return fmt::format(
      "  {} do not fit ({} of them measured), {} cannot run, {} are beyond deadline or budget, {} cannot be better; {} "
      "planned whole\n  beside {} cuts that the model does not allow\n",
      n.too_large + n.measured_large, n.measured_large, n.cannot_run, n.too_slow, n.beaten, n.planned, n.refused);
}

nlohmann::json counts_json(const SearchCounts& n, const SearchSpec& spec) {
  return {{"objective", name_of(spec.objective)},
          {"device_counts", spec.device_counts},
          {"layouts", n.layouts},
          {"refused", n.refused},
          {"do_not_fit", n.too_large + n.measured_large},
          {"cannot_run", n.cannot_run},
          {"too_slow", n.too_slow},
          {"cannot_be_better", n.beaten},
          {"planned", n.planned},
          {"best", nlohmann::json::array()}};
}

std::vector<int64_t> device_counts_of(const std::string& text, const ClusterSpec& cluster) {
  const size_t dots = text.find("..");
  const auto low = number_of<int64_t>(text.substr(0, dots)),
             high = dots == std::string::npos ? low : number_of<int64_t>(text.substr(dots + 2));
  if (!low || !high || *low < 1 || *high < *low || *high > kMostDevices)
    throw ConfigError(
        fmt::format("--ranks {}: must be a number of devices or a range of them, from 1 to {}, as in 64 "
                    "or 8..1024",
                    text, kMostDevices));
  std::vector<int64_t> counts{*low, *high};
  for (int64_t n = 1; n < cluster.devices_per_node; ++n)
    if (cluster.devices_per_node % n == 0) counts.push_back(n);
  for (int64_t n = cluster.devices_per_node; n <= *high; n *= 2) counts.push_back(n);
  std::erase_if(counts, [&](int64_t n) { return n < *low || n > *high; });
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

double seconds_of_duration(const std::string& text) {
  constexpr std::pair<char, double> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  for (const auto& [letter, seconds] : kUnits) {
    if (text.empty() || text.back() != letter) continue;
    const auto number = number_of<double>(std::string_view(text).substr(0, text.size() - 1));
    if (number && *number > 0 && *number < 1e9) return *number * seconds;
  }
  throw ConfigError(
      fmt::format("--deadline {}: must be a number above 0 with its unit, s, m, h or d, as in 36h", text));
}

std::string to_string(const SearchResult& r, const SearchSpec& spec) {
  std::string text = fmt::format(
      "searched {} layouts on {} {}, by {}; a layout may take {:.1f} of {:.1f} GiB ({:.1f} are left for contexts and "
      "buffers of libraries)\n",
      r.counts.layouts, device_counts_text(spec), r.cluster.device.name, name_of(spec.objective),
      r.room_bytes / kGiBOfMemory, r.cluster.device.memory_bytes / kGiBOfMemory, spec.reserve_bytes / kGiBOfMemory);
  text += counts_text(r.counts);
  if (r.best.empty()) return text + "\n" + r.nearest + "\n";
  text += fmt::format("\nthe best\n{}", heading());
  for (const FoundLayout& f : r.best) text += row_of(f) + "         " + f.neighbours + "\n";
  text += fmt::format("\nthe best leaves unused {}\n", to_string(r.right, r.best[0], r.room_bytes));
  text += fmt::format(
      "\nfor each number of devices the fastest within all and within half of that memory, without those that "
      "another "
      "beats in step, price, devices and memory\n{}",
      heading());
  for (const FoundLayout& f : r.front) text += row_of(f);
  return text;
}

nlohmann::json to_json(const SearchResult& r, const SearchSpec& spec) {
  nlohmann::json json = counts_json(r.counts, spec);
  json["device"] = r.cluster.device.name;
  json["room_bytes"] = r.room_bytes;
  json["front"] = nlohmann::json::array();
  for (const FoundLayout& f : r.best) json["best"].push_back(json_of(f));
  for (const FoundLayout& f : r.front) json["front"].push_back(json_of(f));
  if (!r.nearest.empty()) json["nearest"] = r.nearest;
  if (r.best.empty()) return json;
  json["unused"]["memory_bytes"] = r.right.unused_bytes;
  if (r.right.half) json["unused"]["half_of_the_devices"] = json_of(*r.right.half);
  if (r.right.enough) json["unused"]["enough_devices"] = json_of(*r.right.enough);
  return json;
}

}  // namespace weft
