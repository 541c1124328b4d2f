#include "weft/train/hang_watch.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/base/json.h"
#include "weft/records/clock.h"
#include "weft/records/events.h"

namespace weft {

namespace fs = std::filesystem;

void RankSigns::enter(RunSection section, int64_t step) {
  const double now = now_s();
  const std::lock_guard lock(mutex_);
  if (seen_.section == RunSection::step && seen_.number > 0)
    seen_.longest_s = std::max(seen_.longest_s, now - since_s_);
  if (section == RunSection::setup) seen_.longest_s = 0;  // what follows may take longer
  seen_.section = section;
  seen_.step = step;
  ++seen_.number;
  since_s_ = now;
}

RankSigns::Seen RankSigns::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

namespace {

constexpr double kTimesLongest = 8;
constexpr double kOthers_s = 2;    // at most, for what other processes write
constexpr double kStacks_s = 0.5;  // at most, for threads that do not answer

fs::path file_of(const fs::path& folder, int rank) { return folder / fmt::format("rank-{}.json", rank); }

nlohmann::json to_json(const RecordedCall& call, double now) {
  constexpr const char* kNames[] = {"begun", "waited", "done"};
  nlohmann::json j{{"call", call.to_string()},
                   {"number", call.number},
                   {"op", call.op},
                   {"axis", call.axis},
                   {"ranks", call.size},
                   {"bytes", call.bytes},
                   {"is", kNames[int(call.is)]},
                   {"began_s_ago", now - call.began_s}};
  if (call.peer >= 0) j["peer"] = call.peer;
  if (call.is != RecordedCall::Is::begun) j["waited_s_ago"] = now - call.waited_s;
  if (call.is == RecordedCall::Is::done) j["ended_s_ago"] = now - call.ended_s;
  return j;
}

void write_signs(const fs::path& folder, const RankSigns& signs, double still_s) {
  const RankSigns::Seen seen = signs.seen();
  const double now = now_s();
  nlohmann::json calls = nlohmann::json::array();
  for (const RecordedCall& call : signs.calls.last()) calls.push_back(to_json(call, now));
  const nlohmann::json j{{"rank", signs.rank},
                         {"host", name_of_host()},
                         {"process", ::getpid()},
                         {"time", wall_time_s()},
                         {"section", std::string(name_of(seen.section))},
                         {"step", seen.step + 1},
                         {"still_s", still_s},
                         {"calls", std::move(calls)}};
  write_file_durably(file_of(folder, signs.rank), j.dump(1) + "\n");
}

// What a rank has written of this hang; none yet.
std::optional<nlohmann::json> read_signs(const fs::path& folder, int rank, double since_s) {
  std::error_code ignored;
  if (!fs::exists(file_of(folder, rank), ignored)) return {};
  try {
    nlohmann::json j = read_json_file(file_of(folder, rank));
    if (j.at("time").get<double>() >= since_s) return j;
  } catch (const FileError&) {
  } catch (const nlohmann::json::exception&) {}
  return {};
}

bool all_have_written(const fs::path& folder, int world, double since_s) {
  for (int r = 0; r < world; ++r)
    if (!read_signs(folder, r, since_s)) return false;
  return true;
}

std::string who(const nlohmann::json& j) {
  return fmt::format("rank {} (process {} on host {})", j["rank"].get<int>(), j["process"].get<int64_t>(),
                     j["host"].get<std::string>());
}

}  // namespace

std::string hang_text(const fs::path& folder, int world, double since_s) {
  std::string away, waiting;
  const auto add = [](std::string& to, const std::string& text) { to += (to.empty() ? "" : "; ") + text; };
  for (int r = 0; r < world; ++r) {
    const auto j = read_signs(folder, r, since_s);
    if (!j) {
      add(away, fmt::format("rank {} says nothing: its process is stopped, gone or cut off", r));
      continue;
    }
    const nlohmann::json &calls = (*j)["calls"], last = calls.empty() ? nlohmann::json() : calls.back();
    const auto waits = std::find_if(calls.begin(), calls.end(), [](const auto& c) { return c["is"] == "waited"; });
    if (waits != calls.end())
      add(waiting, fmt::format("rank {} waits in {}, since {:.1f} s", r, (*waits)["call"].get<std::string>(),
                               (*waits)["waited_s_ago"].get<double>()));
    else if (calls.empty())
      add(away, fmt::format("{} is in no call and was in none", who(*j)));
    else
      add(away, fmt::format("{} is in no call, its last was {}, {:.1f} s ago", who(*j), last["call"].get<std::string>(),
                            last["began_s_ago"].get<double>()));
  }
  if (away.empty()) away = "every rank waits for another";
  return waiting.empty() ? away : away + "; " + waiting;
}

HangWatch::HangWatch(Spec spec) : spec_(std::move(spec)) {
  if (!spec_.hung) return;
  prepare_stacks();
  crashes_ = std::make_unique<CrashHold>();
  thread_ = std::thread([this] { run(); });
}

HangWatch::~HangWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  news_.notify_one();
  if (thread_.joinable()) thread_.join();
}

RankSigns& HangWatch::join(int rank) {
  const std::lock_guard lock(mutex_);
  return ranks_.emplace_back(rank).signs;
}

