#include "weft/pipeline/open_shards.h"

#include "weft/base/tasks.h"
#include "weft/pipeline/document.h"

namespace weft {

OpenShards::OpenShards(const StageFolder& folder, PassSpec spec, const StageContext& context)
    : folder_(folder),
      spec_(std::move(spec)),
      context_(context),
      team_(*context.team),
      pass_(pass_of(folder.identity().name, spec_.part)) {}

bool OpenShards::next_sweep() {
  if (context_.stop) throw Interrupted();
  if (!begun_) return begin();
  const bool more = wait_for_others();
  context_.progress.wait_for("");
  return more;
}

bool OpenShards::wait_for_others() {
  for (Pause pause(context_.stop);; pause.wait()) {
    if (team_.helps() && (closed_ || team_.turn(pass_) != Team::Turn::kNow)) return begin();
    const size_t before = others_.size();
    for (auto one = others_.begin(); one != others_.end();) {
      const auto [shard, work] = *one++;  // looking may erase it
      if (!team_.take(shard)) continue;
      if (count_if_finished(shard, work)) continue;
      team_.release(shard);  // whoever had it is gone; another sweep takes it
      only_others_ = true;
      return true;
    }
    if (others_.empty()) break;
    if (others_.size() < before) pause.reset();
    say_who_is_waited_for();
  }
  if (!team_.helps()) team_.close();
  return false;
}

void OpenShards::say_who_is_waited_for() const {
  const std::string first = fmt::format("{:05}", others_.begin()->first);
  const std::string shards =
      others_.size() == 1 ? "shard " + first : fmt::format("{} shards, first {}", others_.size(), first);
  context_.progress.wait_for((team_.helps() ? "others at " : "helpers at ") + shards);
}

// Also where a leader was followed by another.
bool OpenShards::begin() {
  if (!team_.helps()) {
    team_.open(pass_);
  } else if (team_.wait_for(pass_) != Team::Turn::kNow) {
    if (team_.turn(pass_) == Team::Turn::kNoLeader && !folder_.is_complete()) team_.lost_leader();
    return false;
  } else if (!folder_.is_still_mine()) {
    team_.lost_leader();
  }
  context_.progress.begin(spec_.shown, spec_.work);
  others_.clear();
  begun_ = true;
  only_others_ = closed_ = made_one_ = false;
  return true;
}

bool OpenShards::take(int64_t shard, std::optional<int64_t> work) {
  look_at_others();
  if (closed_ || (only_others_ && !others_.count(shard))) return false;
  if (!team_.take(shard)) {
    others_[shard] = work;
    return false;
  }
  if (count_if_finished(shard, work)) return false;
  if (team_.helps() && (team_.turn(pass_) != Team::Turn::kNow || !folder_.is_still_mine())) {
    closed_ = true;
    team_.release(shard);
    return false;
  }
  others_.erase(shard);
  made_one_ = true;
  return true;
}

void OpenShards::made(int64_t shard, const Counts& counts, std::optional<int64_t> work) {
  team_.release(shard);
  context_.progress.made(counts, work.value_or(counts.bytes_in));
}

// Counts shards that others finish while this process is busy, and notices when a helper's leader is gone.
void OpenShards::look_at_others() {
  if (Clock::now() - looked_ < std::chrono::seconds(1)) return;
  if (team_.helps() && team_.turn(pass_) != Team::Turn::kNow) closed_ = true;
  for (auto one = others_.begin(); one != others_.end();) {
    const auto [shard, work] = *one++;
    if (team_.take(shard) && !count_if_finished(shard, work)) team_.release(shard);
  }
  looked_ = Clock::now();
}

// For a shard that this process has taken; releases it if it is finished.
bool OpenShards::count_if_finished(int64_t shard, std::optional<int64_t> work) {
  const std::optional<Counts> done = spec_.finished(shard);
  if (!done) return false;
  team_.release(shard);
  others_.erase(shard);
  all_made_here_ = false;
  context_.progress.add(*done, work.value_or(done->bytes_in), !made_one_);
  return true;
}

void for_each_open_shard(const StageFolder& folder, const PassSpec& pass, int64_t num_shards,
                         const StageContext& context, const std::function<Counts(int64_t)>& make) {
  OpenShards shards(folder, pass, context);
  while (shards.next_sweep()) {
    int64_t next_shard = 0;
    const auto next = [&]() -> std::optional<int64_t> {
      while (next_shard < num_shards && !context.stop)
        if (const int64_t shard = next_shard++; shards.take(shard)) return shard;
      return {};
    };
    for_each_task(context.threads, next, [&](int64_t shard) { shards.made(shard, make(shard)); });
  }
}

void for_each_open_shard(const StageFolder& folder, const StageResult& before, const StageContext& context,
                         const std::function<ShardReport(int64_t)>& make) {
  const PassSpec pass{.shown = folder.identity().name, .work = before.counts.bytes_out, .finished = [&](int64_t shard) {
                        return folder.finished_counts(shard);
                      }};
  for_each_open_shard(folder, pass, int64_t(before.shards.size()), context, [&](int64_t shard) {
    const ShardReport report = make(shard);
    folder.finish(shard, report);
    return report.counts;
  });
}

void run_map_stage(const StageFolder& folder, const StageResult& before, const StageContext& context,
                   const std::function<DocumentJudge(int64_t shard)>& judge_of) {
  for_each_open_shard(folder, before, context, [&](int64_t shard) {
    const DocumentJudge judge = judge_of(shard);
    ShardWriter out;
    ShardReport report;
    Counts& c = report.counts;
    for_each_in_shard(before.checked_shard(shard), [&](Document&& d) {
      ++c.documents_in;
      c.bytes_in += int64_t(d.text.size());
      const std::optional<Drop> drop = judge(d, c.changed);
      if (drop) {
        ++c.dropped[drop->reason];
        for (const std::string& file : drop->evaluation_files) ++c.contaminated[file];
        return report.show({drop->reason, drop->detail, d.id.text(), d.text, d.origin.file, d.origin.row},
                           context.samples);
      }
      ++c.documents_out;
      c.bytes_out += int64_t(d.text.size());
      out.add(d);
    });
    report.hash = out.commit(folder.path() / shard_name(shard, context.shard_suffix));
    return report;
  });
  folder.complete(int64_t(before.shards.size()), context, nlohmann::json::object());
}

}  // namespace weft
