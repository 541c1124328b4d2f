// Shares out the unfinished shards of a pass among the processes of a team.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "weft/pipeline/stage.h"

namespace weft {

struct PassSpec {
  int part = 1;       // of the stage
  std::string shown;  // to whoever watches
  int64_t work = 0;   // bytes, as of StageProgress
  // What a shard counted, if it is finished. Asked by the process that has taken it.
  std::function<std::optional<Counts>(int64_t shard)> finished;
};

// Use: while (shards.next_sweep()), for each shard: if take() is true, make it and call made(). All throw Interrupted
// and FileError; an exception ends the pass for this process.
class OpenShards {
 public:
  OpenShards(const StageFolder& folder, PassSpec spec, const StageContext& context);

  // Blocks while other processes hold all unfinished shards. False: all is finished and nobody in the team works on it
  // any more, or (for a helper) the leader has gone on.
  bool next_sweep();
  // True: this process alone must make the shard. False: it is finished, or another makes it. `work`: its bytes, if not
  // those of the documents that it read. For one thread at a time.
  bool take(int64_t shard, std::optional<int64_t> work = {});
  // take() would return false from here on: the pass is closed, or all that was left for this sweep is taken. For one
  // thread at a time.
  bool sweep_is_over() const { return closed_ || (only_others_ && others_.empty()); }
  // Any thread.
  void made(int64_t shard, const Counts& counts, std::optional<int64_t> work = {});
  // No shard was finished by another process, in this run or before.
  bool all_made_here() const { return all_made_here_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool begin();
  bool wait_for_others();
  void look_at_others();
  void say_who_is_waited_for() const;
  bool count_if_finished(int64_t shard, std::optional<int64_t> work);

  const StageFolder& folder_;
  PassSpec spec_;
  const StageContext& context_;
  Team& team_;
  int pass_;
  std::map<int64_t, std::optional<int64_t>> others_;  // shards that another had taken, with their work
  bool begun_ = false;
  bool only_others_ = false;  // a sweep after the first: what is not among others_ is finished
  bool closed_ = false;       // a helper's: the pass is not open any more
  bool made_one_ = false;     // what was finished before that counts as done before this run
  bool all_made_here_ = true;
  Clock::time_point looked_ = Clock::now();  // at what others had taken
};

// Makes the shards of `before` that `folder` has not finished, on up to context.threads threads and with whoever helps,
// and finishes and counts each; `make` may be called by any of the threads. Throws Interrupted.
void for_each_open_shard(const StageFolder& folder, const StageResult& before, const StageContext& context,
                         const std::function<ShardReport(int64_t shard)>& make);
// The same of a pass whose shards have no reports.
void for_each_open_shard(const StageFolder& folder, const PassSpec& pass, int64_t num_shards,
                         const StageContext& context, const std::function<Counts(int64_t shard)>& make);

// What becomes of a document: it may be changed; a Drop if it goes. `changes` counts what was taken out.
using DocumentJudge = std::function<std::optional<Drop>(Document& document, std::map<std::string, int64_t>& changes)>;

// A stage whose shards are those of the one before, document for document. `judge_of` is asked once for each shard, by
// any thread, while the shard is taken. Blocks. Throws Interrupted.
void run_map_stage(const StageFolder& folder, const StageResult& before, const StageContext& context,
                   const std::function<DocumentJudge(int64_t shard)>& judge_of);

}  // namespace weft
