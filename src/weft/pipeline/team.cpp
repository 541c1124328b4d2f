#include "weft/pipeline/team.h"

#include <algorithm>
#include <iterator>
#include <thread>

#include "weft/base/durable_file.h"
#include "weft/base/json.h"
#include "weft/pipeline/stage.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// In shards.lock: the leader has one of the first numbers, that of the pass that is open, or 0; all while it begins, so
// that there is no other.
constexpr int64_t kPasses = 16, kShards = 16;

}  // namespace

void Pause::wait() {
  constexpr std::chrono::microseconds kMost(100'000);
  if (stop_) throw Interrupted();
  std::this_thread::sleep_for(next_);
  next_ = std::min(kMost, next_ * 3 / 2);
}

int pass_of(const std::string& stage, int part) {
  const auto at = std::find(std::begin(kStageNames), std::end(kStageNames), stage);
  WEFT_CHECK(at != std::end(kStageNames), "{} is no stage", stage);
  return 1 + 2 * int(at - std::begin(kStageNames)) + part;
}

Team::Team(const fs::path& folder, const Spec& spec)
    : folder_(folder), work_(spec.work), stop_(spec.stop), helps_(spec.helps) {
  if (helps_) {
    came_late_ = !find_leader(spec.leader_wait_s, spec.work);
    if (!came_late_) compare(spec.work);
  } else {
    begin_to_lead(spec.again);
  }
}

void Team::note_work() {
  WEFT_CHECK(!helps_, "the work is its leader's");
  if (noted_) return;
  write_file_durably(folder_ / "run.json", work_.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
                     kOwnName);
  noted_ = true;
}

void Team::begin_to_lead(bool again) {
  try {
    run_lock_.emplace(folder_);
  } catch (const ConfigError& e) { throw ConfigError(std::string(e.what()) + "; to help it: weft data run --join"); }
  locks_.emplace(folder_ / "shards.lock");
  if (!locks_->try_lock(0, kPasses))  // run.lock alone may be gone, or of one host only
    throw ConfigError(folder_.string() + ": another weft leads here; to help it: weft data run --join");
  remove_unfinished(folder_, "run.json");
  // A complete dataset's run.json stays until a stage is opened: there may be nothing to do, or the run may be refused.
  if (again || !fs::exists(folder_ / "run.json") || !fs::exists(folder_ / "manifest.json")) note_work();
  locks_->unlock(1, kPasses - 1);
  close();
}

void Team::open(int pass) {
  WEFT_CHECK(!helps_ && pass > 0 && pass < kPasses - 1, "pass {}", pass);
  go_to(pass);
}

void Team::close() {
  if (at_ != 0) go_to(0);
  Pause pause(stop_);
  while (!locks_->try_lock(kShards, NumberLocks::kToTheEnd)) pause.wait();
  locks_->unlock(kShards, NumberLocks::kToTheEnd);
}

void Team::go_to(int64_t pass) {
  if (!locks_->try_lock(pass)) throw FileError(folder_.string() + ": another weft leads here too; end one of them");
  locks_->unlock(at_);
  at_ = pass;
}

// False: it has ended, with all that it was to do.
bool Team::find_leader(double wait_s, const nlohmann::json& work) {
  const fs::path file = folder_ / "shards.lock";
  const auto begin = std::chrono::steady_clock::now();
  for (Pause pause(stop_);; pause.wait()) {
    if (!locks_ && fs::exists(file)) locks_.emplace(file);
    if (locks_ && !locks_->work())
      throw ConfigError(fmt::format(
          "{}: its file system has no locks between processes, so none can help another there", folder_.string()));
    const bool begins = locks_ && locks_->locked_by_another(kPasses - 1);  // its run.json is not there yet
    if (locks_ && turn(0) != Turn::kNoLeader && !begins) return true;
    if (!begins && was_completed(work)) return false;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >= wait_s) break;
  }
  throw ConfigError(
      fmt::format("{}: no weft data run is at work here that could be helped; start one without --join, or, if one "
                  "runs on another host, mount the folder with locks that hosts share",
                  folder_.string()));
}

// The manifest is the last file of a run, and run.json its first: an older manifest is of a run before.
bool Team::was_completed(const nlohmann::json& work) const {
  std::error_code none;
  const auto began = fs::last_write_time(folder_ / "run.json", none);
  if (none) return false;
  const auto ended = fs::last_write_time(folder_ / "manifest.json", none);
  return !none && ended >= began && read_json_file(folder_ / "run.json") == work;
}

void Team::compare(const nlohmann::json& work) const {
  const nlohmann::json theirs = read_json_file(folder_ / "run.json");
  if (theirs == work) return;
  const auto d = first_difference(theirs, work);
  const std::string what = d ? fmt::format("{} is {} for it, and {} for this one", d->path, d->a, d->b) : "";
  throw ConfigError(fmt::format("{}: the run that leads is of another pipeline: {}; join it with its pipeline file",
                                folder_.string(), what));
}

Team::Turn Team::turn(int pass) const {
  const auto at = locks_->locked_by_another(0, kPasses);
  if (!at) return Turn::kNoLeader;
  return *at < pass ? Turn::kNotYet : *at == pass ? Turn::kNow : Turn::kOver;
}

Team::Turn Team::wait_for(int pass) const {
  for (Pause pause(stop_);; pause.wait())
    if (const Turn now = turn(pass); now != Turn::kNotYet) return now;
}

void Team::lost_leader() const {
  throw Interrupted(
      fmt::format("{}: the run that this one helped has ended; what is finished stays: start weft data run again, "
                  "then join it",
                  folder_.string()));
}

bool Team::take(int64_t shard) { return locks_->try_lock(kShards + shard); }
void Team::release(int64_t shard) { locks_->unlock(kShards + shard); }

}  // namespace weft
