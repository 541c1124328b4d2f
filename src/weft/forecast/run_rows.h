// Training runs that somebody measured, one to a row of a CSV file: model, device, layout, batch, and what was
// measured. docs/formats/run_rows.md says each column.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/models/hf_config.h"
#include "weft/recipe/recipe.h"

namespace weft {

struct RunRow {
  int64_t line = 0;            // of the file, counted from 1
  std::string fault;           // what is wrong with a cell of it, with line and column; empty: nothing
  std::string measured_fault;  // the same of a measured figure, which is passed over
  std::string id, source, task, framework, framework_version, model, device, interconnect, activation, precision,
      recompute, recompute_detail, offload, mem_kind, outcome, group;
  // The model. 0: the source does not say.
  int64_t n_layers = 0, d_model = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, gated = 0,
          tied_emb = 0, moe_experts = 0, moe_topk = 0, moe_shared = 0, moe_ffn = 0;
  // The layout; sequences, tokens, devices.
  int64_t seq_len = 0, n_gpus = 0, gpus_per_node = 0, dp = 0, tp = 0, pp = 0, vpp = 0, cp = 0, ep = 0, sp = 0,
          zero_stage = -1, fsdp_shard = 0, micro_batch = 0, grad_accum = 0, global_batch = 0;
  // What was measured: nothing that forecasts reads it.
  std::optional<double> tokens_per_s_per_gpu, step_time_s, peak_memory_gib;
  double release_year() const;  // of the framework, as its version says it; 0 where it does not
  // The rate by either, in tokens a second and device.
  std::optional<double> measured_rate() const;
};

// Columns are found by the names of the first line; those that are not known are passed over, those of measured figures
// may be missing. A cell that is no number or out of range is its row's fault; other rows are read. Throws FileError
// where a needed column is not there.
std::vector<RunRow> read_run_rows(const std::filesystem::path& path);

// What the products of a row are made in, by the name of its precision ("bfloat16", "FP8 (delayed scaling)").
enum class RowPrecision : uint8_t { f32, fp16, bf16, fp8, fp4 };
// Throws ConfigError with the names that are known.
RowPrecision row_precision(const RunRow& row);

// The run of a row as weft plans it.
struct RowRun {
  Recipe recipe;
  HfConfig config;
  std::vector<std::string> notes;  // where it is planned otherwise than the row says
};
// Throws ConfigError with the reason where the row does not say enough, or weft has nothing like it.
RowRun run_of(const RunRow& row);

}  // namespace weft
