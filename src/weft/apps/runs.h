// `weft runs ...`: what each of its commands needs. Each returns its exit status and throws Error.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/history/run_facts.h"

namespace weft {

// The index: a file; empty: $XDG_STATE_HOME/weft/runs.db, or ~/.local/state/weft/runs.db.
struct RunsOptions {
  std::string index;
  bool json = false;
};

// The run that `name` means: the folder of that name, or else a run that is known. Throws ConfigError where it means
// none, FileError where its recipe cannot be read.
RunFacts run_to_compare(const RunsOptions& options, const std::string& name);

struct RunsFilter {
  std::vector<std::string> status;  // any of these; none: all
  std::string model, objective;     // a part of model.path; empty: any
  std::string since, until;         // when a run began: "2026-11-28", or "7d" ago; empty: any
};

struct RunsListOptions : RunsOptions, RunsFilter {
  std::vector<std::string> folders;  // become roots of the index
};
int run_runs_list(const RunsListOptions& options);

struct RunsScanOptions : RunsOptions {
  std::vector<std::string> folders;
  bool forget = false, rebuild = false;  // the folders are roots no longer; everything is read anew
};
int run_runs_scan(const RunsScanOptions& options);

struct RunsShowOptions : RunsOptions {
  std::string run;  // a folder, an id, the last parts of a path
};
int run_runs_show(const RunsShowOptions& options);

struct RunsDiffOptions : RunsOptions {
  std::vector<std::string> runs;  // two
};
int run_runs_diff(const RunsDiffOptions& options);

struct RunsCompareOptions : RunsOptions {
  std::vector<std::string> runs;  // two or more, at most kMostCompared
};
inline constexpr int kMostCompared = 26;  // columns, a to z
int run_runs_compare(const RunsCompareOptions& options);

struct RunsBestOptions : RunsOptions, RunsFilter {
  std::string by;                        // the name of a result
  bool lowest = false, highest = false;  // which is best; neither: as the name says
  int64_t most = 10;                     // so many are told
};
int run_runs_best(const RunsBestOptions& options);

struct RunsLineageOptions : RunsOptions {
  std::string of;  // a run, or the path of a checkpoint, dataset or model; empty: all that is known
  bool dot = false;
};
int run_runs_lineage(const RunsLineageOptions& options);

struct RunsGcOptions : RunsOptions {
  std::vector<std::string> runs;
  std::optional<int64_t> keep;
  bool whole = false, yes = false;
};
int run_runs_gc(const RunsGcOptions& options);

struct RunsRerunOptions : RunsOptions {
  std::string run, out;          // out: the new run's folder; empty: the run's with "-rerun" behind it
  std::optional<int64_t> steps;  // the first steps alone
};
int run_runs_rerun(const RunsRerunOptions& options);

struct RunsQueueOptions {
  std::string folder;  // as run.queue has it
  bool json = false;
};
int run_runs_queue(const RunsQueueOptions& options);

}  // namespace weft
