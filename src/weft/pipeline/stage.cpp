#include "weft/pipeline/stage.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <set>

#include "weft/base/durable_file.h"
#include "weft/base/hashing.h"
#include "weft/base/mapped_file.h"
#include "weft/data/id_view.h"
#include "weft/pipeline/pipeline_config.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

nlohmann::json to_json(const StageIdentity& id) {
  return {{"stage", id.name}, {"version", id.version}, {"parameters", id.parameters}, {"inputs", id.inputs}};
}

void write_json(const fs::path& file, const nlohmann::json& json) {
  write_file_durably(file, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", kOwnName);
}

// How the existing stage differs from what this run would make.
std::optional<JsonDifference> difference(nlohmann::json made, const nlohmann::json& mine) {
  if (made.is_object() && made.contains("parameters"))
    made["parameters"] = with_defaults(std::move(made["parameters"]), mine.at("parameters"));
  return first_difference(made, mine);
}

// Its path, and of an input the file: its place in a list says nothing.
std::string place(const JsonDifference& d, const nlohmann::json& mine) {
  const auto object = nlohmann::json::json_pointer("/" + d.path).parent_pointer();
  const bool of_file = mine.contains(object) && mine[object].is_object() && mine[object].contains("file");
  return d.path + (of_file ? " of " + shown(mine[object]["file"]) : "");
}

// Empties a folder that a stage made. Anything else may be somebody's work.
void clear(const fs::path& folder) {
  if (!fs::exists(folder / "stage.json") && !fs::is_empty(folder))
    throw FileError(fmt::format(
        "{}: holds files that no stage of a pipeline made; choose another run.dir, or move them", folder.string()));
  if (fs::is_empty(folder)) return;
  fs::remove(folder.parent_path() / "manifest.json");  // the dataset's: it would speak of what is no longer there
  fs::remove(folder / "manifest.json");                // before the rest: half of a folder must not look whole
  std::vector<fs::path> others;                        // stage.json stays, and says whose the rest is
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != "stage.json") others.push_back(entry.path());
  for (const fs::path& other : others) fs::remove_all(other);
}

// Whether a manifest lists this file: not itself, stage.json, or unknown files.
bool is_of_a_stage(const std::string& name) {
  constexpr std::string_view kBeginnings[] = {"broken-", "duplicates.jsonl", "train-", "valid-"};
  return std::isdigit(static_cast<unsigned char>(name[0])) != 0 ||
         std::any_of(std::begin(kBeginnings), std::end(kBeginnings), [&](auto b) { return name.starts_with(b); });
}

nlohmann::json sizes_in(const fs::path& folder) {
  nlohmann::json sizes = nlohmann::json::object();
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); entry.is_regular_file() && is_of_a_stage(name))
      sizes[name] = entry.file_size();
  return sizes;
}

// Hashes of the files that no manifest has yet: reports, rows put aside, duplicates.
nlohmann::json hashes_of_others(const fs::path& folder, const nlohmann::json& sizes, const nlohmann::json& shards) {
  std::set<std::string> hashed;
  for (const auto& shard : shards) hashed.insert(shard.at("file").get<std::string>());
  nlohmann::json hashes = nlohmann::json::object();
  for (const auto& one : sizes.items())
    if (const std::string& name = one.key();
        !hashed.count(name) && !name.starts_with("train-") && !name.starts_with("valid-"))
      hashes[name] = hash_of_file(folder / name);
  return hashes;
}

bool is_there(const fs::path& file, const nlohmann::json& bytes) {
  std::error_code none;
  const auto size = fs::file_size(file, none);
  return !none && (!bytes.is_number() || bytes == size);
}

// The token files whose length, beginning or end has changed since they were written: the check that training makes.
std::vector<std::string> changed_files(const fs::path& folder, const nlohmann::json& manifest) {
  std::vector<std::string> changed;
  const std::string where = (folder / "manifest.json").string();
  const JsonFields fields(manifest, where);
  if (!fields.has("files")) return changed;
  for (const auto& one : fields.list("files", "a list of token files")) {
    const JsonFields file(one, where);
    if (!file.has("quick")) continue;  // of a weft that wrote none
    const JsonFields quick = file.object("quick");
    for (const char* part : {"bin", "idx", "mask"})
      if (const std::string name = file.string("prefix") + "." + part;
          quick.has(part) && hash_of(MappedFile(folder / name)) != quick.string(part))
        changed.push_back(name);
  }
  return changed;
}

}  // namespace

std::vector<std::string> lost_files(const fs::path& folder, const nlohmann::json& manifest) {
  std::vector<std::string> lost;
  const auto sizes = manifest.find("bytes");
  if (sizes == manifest.end() || !sizes->is_object()) return lost;  // of a weft that wrote none
  for (const auto& one : sizes->items())
    if (!is_there(folder / one.key(), one.value())) lost.push_back(one.key());
  return lost;
}

