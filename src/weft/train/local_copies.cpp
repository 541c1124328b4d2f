#include "weft/train/local_copies.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "weft/base/durable_file.h"
#include "weft/base/fault_point.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/checkpoint/local_share.h"
#include "weft/comm/agree.h"
#include "weft/records/clock.h"
#include "weft/step/kept_states.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKeptCopies = 2;
constexpr size_t kLifeDigits = 16;

fs::path life_file_of(const fs::path& run) { return run / "checkpoints" / "local.json"; }

std::string any_life() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", uint32_t(random()), uint32_t(random()));
}

bool is_life(const std::string& text) {
  return text.size() == kLifeDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string local_name_of_run(const fs::path& run) {
  fs::path path = fs::absolute(run).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "runs/first/"
  return fmt::format("{}-{:016x}", path.filename().string(), hash64(path.string()));
}

std::string local_life_of(const fs::path& run) {
  const fs::path file = life_file_of(run);
  std::error_code none;
  if (!fs::exists(file, none)) return "";
  try {
    const nlohmann::json json = read_json_file(file);
    const std::string life = JsonFields(json, file.string()).string("life");
    return is_life(life) ? life : "";
  } catch (const FileError&) {  // then there are only the checkpoints to go on from
    return "";
  }
}

fs::path local_folder_of(const std::string& local_dir, const std::string& name, const std::string& life) {
  return fs::path(local_dir) / fmt::format("{}-{}", name, life);
}

LocalCopy::LocalCopy(const fs::path& life, const TrainingState& state, CheckpointSource source,
                     const std::vector<NeighbourOf>& neighbours)
    : source_(std::move(source)),
      ranks_(*state.params.mesh().world),
      share_(life / to_string(LocalShareName{.step = step(), .rank = ranks_.rank(), .ranks = ranks_.size()})),
      layouts_(source_, state.params.precision().stat) {
  WEFT_CHECK(state.snapshot, "a local copy of step {} without room for a snapshot", step());
  const std::span<std::byte> room = bytes_of(state.snapshot);
  agree(ranks_, [&] { to_ = write_share(share_, layouts_, room, source_, state); });
  data_ = room.first(size_t(to_.weights->held() + to_.optimizer->held()));
  sums_ = {to_.weights->sums(), to_.optimizer->sums()};
  std::vector<uint64_t> bytes{uint64_t(data_.size())};
  for (auto* sums : {&sums_.weights, &sums_.optimizer, &bytes}) sum_over(ranks_, *sums);
  bytes_ = int64_t(bytes[0]);
  if (!neighbours.empty())
    neighbours_ = std::make_unique<NeighbourCopy>(
        NeighbourCopy::Spec{.ranks = ranks_,
                            .neighbours = neighbours,
                            .life = life,
                            .step = step(),
                            .data = data_,
                            .room = room.subspan(data_.size()),
                            .write_files = [this](const fs::path& to) { write_files(to); }});
  fault_point("local_copied", rank(), step());
  run_beside([this] { write(); });
}

LocalCopy::~LocalCopy() {
  if (thread_.joinable()) thread_.join();
}

std::vector<fs::path> LocalCopy::shares() const {
  std::vector<fs::path> all = neighbours_ ? neighbours_->held() : std::vector<fs::path>();
  all.push_back(share_);
  return all;
}

void LocalCopy::run_beside(const std::function<void()>& f) {
  is_done_ = false;
  thread_ = std::thread([this, f] {
    try {
      f();
    } catch (const std::exception& e) { failure_ = e.what(); }
    is_done_ = true;
  });
}

void LocalCopy::write() {
  create_life(share_.parent_path());
  DurableFolder folder(share_);
  const fs::path& here = folder.building();
  LocalShare share{.name = {.step = step(), .rank = rank(), .ranks = ranks_.size()},
                   .pieces = pieces_of("", layouts_.weights, to_.weights->runs())};
  for (LocalPieces& p : pieces_of("weft/", layouts_.optimizer, to_.optimizer->runs()))
    share.pieces.push_back(std::move(p));
  if (rank() == 0) write_files(here);
  manifest_ = write_local_share(here, std::move(share), data_);
  fault_point("local_written", rank(), step());
  folder.commit();
  fault_point("local_committed", rank(), step());
}

void LocalCopy::write_files(const fs::path& share) const {
  const fs::path files = share / "files";
  create_folders(files / "weft");
  create_heads(files, layouts_.weights);
  create_heads(files / "weft", layouts_.optimizer);
  write_small_files(files, source_, layouts_, sums_);
}

// This rank's own share comes first: with all of these the copy is one, whatever becomes of the rest.
bool LocalCopy::advance() {
  double busy = is_done_ ? 0 : 1;
  ranks_.all_reduce({&busy, DType::f64, {1}}).wait();
  if (busy > 0) return false;
  join();
  if (!neighbours_) return true;
  if (!neighbours_->has_begun()) {
    neighbours_->wait_begin(manifest_);
    return false;
  }
  if (!neighbours_->is_under_way()) return true;
  neighbours_->wait_slice();
  run_beside([this] { neighbours_->write_arrived(); });
  return false;
}

void LocalCopy::wait() {
  do {
    if (thread_.joinable()) thread_.join();
  } while (!advance());
}

void LocalCopy::join() {
  if (thread_.joinable()) thread_.join();
  try {
    agree(ranks_, [&] {
      if (!failure_.empty()) throw FileError(failure_);
    });
  } catch (const FileError& e) {
    if (!neighbours_ || !neighbours_->has_begun()) throw;
    neighbours_->wait_stop();
    unheld_ = e.what();
  }
}

LocalCopies::LocalCopies(const Recipe& recipe, Communicator& ranks, int64_t from_step, const std::string& host)
    : run_(recipe.run.dir), local_dir_(recipe.checkpoint.local_dir), from_step_(from_step) {
  name_ = first_text(ranks, ranks.rank() == 0 ? local_name_of_run(run_) : "");
  life_ = first_text(ranks, ranks.rank() == 0 ? any_life() : "");
  if (recipe.checkpoint.local_neighbour) find_neighbours(ranks, host);
}

void LocalCopies::find_neighbours(Communicator& ranks, const std::string& host) {
  const std::vector<std::string> hosts = wait_hosts_of(ranks, host);
  neighbours_ = neighbours_of(hosts);
  if (neighbours_.empty()) {
    note_ = fmt::format("checkpoint.local_neighbour: all ranks are on one host, {}, so no other holds its local copies",
                        hosts[0]);
    return;
  }
  const std::set<std::string> names(hosts.begin(), hosts.end());
  note_ = fmt::format(
      "checkpoint.local_neighbour: {} hosts, of which each holds the local copies of another one too: {}'s are on {}",
      names.size(), hosts[0], hosts[size_t(neighbours_[0].holder)]);
}

LocalCopies::~LocalCopies() { join_removal(); }

void LocalCopies::make_known(Communicator& ranks) {
  agree(ranks, [&] {
    if (ranks.rank() != 0) return;
    create_folders(run_ / "checkpoints");
    write_file_durably(life_file_of(run_), nlohmann::json{{"format", 1}, {"life", life_}}.dump(1) + "\n");
  });
  is_known_ = true;
}

// The folders that this host has. In what is somebody else's nothing is removed: a name there may be a link any time.
std::vector<fs::path> LocalCopies::other_lives() const {
  std::set<fs::path> others;
  std::error_code error;
  for (fs::directory_iterator at(local_dir_, error), end; !error && at != end; at.increment(error)) {
    const fs::path name = at->path().filename();
    const std::string whole = (name.extension() == ".removing" ? name.stem() : name).string();
    const std::string life = whole.starts_with(name_ + "-") ? whole.substr(name_.size() + 1) : "";
    if (is_life(life) && life != life_) others.insert(local_folder_of(local_dir_, name_, life));
  }
  std::erase_if(others, [](const fs::path& life) {
    return !distrust_of(life).empty() || !distrust_of(life.string() + ".removing").empty();
  });
  return {others.begin(), others.end()};
}

void LocalCopies::has_saved(int64_t step, Communicator& ranks) {
  if (is_known_ || step <= from_step_) return;
  make_known(ranks);
  remove_beside(other_lives());
}

void LocalCopies::begin(const TrainingState& state, CheckpointSource source) {
  WEFT_CHECK(!copy_, "two local copies at once, of steps {} and {}", step(), source.progressed.step);
  began_s_ = now_s();
  copy_ = std::make_unique<LocalCopy>(folder(), state, std::move(source), neighbours_);
}

std::optional<LocalCopies::Written> LocalCopies::advance() {
  try {
    if (!copy_->advance()) return {};
  } catch (const FileError&) {
    drop();
    throw;
  }
  return finish();
}

LocalCopies::Written LocalCopies::wait() {
  try {
    copy_->wait();
  } catch (const FileError&) {
    drop();
    throw;
  }
  return finish();
}

LocalCopies::Written LocalCopies::finish() {
  Written written{.step = copy_->step(),
                  .bytes = copy_->bytes(),
                  .neighbour_bytes = copy_->is_held() ? copy_->bytes() : 0,
                  .seconds = now_s() - began_s_,
                  .unheld = copy_->unheld()};
  Communicator& ranks = copy_->ranks();
  whole_.push_back({.shares = copy_->shares(), .is_held = copy_->is_held()});
  copy_.reset();
  remove_old();
  has_saved(written.step, ranks);
  return written;
}

// A host may be lost: what other hosts hold outlasts newer ones that they do not.
void LocalCopies::remove_old() {
  while (whole_.size() > kKeptCopies) {
    const auto held = std::find_if(whole_.rbegin(), whole_.rend(), [](const Whole& copy) { return copy.is_held; });
    const auto old = whole_.begin() + (held == std::prev(whole_.rend()) ? 1 : 0);
    remove_beside(std::move(old->shares));
    whole_.erase(old);
  }
}

// Another rank may have no share of it.
void LocalCopies::drop() {
  std::vector<fs::path> shares = copy_->shares();
  copy_.reset();
  remove_beside(std::move(shares));
}

// What cannot be removed stays: it counts for nothing. Ranks of one host may do this at once.
void LocalCopies::remove_beside(std::vector<fs::path> folders) {
  join_removal();
  removal_ = std::thread([folders = std::move(folders)] {
    for (const fs::path& folder : folders) remove_folder(folder);
  });
}

void LocalCopies::join_removal() {
  if (removal_.joinable()) removal_.join();
}

void LocalCopies::remove_all() {
  join_removal();
  for (const Whole& copy : whole_)
    for (const fs::path& share : copy.shares) remove_folder(share);
  whole_.clear();
  std::error_code ignored;
  fs::remove(folder(), ignored);  // the last rank of a host; not while others have shares in it
}

void LocalCopies::begin_again(Communicator& ranks) {
  WEFT_CHECK(!copy_, "a run goes back while a local copy is written");
  remove_all();
  is_known_ = false;
  life_ = first_text(ranks, ranks.rank() == 0 ? any_life() : "");
  for (const fs::path& life : other_lives()) remove_folder(life);
  make_known(ranks);
}

}  // namespace weft
