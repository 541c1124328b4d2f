// A stage's folder: its shards, a report beside each, and finally the manifest. Finished shards are never made again;
// those of other inputs or parameters are thrown away.
#pragma once
#include <atomic>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/pipeline/document.h"
#include "weft/pipeline/report.h"
#include "weft/pipeline/team.h"

namespace weft {

// Limits for manifests and stage.json, which list every shard.
inline constexpr JsonLimits kManifest{.max_bytes = size_t{1} << 30, .max_depth = 64};

// A stage's progress, for whoever shows it. Any thread.
class StageProgress {
 public:
  struct View {
    std::string stage;
    std::string waits_for;  // empty: it is at work
    Counts counts;
    int64_t work_done = 0, work = 0;  // bytes; 0: not known
    int64_t bytes = 0;                // processed in this run, without what was finished before
    int64_t shards_made = 0;          // by this process, in all stages
  };
  void begin(const std::string& stage, int64_t work);
  void add(const Counts& counts, int64_t work, bool done_before);
  void made(const Counts& counts, int64_t work);  // a shard, by this process
  void wait_for(const std::string& what);         // empty: not any more
  View view() const;

 private:
  mutable std::mutex mutex_;
  View now_;
};

// What all stages are given.
struct StageContext {
  int threads = 1;
  int64_t samples = 5;
  std::string shard_suffix = ".jsonl.zst";
  bool again = false;         // a dataset that is complete may be thrown away for another
  bool helps = false;         // another process leads
  double leader_wait_s = 60;  // a helper's wait for a leader, and for the last file that it wrote
  Team* team = nullptr;       // run_pipeline's
  const std::atomic<bool>& stop;
  StageProgress& progress;
};

struct StageIdentity {
  std::string name;
  int version = 1;  // rises when the same inputs and parameters would give other documents
  nlohmann::json parameters, inputs;
};

class StageFolder {
 public:
  // A leader creates the folder or resumes it; if it has another identity, it empties the folder and removes the
  // manifest.json of the dataset around it. Throws FileError, also if the folder holds files that no stage made, or if
  // that dataset is complete and the context does not say `again`. A helper waits until the leader has done so; throws
  // ConfigError if the identity differs, and Interrupted.
  StageFolder(std::filesystem::path folder, StageIdentity identity, const StageContext& context);

  // For the leader: writes these inputs, the same with newer time stamps, to stage.json. Helpers and resumed runs
  // compare theirs with them.
  void note_inputs(const nlohmann::json& inputs) const;

  const std::filesystem::path& path() const { return path_; }
  const StageIdentity& identity() const { return identity_; }
  // Whether the stage is complete. If a listed file was missing, the constructor opened the stage again.
  bool is_complete() const { return std::filesystem::exists(path_ / "manifest.json"); }
  // The report of a shard that is finished: its file is there, of the size that it had.
  std::optional<ShardReport> finished(int64_t shard) const;
  std::optional<Counts> finished_counts(int64_t shard) const;
  // After the shard itself: it counts as finished from here on.
  void finish(int64_t shard, const ShardReport& report) const;
  // Adds up the reports of shards 0 to n - 1 and writes the manifest, with what `more` holds. Shards are listed where
  // their reports have hashes. A helper waits until the leader has done so.
  void complete(int64_t num_shards, const StageContext& context, const nlohmann::json& more) const;

  // The folder for files that passes leave for each other.
  std::filesystem::path work_folder() const { return path_ / "work"; }
  // Only the leader makes it; does nothing for a helper.
  std::filesystem::path make_work_folder() const;
  void remove_work_folder() const;
  // For a helper: stage.json has not changed since this was made.
  bool is_still_mine() const;

 private:
  void open_again_if_files_are_lost() const;
  void wait_for_leader(const StageContext& context);
  void wait_until_complete(const StageContext& context) const;

  std::filesystem::path path_;
  StageIdentity identity_;
  std::string shard_suffix_;
  Team& team_;
  std::string seen_;  // a helper's: the hash of stage.json
};

// Removes unfinished files of a killed run from a folder: those of this name, or (empty) all.
void remove_unfinished(const std::filesystem::path& folder, std::string_view of);

// "00012" and the suffix.
std::string shard_name(int64_t shard, const std::string& suffix);

// A complete stage, as the next one sees it.
struct StageResult {
  std::filesystem::path folder;
  nlohmann::json manifest;
  std::string hash;                 // of the manifest
  std::vector<std::string> shards;  // names of files
  std::vector<std::string> hashes;  // of them
  Counts counts;
  // The file of a shard. Throws FileError where it is not the one that the manifest speaks of.
  std::filesystem::path checked_shard(int64_t shard) const;
};
StageResult open_stage(const std::filesystem::path& folder);
// The files of a stage's manifest that are not in its folder, or of another size there: names, in no order.
std::vector<std::string> lost_files(const std::filesystem::path& folder, const nlohmann::json& manifest);
// Files in the folder that are named like a stage's but are not in the manifest.
std::vector<std::string> added_files(const std::filesystem::path& folder, const nlohmann::json& manifest);

}  // namespace weft