void HangWatch::write(const RankSigns& signs) const noexcept {
  try {
    fs::create_directories(spec_.run / "hang");
    write_signs(spec_.run / "hang", signs, 0);
  } catch (const std::exception&) {}  // it is told all the same
}

void HangWatch::run() {
  const double tick_s = std::clamp(spec_.least_s / 16, 0.01, 0.5);
  std::unique_lock lock(mutex_);
  for (double then = now_s(); !ends_;) {
    news_.wait_for(lock, std::chrono::duration<double>(tick_s));
    if (const auto crash = crashes_->held()) {
      report_crash(*crash);
      return crashes_->release();
    }
    const double now = now_s();
    if (look(std::min(now - std::exchange(then, now), 2 * tick_s))) return;
  }
}

// True where it has reported a hang.
bool HangWatch::look(double passed_s) {
  double longest_s = 0;
  for (const Watched& w : ranks_) longest_s = std::max(longest_s, w.signs.seen().longest_s);
  if (longest_s == 0 || ends_) return false;
  const double limit_s = std::max(spec_.least_s, kTimesLongest * longest_s);
  for (Watched& w : ranks_) {
    const RankSigns::Seen seen = w.signs.seen();
    w.still_s = std::exchange(w.number, seen.number) == seen.number ? w.still_s + passed_s : 0;
    if (seen.section != RunSection::step || w.still_s < limit_s) continue;
    report(w.still_s);
    return true;
  }
  return false;
}

void HangWatch::report(double still_s) {
  const double since_s = wall_time_s() - still_s;
  const fs::path folder = spec_.run / "hang";
  int64_t step = 0;
  try {
    fs::create_directories(folder);
    for (const Watched& w : ranks_) {
      write_signs(folder, w.signs, w.still_s);
      step = w.signs.seen().step + 1;
    }
  } catch (const std::exception&) {}  // a disk that does not write is perhaps what hangs; the report goes without
  const double others_s = std::min(kOthers_s, spec_.least_s / 8);  // a supervisor does not wait for longer
  for (const double till = now_s() + others_s; now_s() < till && !all_have_written(folder, spec_.world, since_s);)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string text = hang_text(folder, spec_.world, since_s);
  try {
    const bool leads = std::any_of(ranks_.begin(), ranks_.end(), [](const Watched& w) { return w.signs.rank == 0; });
    if (leads || !read_signs(folder, 0, since_s))
      append_event(spec_.run, "hang", {{"step", step}, {"still_s", still_s}, {"reason", text}});
  } catch (const FileError&) {}
  write_stacks(folder, fmt::format("still for {:.1f} s", still_s), ranks_here(),
               std::min(kStacks_s, spec_.least_s / 4));
  spec_.hung(fmt::format(
      "step {}: nothing has gone on for {:.1f} s: {}. The last calls of each rank are in {}, and the stacks of all "
      "threads in its stacks-R.txt",
      step, still_s, text, folder.string()));
}

void HangWatch::report_crash(const HeldCrash& crash) const {
  const std::string signal = fmt::format("signal {} ({})", crash.signal, ::strsignal(crash.signal));
  std::vector<NamedThread> named = ranks_here();
  const auto rank = std::find_if(named.begin(), named.end(), [&](const auto& t) { return t.id == crash.thread; });
  const std::string who = rank == named.end() ? "a thread" : rank->name;
  if (rank != named.end()) named.erase(rank);
  named.insert(named.begin(), {crash.thread, fmt::format("{}, which got {}", who, signal)});
  const fs::path file = write_stacks(spec_.run / "crash", "before its end", named, kStacks_s);
  const std::string text = file.empty() ? fmt::format("{} got {}; its stack could not be written", who, signal)
                                        : fmt::format("{} got {}: {} has its stack", who, signal, file.string());
  try {
    append_event(spec_.run, "crash", {{"signal", crash.signal}, {"reason", text}});
  } catch (const FileError&) {}
  if (spec_.crashed) spec_.crashed(text);
}

// In the order of their numbers.
std::vector<NamedThread> HangWatch::ranks_here() const {
  std::vector<const RankSigns*> ranks;
  for (const Watched& w : ranks_) ranks.push_back(&w.signs);
  std::sort(ranks.begin(), ranks.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  std::vector<NamedThread> named;
  for (const RankSigns* signs : ranks) named.push_back({signs->thread, fmt::format("rank {}", signs->rank)});
  return named;
}

fs::path HangWatch::write_stacks(const fs::path& folder, const std::string& why, const std::vector<NamedThread>& named,
                                 double wait_s) const {
  int first = spec_.world;
  for (const Watched& w : ranks_) first = std::min(first, w.signs.rank);
  const fs::path file = folder / fmt::format("stacks-{}.txt", first);
  try {
    fs::create_directories(folder);
    write_file_durably(file, fmt::format("process {} on host {}, time {:.3f}, {}\n\n{}", ::getpid(), name_of_host(),
                                         wall_time_s(), why, stacks_of_threads(named, wait_s)));
  } catch (const std::exception&) { return {}; }  // it is told all the same
  return file;
}

}  // namespace weft
