// What a run's folder says of the run: everything that lists, comparisons, lineages and the index are made from.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/history/attempt_file.h"
#include "weft/history/metrics_summary.h"
#include "weft/train/run_data.h"

namespace weft {

// running: a process owns the folder now. finished: all steps are done, and the last attempt said so or the last step
// is saved. stopped: asked to, and saved. failed: the last attempt ended with an error. lost: it ended without a word
// (killed, a power cut). unfinished: attempts were not recorded, and steps are left, or the last one was not saved.
// unreadable: its recipe cannot be read. away: the folder cannot be reached now.
enum class RunStatus : uint8_t { running, finished, stopped, failed, lost, unfinished, unreadable, away };
std::string_view name_of(RunStatus status);
std::optional<RunStatus> run_status_of(std::string_view name);
std::vector<std::string> run_status_names();

// A folder or file that a run reads: whatever a key of its recipe or of a phase names (names_files), the files of its
// data.json, and where it began (--from).
struct RunInput {
  std::string role;  // "model.path", "phase 1: objective.teacher", "data.json", "--from"
  // Absolute, links resolved, if it is known from which folder the run was started. Where it may be seen from several,
  // each place that is there is an input; where none is, the likeliest. Whether it is there may change at any time.
  std::string path;
  bool operator==(const RunInput&) const = default;
};

struct CheckpointFacts {
  int64_t step = 0;  // of RUN/checkpoints/step-N
  int64_t bytes = 0;
  std::optional<double> held_out_loss = {};  // nats per counted target
  bool operator==(const CheckpointFacts&) const = default;
};

struct RunFacts {
  std::string path;  // absolute, links resolved
  std::string id;    // ten hexadecimal digits, of the path
  RunStatus status = RunStatus::unreadable;
  std::vector<std::string> problems = {};          // what cannot be read: file, reason
  std::map<std::string, std::string> recipe = {};  // key -> TOML; of phases "phase 1: optimizer.lr"
  std::string model = {}, objective = {};
  int64_t train_iters = 0, step = 0;  // steps wanted; steps done
  double began_s = 0, last_s = 0;     // seconds since 1970: its first attempt, its last record; 0: not known
  double busy_s = 0;                  // of steps, evaluations and saves
  std::map<std::string, RunResult> results = {};
  std::vector<RunSource> data = {};  // training files; `dataset` is absolute, as RunInput::path is
  std::string data_order = {};       // fingerprint of the order of samples; empty: not known
  std::vector<RunInput> inputs = {};
  std::vector<CheckpointFacts> checkpoints = {};  // by step
  std::vector<RunAttempt> attempts = {};          // oldest first
  bool operator==(const RunFacts&) const = default;

  std::filesystem::path checkpoint(int64_t of_step) const {
    return std::filesystem::path(path) / "checkpoints" / ("step-" + std::to_string(of_step));
  }
};

// Whether it is one: it holds a recipe.toml that weft wrote, or metrics.jsonl beside checkpoints or a run.lock, and is
// not what a removal has left behind (X.removing).
bool is_run_folder(const std::filesystem::path& folder);

// Exit statuses of a run that saved and stopped when it was asked to (docs/operations.md).
inline constexpr int kStoppedBySignal = 75, kStoppedByCtrlC = 130;

// Whether this key of a recipe names files or folders that the run reads.
bool names_files(const std::string& key);

// Reads a run's folder. What is missing, damaged or absurdly large becomes a problem that names the file; the rest is
// read all the same. Only a folder that is none, or no run's, throws FileError. Changes nothing on the disk; to see
// whether a process owns the folder, it shares its lock for some microseconds.
RunFacts read_run_facts(const std::filesystem::path& folder);
// The same of the status alone, as it is now, for facts that were read before.
RunStatus status_now(const RunFacts& facts);
// What it is as long as nobody runs it: for who owns the folder.
RunStatus status_at_rest(const RunFacts& facts);

// A text that is another as soon as one of the files has changed that read_run_facts reads, by their sizes and times,
// or another build of weft reads them. Of a checkpoint's files it looks at weft/state.json alone.
std::string stamp_of_run(const std::filesystem::path& folder);

// Ten hexadecimal digits.
std::string id_of_run(const std::filesystem::path& path);

nlohmann::ordered_json to_json(const RunFacts& facts);
// Throws FileError, beginning with `source`, where `json` is not what to_json makes.
RunFacts run_facts_of(const nlohmann::json& json, const std::string& source);

}  // namespace weft
