#include "weft/forecast/score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

#include "weft/base/error.h"
#include "weft/forecast/csv.h"
#include "weft/plan/recompute_budget.h"

namespace weft {
namespace {

// The row's, or the next that the device has.
ProductFormat format_of(const RunRow& row, const ClusterSpec& cluster, std::vector<std::string>& notes) {
  const RowPrecision precision = row_precision(row);
  const ProductRates& peak = cluster.device.peak;
  const auto wider = [&](const char* with) {
    notes.push_back(fmt::format("{} has no rate in {}, planned with {}", cluster.device.name, row.precision, with));
  };
  if (precision == RowPrecision::fp4 && peak.fp4 > 0) return ProductFormat::fp4;
  if (precision == RowPrecision::fp4 && peak.fp8 > 0) wider("fp8");
  if (precision < RowPrecision::fp8) return ProductFormat::bits16;
  if (peak.fp8 > 0) return ProductFormat::fp8;
  wider("16 bits");
  return ProductFormat::bits16;
}

// "4x100 Gb RoCE per node", "4x Omni-Path (100 Gb/s each) per node", "400 Gb/s per GPU"; 0: it does not say.
double gigabits_per_node(const std::string& net, int devices) {
  static const std::regex said(R"((?:([0-9]+)x ?(?:[A-Za-z-]+ )?\(?)?([0-9]{1,6}) ?(?:Gb/s|Gbps|GbE|Gb ))"),
      per_device(R"(per GPU|per device)");
  std::smatch found;
  if (!std::regex_search(net, found, said)) return net.find("4x Omni-Path") != std::string::npos ? 400 : 0;
  const double links = found[1].matched ? std::stod(found[1]) : 1, of_all = links * std::stod(found[2]);
  return std::regex_search(net, per_device) ? of_all * devices : of_all;
}

// What of the row's own says about its network, where that is not its device's usual one.
void set_network(const RunRow& row, ClusterSpec& cluster) {
  if (row.gpus_per_node > 0) {
    cluster.domain = std::max(cluster.domain > cluster.devices_per_node ? cluster.domain : 1, int(row.gpus_per_node));
    cluster.devices_per_node = int(row.gpus_per_node);
  }
  const double per_node = gigabits_per_node(row.interconnect, cluster.devices_per_node);
  if (per_node > 0) cluster.scale_out.bytes_per_s = per_node * 1e9 / 8 / cluster.devices_per_node;
}

// The same for all rows that are planned alike: the work, or why there is none.
void plan_work(const RowRun& run, const ClusterSpec& cluster, ProductFormat format, PlannedRow& planned) {
  try {
    RunPlan plan = prepare_run(run.recipe, run.config, 0);
    settle_recompute(run.recipe, plan, WorkspaceModel());
    auto work = std::make_shared<RunWork>(work_of(run.recipe, plan, cluster, format));
    planned.bubble_factor = bubble_factor(*work, ProgramProfile());
    const auto fullest = std::max_element(work->kinds.begin(), work->kinds.end(),
                                          [](const auto& a, const auto& b) { return a.memory_bytes < b.memory_bytes; });
    planned.memory_bytes = double(fullest->memory_bytes);
    planned.kept_bytes = double(fullest->kept_bytes);
    planned.work = std::move(work);
  } catch (const std::exception& e) { planned.reason = e.what(); }
}

PlannedRow plan_row(const RunRow& row, std::map<std::string, PlannedRow>& known) {
  PlannedRow planned;
  planned.row = row;
  try {
    const RowRun run = run_of(row);
    ClusterSpec cluster = preset_of(row.device);
    set_network(row, cluster);
    planned.notes = run.notes;
    if (!row.measured_fault.empty()) planned.notes.push_back(row.measured_fault);
    planned.forecast_only = row_precision(row) >= RowPrecision::fp8 || !row.offload.empty();
    const ProductFormat format = format_of(row, cluster, planned.notes);
    const std::string key =
        fmt::format("{}{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", to_toml(run.recipe), row.n_layers, row.d_model,
                    row.n_heads, row.n_kv_heads, row.head_dim, row.ffn, row.vocab, row.gated, row.tied_emb,
                    row.moe_experts, row.moe_topk, row.moe_shared, row.moe_ffn, cluster.device.name,
                    fmt::format("{} {}", row.interconnect, row.gpus_per_node), int(format));
    const auto [at, is_new] = known.try_emplace(key, planned);
    if (is_new) plan_work(run, cluster, format, at->second);
    planned.work = at->second.work;
    planned.bubble_factor = at->second.bubble_factor;
    planned.memory_bytes = at->second.memory_bytes;
    planned.kept_bytes = at->second.kept_bytes;
    if (!planned.work) planned.reason = at->second.reason;
  } catch (const std::exception& e) { planned.reason = e.what(); }  // a row is never the end of all
  return planned;
}

double at_part(std::vector<double> sorted, double part) {
  return sorted[std::min(sorted.size() - 1, size_t(part * double(sorted.size())))];
}

}  // namespace

std::vector<PlannedRow> plan_rows(const std::vector<RunRow>& rows, const std::function<void(size_t)>& progress) {
  std::vector<PlannedRow> planned;
  std::map<std::string, PlannedRow> known;
  for (const RunRow& row : rows) {
    planned.push_back(plan_row(row, known));
    progress(planned.size());
  }
  return planned;
}

RowForecast forecast_of(const PlannedRow& planned, const Profiles& profiles) {
  const RunRow& row = planned.row;
  const ProgramProfile profile = at_release(profiles.of(row.framework, row.moe_experts > 0), row.release_year());
  const StepForecast step = price_step(*planned.work, profile, {.simulated = false, .factor = planned.bubble_factor});
  return {.tokens_per_s_per_gpu = planned.work->tokens / step.step_s / planned.work->mesh.world(),
          .peak_memory_gib = peak_memory(profile, planned.memory_bytes, planned.kept_bytes) / double(1 << 30)};
}

std::string stratum_of(const RunRow& row) {
  return fmt::format("{} {} {}", row.device, row.moe_experts > 0 ? "MoE" : "dense", row.precision);
}

Errors errors_of(std::vector<double> ratios) {
  if (ratios.empty()) return {};
  Errors e{.rows = ratios.size()};
  std::sort(ratios.begin(), ratios.end());
  e.bias = at_part(ratios, 0.5) - 1;
  for (double& r : ratios) r = std::abs(r - 1);
  std::sort(ratios.begin(), ratios.end());
  e.median = at_part(ratios, 0.5);
  e.p90 = at_part(ratios, 0.9);
  return e;
}

std::vector<RowPair> read_pairs(const std::filesystem::path& path) {
  CsvReader csv(path);
  const auto column = [&](const char* name) {
    const auto found = std::find(csv.names().begin(), csv.names().end(), name);
    if (found == csv.names().end()) throw FileError(fmt::format("{}: line 1 has no column {}", path.string(), name));
    return size_t(found - csv.names().begin());
  };
  const size_t faster = column("faster_id"), slower = column("slower_id");
  std::vector<RowPair> pairs;
  while (const auto cells = csv.next()) pairs.push_back({(*cells)[faster], (*cells)[slower]});
  return pairs;
}

}  // namespace weft
