// Forecasts on unequal devices as text and JSON.
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/forecast/time_parts.h"
#include "weft/forecast/unequal_forecast.h"

namespace weft {
namespace {

constexpr double kBytesOfGiB = double(1 << 30), kWaits = 0.01;  // of a stage's time: less is not said

std::string device_of(const UnequalForecast& f, size_t kind) { return f.cluster.kinds[kind].device.name; }

// "A100-SXM-80GB, H100-SXM"
std::string devices_of(const UnequalForecast& f, const UnequalStage& stage) {
  std::string text;
  for (const size_t k : stage.kinds) text += (text.empty() ? "" : ", ") + device_of(f, k);
  return text;
}

std::string heading_of(const UnequalForecast& f) {
  std::string devices;
  for (size_t k = 0; k < f.used.size(); ++k)
    if (f.used[k] > 0) devices += fmt::format("{}{} {}", devices.empty() ? "" : ", ", f.used[k], device_of(f, k));
  return fmt::format("forecast on {} devices, {}:\n", f.num_devices(), devices);
}

std::string figures_of(const UnequalForecast& f, int64_t steps) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<30}{}\n", name, value);
  };
  const double price = f.price_per_step();
  line("step", duration_text(f.step.step_s));
  line("tokens/s", fmt::format("{:.0f} ({:.0f} a device)", f.tokens_per_s(), f.tokens_per_s() / f.num_devices()));
  line("MFU", fmt::format("{:.1f} % of all devices' peaks", f.mfu() * 100));
  if (f.joules_per_step() > 0) line("energy, at most", fmt::format("{:.4g} kJ a step", f.joules_per_step() / 1e3));
  if (price > 0)
    line("price", fmt::format("{:.4g} a step, {:.4g} a million tokens", price, price / f.work.tokens * 1e6));
  if (steps > 0)
    line("the run", fmt::format("{} steps, {}{}", steps, duration_text(f.step.step_s * double(steps)),
                                price > 0 ? fmt::format(", {:.4g}", price * double(steps)) : ""));
  return text;
}

std::string stages_text(const UnequalForecast& f) {
  std::string text = fmt::format("\n{:>5} {:>7} {:>7} {:>10} {:>18}  {}\n", "stage", "ranks", "blocks", "busy",
                                 "memory, GiB", "devices");
  for (size_t i = 0; i < f.stages.size(); ++i) {
    const UnequalStage& s = f.stages[i];
    text +=
        fmt::format("{:>5} {:>7} {:>7} {:>10} {:>18}  {}{}\n", i, s.ranks, s.blocks, duration_text(s.busy_s),
                    fmt::format("{:.1f} of {:.1f}", double(s.memory_bytes) / kBytesOfGiB, s.device_bytes / kBytesOfGiB),
                    devices_of(f, s), s.fits() ? "" : ": does not fit");
    if (s.quickest_s < (1 - kWaits) * s.busy_s)
      text += fmt::format("{:>52}  {} would take {}: they wait for {}, as each has equally many micro-batches\n", "",
                          device_of(f, s.quickest), duration_text(s.quickest_s), device_of(f, s.slowest));
  }
  return text;
}

std::string cut_text(const UnequalForecast& f, const std::optional<UnequalForecast>& better) {
  if (better)
    return fmt::format("\na better cut of the blocks: parallel.pipeline_layout = {}: {} a step ({:+.1f} %){}\n",
                       to_string(better->blocks), duration_text(better->step.step_s),
                       (better->step.step_s / f.step.step_s - 1) * 100,
                       f.fits() ? "" : ", and fits, which this one does not");
  if (!f.fits()) return "\nit does not fit, and no cut of the blocks over these stages was found that does\n";
  return f.work.mesh.pp > 1 ? "\nno better cut of the blocks over these stages was found\n" : "";
}

nlohmann::json json_of(const UnequalForecast& f, const UnequalStage& s) {
  nlohmann::json devices = nlohmann::json::array();
  for (const size_t k : s.kinds) devices.push_back(device_of(f, k));
  return {{"devices", devices},
          {"num_ranks", s.ranks},
          {"blocks", s.blocks},
          {"busy_s", s.busy_s},
          {"slowest", device_of(f, s.slowest)},
          {"quickest_s", s.quickest_s},
          {"memory_bytes", s.memory_bytes},
          {"device_memory_bytes", s.device_bytes},
          {"fits", s.fits()}};
}

}  // namespace

std::string to_string(const UnequalForecast& f, const std::optional<UnequalForecast>& better, int64_t steps) {
  return heading_of(f) + figures_of(f, steps) + stages_text(f) + cut_text(f, better) + time_parts_text(f.step);
}

nlohmann::json to_json(const UnequalForecast& f, const std::optional<UnequalForecast>& better, int64_t steps) {
  nlohmann::json json{{"num_devices", f.num_devices()},
                      {"step_s", f.step.step_s},
                      {"tokens_per_s", f.tokens_per_s()},
                      {"mfu", f.mfu()},
                      {"fits", f.fits()},
                      {"joules_per_step", f.joules_per_step()},
                      {"price_per_step", f.price_per_step()},
                      {"pipeline_layout", f.blocks},
                      {"stages", nlohmann::json::array()},
                      {"better_cut", nullptr},
                      {"better_shares", nullptr}};
  json["micro_batches"] =
      f.shares.empty() ? std::vector<int64_t>(size_t(f.work.mesh.dp), f.work.num_micro_batches) : f.shares;
  for (size_t k = 0; k < f.used.size(); ++k)
    json["devices"].push_back({{"device", device_of(f, k)}, {"num_devices", f.used[k]}});
  if (steps > 0) json["run_s"] = f.step.step_s * double(steps);
  for (const UnequalStage& s : f.stages) json["stages"].push_back(json_of(f, s));
  for (const TimePart& p : time_parts_of(f.step)) json["parts"][p.name] = p.seconds;
  if (better) json["better_cut"] = {{"pipeline_layout", better->blocks}, {"step_s", better->step.step_s}};
  return json;
}

}  // namespace weft
