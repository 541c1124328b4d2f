#include "weft/apps/start_watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "weft/apps/commands.h"
#include "weft/apps/failure.h"
#include "weft/apps/launch.h"
#include "weft/apps/rank_processes.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"

namespace weft {
namespace {

constexpr int kLetOthersSpeak_s = 3;

// The ranks of this job that run on this host.
std::vector<RankProcessHere> ranks_of_job() {
  const std::string job = environment("PMIX_NAMESPACE").value_or("");
  std::vector<RankProcessHere> ranks;
  if (job.empty()) return ranks;
  const std::vector<RankProcessHere> all = processes_here();
  std::copy_if(all.begin(), all.end(), std::back_inserter(ranks),
               [&](const auto& p) { return p.job == job && p.rank >= 0; });
  return ranks;
}

bool is_lowest_that_runs(int rank, const std::vector<RankProcessHere>& ranks) {
  return std::none_of(ranks.begin(), ranks.end(), [&](const auto& p) { return p.rank < rank && !p.stopped; });
}

std::string here_text(const std::vector<RankProcessHere>& ranks) {
  std::vector<int> numbers;
  for (const RankProcessHere& p : ranks) numbers.push_back(p.rank);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return fmt::format("on host {} run{} rank{} {}", name_of_host(), numbers.size() > 1 ? "" : "s",
                     numbers.size() > 1 ? "s" : "", fmt::join(numbers, ", "));
}

}  // namespace

StartWatch::StartWatch(const Spec& spec) : spec_(spec), thread_([this] { run(); }) {}

StartWatch::~StartWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

bool StartWatch::ended_within(int seconds) {
  std::unique_lock lock(mutex_);
  return ends_.wait_for(lock, std::chrono::seconds(seconds), [&] { return ended_; });
}

void StartWatch::run() {
  StoppedWatch stopped(kStoppedRank_s);
  for (int looks = 1; !ended_within(1); ++looks) {
    const std::vector<RankProcessHere> ranks = ranks_of_job();
    std::string why = stopped.look(ranks);
    if (!why.empty())
      why += fmt::format(", and {}", spec_.what);
    else if (looks >= spec_.timeout_s)
      why = fmt::format(
          "{} in {:.3g} minutes ({}): {}; look at the others: does their host answer, and by the network that MPI "
          "takes (mpirun --mca btl_tcp_if_include)?",
          spec_.what, spec_.timeout_s / 60, spec_.key, here_text(ranks));
    if (why.empty()) continue;
    if (!is_lowest_that_runs(spec_.rank, ranks) && ended_within(kLetOthersSpeak_s)) return;
    ::_exit(say_error(spec_.rank > 0 ? fmt::format("{}, rank {}", spec_.command, spec_.rank) : spec_.command, why,
                      kExitFailure));
  }
}

}  // namespace weft