std::vector<std::string> added_files(const fs::path& folder, const nlohmann::json& manifest) {
  std::vector<std::string> added;
  const auto sizes = manifest.find("bytes");
  if (sizes == manifest.end() || !sizes->is_object() || !fs::is_directory(folder)) return added;
  const nlohmann::json there = sizes_in(folder);
  for (const auto& one : there.items())
    if (!sizes->contains(one.key())) added.push_back(one.key());
  return added;
}

void remove_unfinished(const fs::path& folder, std::string_view of) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_cut_off(entry.path().filename().string(), of)) found.push_back(entry.path());
  for (const fs::path& file : found) fs::remove(file);
}

void StageProgress::begin(const std::string& stage, int64_t work) {
  std::lock_guard lock(mutex_);
  const int64_t made = now_.shards_made;
  now_ = {};
  now_.stage = stage;
  now_.shards_made = made;
  now_.work = work;
}

void StageProgress::add(const Counts& counts, int64_t work, bool done_before) {
  std::lock_guard lock(mutex_);
  now_.counts.add(counts);
  if (!done_before) now_.bytes += work;
  now_.work_done += work;
}

void StageProgress::made(const Counts& counts, int64_t work) {
  add(counts, work, false);
  std::lock_guard lock(mutex_);
  ++now_.shards_made;
}

void StageProgress::wait_for(const std::string& what) {
  std::lock_guard lock(mutex_);
  now_.waits_for = what;
}

StageProgress::View StageProgress::view() const {
  std::lock_guard lock(mutex_);
  return now_;
}

StageFolder::StageFolder(fs::path folder, StageIdentity identity, const StageContext& context)
    : path_(std::move(folder)),
      identity_(std::move(identity)),
      shard_suffix_(context.shard_suffix),
      team_(*context.team) {
  try {
    if (team_.helps()) {
      wait_for_leader(context);
      return;
    }
    fs::create_directories(path_);
    const fs::path file = path_ / "stage.json";
    const nlohmann::json mine = to_json(identity_);
    remove_unfinished(path_, fs::exists(file) ? "" : "stage.json");
    if (fs::exists(file)) {
      const auto d = difference(read_json_file(file, kManifest), mine);
      if (!d) {
        open_again_if_files_are_lost();
        if (!is_complete()) team_.note_work();
        return;
      }
      if (fs::exists(path_.parent_path() / "manifest.json") && !context.again)
        throw FileError(fmt::format(
            "{}: the dataset in {} is complete, and was made otherwise: {} was {}, and is {} now; choose another "
            "run.dir, or throw it away for a new one: weft data run --again",
            path_.string(), path_.parent_path().string(), place(*d, mine), d->a, d->b));
    }
    clear(path_);
    write_json(file, mine);
  } catch (const fs::filesystem_error& e) {
    throw FileError(fmt::format("{}: {}", e.path1().string(), e.code().message()));
  }
}

void StageFolder::wait_for_leader(const StageContext& context) {
  context.progress.begin(identity_.name + ": waiting for the run that leads", 0);
  const Team::Turn turn = team_.wait_for(pass_of(identity_.name, 0));
  const bool settled = turn != Team::Turn::kNoLeader || is_complete();
  if (!settled || !fs::exists(path_ / "stage.json")) team_.lost_leader();
  seen_ = hash_of_file(path_ / "stage.json");
  const nlohmann::json mine = to_json(identity_);
  if (const auto d = difference(read_json_file(path_ / "stage.json", kManifest), mine))
    throw ConfigError(fmt::format(
        "{}: the run that leads makes it otherwise than this one would: {} is {} for it, and {} for this one; are the "
        "files, their times and their paths the same here?",
        path_.string(), place(*d, mine), d->a, d->b));
}

bool StageFolder::is_still_mine() const { return hash_of_file(path_ / "stage.json") == seen_; }

void StageFolder::wait_until_complete(const StageContext& context) const {
  context.progress.begin(identity_.name + ": waiting for the run that leads to complete it", 0);
  const int next_pass = pass_of(identity_.name, 1) + 1;
  team_.wait_for(next_pass);
  const auto begin = std::chrono::steady_clock::now();
  // This host may remember for a while (NFS: up to a minute) that there was no manifest.
  for (Pause pause(context.stop); !is_complete(); pause.wait()) {
    const Team::Turn turn = team_.turn(next_pass);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    const bool too_long = waited.count() >= context.leader_wait_s;
    if (turn == Team::Turn::kNotYet || (too_long && turn == Team::Turn::kNoLeader)) team_.lost_leader();
    if (too_long) break;  // who opens the stage says what it misses
  }
  if (!is_still_mine()) team_.lost_leader();
}

