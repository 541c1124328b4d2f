#include "weft/forecast/run_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/forecast/csv.h"

namespace weft {
namespace {

constexpr int64_t kMostNumber = int64_t(1) << 40;  // of any count in a row

// Where a column goes in a row.
struct Column {
  const char* name;
  std::string RunRow::*text = nullptr;
  int64_t RunRow::*count = nullptr;
  std::optional<double> RunRow::*measured = nullptr;
  bool needed = false;
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all{
      {.name = "id", .text = &RunRow::id, .needed = true},
      {.name = "source", .text = &RunRow::source},
      {.name = "task", .text = &RunRow::task},
      {.name = "framework", .text = &RunRow::framework},
      {.name = "framework_version", .text = &RunRow::framework_version},
      {.name = "model", .text = &RunRow::model},
      {.name = "gpu", .text = &RunRow::device, .needed = true},
      {.name = "interconnect", .text = &RunRow::interconnect},
      {.name = "activation", .text = &RunRow::activation},
      {.name = "precision", .text = &RunRow::precision, .needed = true},
      {.name = "recompute", .text = &RunRow::recompute},
      {.name = "recompute_detail", .text = &RunRow::recompute_detail},
      {.name = "offload", .text = &RunRow::offload},
      {.name = "mem_kind", .text = &RunRow::mem_kind},
      {.name = "outcome", .text = &RunRow::outcome},
      {.name = "group", .text = &RunRow::group},
      {.name = "n_layers", .count = &RunRow::n_layers, .needed = true},
      {.name = "d_model", .count = &RunRow::d_model, .needed = true},
      {.name = "n_heads", .count = &RunRow::n_heads, .needed = true},
      {.name = "n_kv_heads", .count = &RunRow::n_kv_heads},
      {.name = "head_dim", .count = &RunRow::head_dim},
      {.name = "ffn", .count = &RunRow::ffn, .needed = true},
      {.name = "vocab", .count = &RunRow::vocab, .needed = true},
      {.name = "gated", .count = &RunRow::gated},
      {.name = "tied_emb", .count = &RunRow::tied_emb},
      {.name = "moe_experts", .count = &RunRow::moe_experts},
      {.name = "moe_topk", .count = &RunRow::moe_topk},
      {.name = "moe_shared", .count = &RunRow::moe_shared},
      {.name = "moe_ffn", .count = &RunRow::moe_ffn},
      {.name = "seq_len", .count = &RunRow::seq_len, .needed = true},
      {.name = "n_gpus", .count = &RunRow::n_gpus, .needed = true},
      {.name = "gpus_per_node", .count = &RunRow::gpus_per_node},
      {.name = "dp", .count = &RunRow::dp},
      {.name = "tp", .count = &RunRow::tp},
      {.name = "pp", .count = &RunRow::pp},
      {.name = "vpp", .count = &RunRow::vpp},
      {.name = "cp", .count = &RunRow::cp},
      {.name = "ep", .count = &RunRow::ep},
      {.name = "sp", .count = &RunRow::sp},
      {.name = "zero_stage", .count = &RunRow::zero_stage},
      {.name = "fsdp_shard", .count = &RunRow::fsdp_shard},
      {.name = "micro_batch", .count = &RunRow::micro_batch},
      {.name = "grad_accum", .count = &RunRow::grad_accum},
      {.name = "global_batch", .count = &RunRow::global_batch, .needed = true},
      {.name = "tokens_per_s_per_gpu", .measured = &RunRow::tokens_per_s_per_gpu},
      {.name = "step_time_s", .measured = &RunRow::step_time_s},
      {.name = "peak_memory_gib", .measured = &RunRow::peak_memory_gib},
  };
  return all;
}

std::string trimmed(const std::string& cell) {
  const size_t first = cell.find_first_not_of(" \t"), last = cell.find_last_not_of(" \t");
  return first == std::string::npos ? "" : cell.substr(first, last - first + 1);
}

// A cell that is no number leaves `number` as it is, and is told by what is returned. "true" is 1.
bool read_number(const std::string& cell, double& number) {
  const std::string word = lower_ascii(cell);
  if (word == "true" || word == "false") {
    number = word == "true" ? 1 : 0;
    return true;
  }
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, number);
  return error == std::errc() && stop == end && std::isfinite(number);
}

void set(RunRow& row, const Column& column, const std::string& given, const std::string& where) {
  const std::string cell = trimmed(given);
  if (column.text != nullptr) {
    row.*column.text = cell;
    return;
  }
  if (cell.empty()) return;
  const auto fault = [&](const std::string& text) {
    std::string& fault = column.measured != nullptr ? row.measured_fault : row.fault;
    if (fault.empty()) fault = fmt::format("{}: {} = \"{}\" {}", where, column.name, cell, text);
  };
  double number = 0;
  const bool is_number = read_number(cell, number);
  if (column.measured != nullptr) {
    if (!is_number || number <= 0) return fault("must be a number above 0, or empty");
    row.*column.measured = number;
    return;
  }
  if (!is_number || number < 0 || number > double(kMostNumber) || number != std::floor(number))
    return fault(fmt::format("must be a whole number from 0 to {}, or empty", kMostNumber));
  row.*column.count = int64_t(number);
}

}  // namespace

std::optional<double> RunRow::measured_rate() const {
  if (tokens_per_s_per_gpu) return tokens_per_s_per_gpu;
  if (!step_time_s || n_gpus == 0) return {};
  return double(global_batch) * double(seq_len) / *step_time_s / double(n_gpus);
}

// "NeMo container 26.08", "v25.02", "2023-11".
double RunRow::release_year() const {
  static const std::regex dotted(R"((^|[^0-9.])(2[0-9])\.(0[1-9]|1[0-2])([^0-9]|$))"),
      dated(R"((20[12][0-9])-(0[1-9]|1[0-2]))");
  std::smatch found;
  if (std::regex_search(framework_version, found, dotted))
    return 2000 + std::stod(found[2]) + (std::stod(found[3]) - 1) / 12;
  if (std::regex_search(framework_version, found, dated)) return std::stod(found[1]) + (std::stod(found[2]) - 1) / 12;
  return 0;
}

std::vector<RunRow> read_run_rows(const std::filesystem::path& path) {
  CsvReader csv(path);
  std::vector<const Column*> at(csv.names().size());
  for (const Column& column : columns()) {
    const auto found = std::find(csv.names().begin(), csv.names().end(), column.name);
    if (found != csv.names().end())
      at[size_t(found - csv.names().begin())] = &column;
    else if (column.needed)
      throw FileError(
          fmt::format("{}: line 1 has no column {}: docs/formats/run_rows.md has all", path.string(), column.name));
  }
  std::vector<RunRow> rows;
  while (const auto cells = csv.next()) {
    RunRow& row = rows.emplace_back();
    row.line = csv.line();
    for (size_t i = 0; i < at.size(); ++i)
      if (at[i] != nullptr) set(row, *at[i], (*cells)[i], fmt::format("{}:{}", path.string(), csv.line()));
  }
  return rows;
}

}  // namespace weft
