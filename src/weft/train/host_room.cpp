#include "weft/train/host_room.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include "weft/base/error.h"
#include "weft/train/room.h"

namespace weft {
namespace {

constexpr int64_t kMiB = 1 << 20;
// Beside the plans: 2 to 6 MiB were measured of a process with a small model, and what grows with it is a tokenizer's
// tables and buffers of files and messages.
constexpr int64_t kProcess = 24 * kMiB;
constexpr int64_t kMpiProcess = 16 * kMiB;     // more, where it talks MPI
constexpr int64_t kThreadRank = 2 * kMiB;      // of a rank that is a thread, but for the first
constexpr int64_t kMappedBeside = 256 * kMiB;  // mapped by a process and not used: stacks, libraries, threads' heaps

// Why they do not fit; empty: they do.
std::string why_no_room(const HostNeed& need, const HostMemory& memory) {
  if (memory.all && need.total() > memory.all->bytes) return memory.all->what;
  if (memory.each && need.largest + kMappedBeside > memory.each->bytes) return memory.each->what;
  return "";
}

// Settings of a recipe that change its memory and not, but for rounding, what it learns.
struct Candidate {
  std::vector<std::string> settings;
  Recipe recipe;
  int weight = 0;  // how far from the given one
};

std::vector<Candidate> candidates(const Recipe& given) {
  constexpr std::array kRecompute{"none", "selective", "full"};
  const auto kept = std::find(kRecompute.begin(), kRecompute.end(), given.parallel.recompute) - kRecompute.begin();
  const bool begun = std::filesystem::exists(std::filesystem::path(given.run.dir) / "recipe.toml");
  std::vector<Candidate> all;
  for (auto recompute = size_t(kept); recompute < kRecompute.size(); ++recompute) {
    for (int64_t batch = given.train.micro_batch_size, halvings = 0; batch >= 1; batch /= 2, ++halvings) {
      for (int64_t zero = given.parallel.zero_stage; zero <= (given.parallel.dp > 1 ? 3 : given.parallel.zero_stage);
           ++zero) {
        Candidate c{.settings = {}, .recipe = given};
        c.recipe.parallel.recompute = kRecompute[recompute];
        c.recipe.train.micro_batch_size = batch;
        c.recipe.parallel.zero_stage = zero;
        if (recompute > size_t(kept)) c.settings.push_back(fmt::format("parallel.recompute={}", kRecompute[recompute]));
        if (halvings > 0) c.settings.push_back(fmt::format("train.micro_batch_size={}", batch));
        if (zero > given.parallel.zero_stage) c.settings.push_back(fmt::format("parallel.zero_stage={}", zero));
        c.weight = int(100 * c.settings.size() + (recompute - size_t(kept)) + size_t(halvings) +
                       size_t(zero - given.parallel.zero_stage));
        if (!c.settings.empty()) all.push_back(std::move(c));
      }
      if (begun) break;  // micro_batch_size may not change any more
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.weight < b.weight; });
  return all;
}

std::string advice(const Recipe& recipe, const WorkspaceModel& workspace, const RanksOnHost& here,
                   const HostMemory& memory) {
  std::optional<int64_t> least;
  std::string least_settings;
  for (const Candidate& c : candidates(recipe)) {
    std::optional<HostNeed> need;
    try {
      need = need_on_host(plan_layout(c.recipe, workspace), here);
    } catch (const Error&) {  // these do not go together
      continue;
    }
    const std::string settings = fmt::format("{}", fmt::join(c.settings, " "));
    if (why_no_room(*need, memory).empty())
      return fmt::format("the nearest that fits: {} ({})", settings, gib_text(need->total()));
    if (!least || need->total() < *least) {
      least = need->total();
      least_settings = settings;
    }
  }
  if (!least) return "a smaller model, fewer ranks here or more memory is needed";
  return fmt::format(
      "no recomputation, micro-batch size or ZeRO stage makes it fit: the least is {} ({}); a smaller "
      "model, shorter sequences, fewer ranks here or more memory is needed",
      gib_text(*least), least_settings);
}

}  // namespace

HostMemory memory_of_this_host() { return {memory_left_here(), memory_left_to_a_process()}; }

RanksOnHost all_on_this_host(const LayoutPlan& plan, bool are_processes) {
  RanksOnHost here{.ranks = std::vector<int>(size_t(plan.run.step.mesh.world())), .are_processes = are_processes};
  std::iota(here.ranks.begin(), here.ranks.end(), 0);
  return here;
}

HostNeed need_on_host(const LayoutPlan& plan, const RanksOnHost& here) {
  HostNeed need;
  const auto num_ranks = int64_t(here.ranks.size());
  for (const int rank : here.ranks) {
    const int64_t bytes = planned_bytes(plan, rank);
    need.planned += bytes;
    need.largest = std::max(need.largest, bytes);
  }
  if (!here.are_processes) need.largest = need.planned;
  need.beside = here.are_processes ? num_ranks * (kProcess + kMpiProcess) : kProcess + (num_ranks - 1) * kThreadRank;
  return need;
}

void require_host_room(const Recipe& recipe, const LayoutPlan& plan, const WorkspaceModel& workspace,
                       const RanksOnHost& here, const HostMemory& memory) {
  const HostNeed need = need_on_host(plan, here);
  const std::string why = why_no_room(need, memory);
  if (why.empty()) return;
  const size_t ranks = here.ranks.size();
  throw ConfigError(fmt::format(
      "no memory for the plan: {} take{} {} on this host (planned {}, and about {} beside it), but {}; {}; "
      "`weft plan` shows what takes it, --force starts all the same",
      ranks == 1 ? "its rank" : fmt::format("its {} ranks", ranks), ranks == 1 ? "s" : "", gib_text(need.total()),
      gib_text(need.planned), gib_text(need.beside), why, advice(recipe, workspace, here, memory)));
}

}  // namespace weft