void StageFolder::note_inputs(const nlohmann::json& inputs) const {
  const fs::path file = path_ / "stage.json";
  nlohmann::json json = read_json_file(file, kManifest);
  if (json.at("inputs") == inputs) return;
  json["inputs"] = inputs;
  write_json(file, json);
}

// A shard alone is made again by itself; of anything else that is lost it is not known what it was made with.
void StageFolder::open_again_if_files_are_lost() const {
  const fs::path file = path_ / "manifest.json";
  if (!fs::exists(file)) return;
  const nlohmann::json manifest = read_json_file(file, kManifest);
  std::vector<std::string> lost = lost_files(path_, manifest);
  if (lost.empty()) lost = changed_files(path_, manifest);
  if (lost.empty()) return;
  const auto is_shard = [&](const std::string& name) { return name.ends_with(shard_suffix_) && name[0] != 'b'; };
  if (!std::all_of(lost.begin(), lost.end(), is_shard))
    for (int64_t i = 0; fs::remove(path_ / shard_name(i, ".json")); ++i) {}
  fs::remove(file);
}

std::optional<ShardReport> StageFolder::finished(int64_t shard) const {
  const fs::path file = path_ / shard_name(shard, ".json");
  if (!fs::exists(file)) return {};
  const nlohmann::json json = read_json_file(file);
  ShardReport report = report_of_json(json, file.string());
  const bool there =
      report.hash.empty() || is_there(path_ / shard_name(shard, shard_suffix_), json.value("bytes", nlohmann::json()));
  return there ? std::optional(std::move(report)) : std::nullopt;
}

std::optional<Counts> StageFolder::finished_counts(int64_t shard) const {
  const auto report = finished(shard);
  return report ? std::optional(report->counts) : std::nullopt;
}

void StageFolder::finish(int64_t shard, const ShardReport& report) const {
  nlohmann::json json = weft::to_json(report);
  if (!report.hash.empty()) json["bytes"] = fs::file_size(path_ / shard_name(shard, shard_suffix_));
  write_json(path_ / shard_name(shard, ".json"), json);
}

void StageFolder::complete(int64_t num_shards, const StageContext& context, const nlohmann::json& more) const {
  if (team_.helps()) return wait_until_complete(context);
  remove_unfinished(path_, "");  // of helpers that were killed
  ShardReport total;
  nlohmann::json shards = nlohmann::json::array();
  for (int64_t i = 0; i < num_shards; ++i) {
    const auto report = finished(i);
    WEFT_CHECK(report, "shard {} of {} is not finished", i, path_.string());
    total.counts.add(report->counts);
    total.broken += report->broken;
    for (const Sample& s : report->samples) total.show(s, context.samples);
    if (!report->hash.empty())
      shards.push_back({{"file", shard_name(i, context.shard_suffix)},
                        {"hash", report->hash},
                        {"documents", report->counts.documents_out}});
  }
  nlohmann::json manifest = weft::to_json(total);
  manifest.erase("hash");
  manifest.update(to_json(identity_));
  manifest["shards"] = shards;
  manifest["bytes"] = sizes_in(path_);
  manifest["others"] = hashes_of_others(path_, manifest["bytes"], shards);
  manifest.update(more);
  write_json(path_ / "manifest.json", manifest);
}

fs::path StageFolder::make_work_folder() const {
  if (!team_.helps()) fs::create_directories(work_folder());
  return work_folder();
}

void StageFolder::remove_work_folder() const {
  if (!team_.helps()) fs::remove_all(work_folder());
}

std::string shard_name(int64_t shard, const std::string& suffix) { return fmt::format("{:05}{}", shard, suffix); }

StageResult open_stage(const fs::path& folder) {
  const fs::path file = folder / "manifest.json";
  if (!fs::exists(file))
    throw FileError(
        fmt::format("{}: the stage is not complete: there is no manifest.json; run it first", folder.string()));
  StageResult r;
  r.folder = folder;
  r.manifest = read_json_file(file, kManifest);
  r.hash = hash_of_file(file);
  const JsonFields fields(r.manifest, file.string());
  r.counts = counts_of_json(fields.object("counts").json(), file.string());
  if (const auto* shards = fields.find("shards"))
    for (const auto& shard : *shards) {
      const JsonFields of_shard(shard, file.string());
      r.shards.push_back(of_shard.string("file"));
      r.hashes.push_back(of_shard.string("hash"));
    }
  return r;
}

fs::path StageResult::checked_shard(int64_t shard) const {
  const fs::path file = folder / shards[size_t(shard)];
  if (hash_of_file(file) != hashes[size_t(shard)])
    throw FileError(
        fmt::format("{}: is not the file that was written; remove it and run the pipeline again, which makes "
                    "it anew",
                    file.string()));
  return file;
}

}  // namespace weft
