#include "weft/train/room.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "weft/base/error.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/checkpoints_wanted.h"

namespace weft {
namespace {

double gib(int64_t bytes) { return double(bytes) / double(1 << 30); }

void require_room_on(const Machine& device, const std::vector<int>& ranks, const LayoutPlan& plan) {
  if (!device.free_bytes || ranks.empty()) return;
  int64_t bytes = 0;
  for (const int rank : ranks) bytes += planned_bytes(plan, rank, false);
  const int64_t free = device.free_bytes();
  if (bytes <= free) return;
  const bool shared = ranks.size() > 1;
  throw ConfigError(
      fmt::format("no memory for the plan{} {}: {:.2f} GiB, {} has {:.2f} GiB free; {}`weft plan` shows "
                  "what the recipe needs and why",
                  shared ? "s of ranks" : " of rank", fmt::join(ranks, ", "), gib(bytes), device.device, gib(free),
                  shared ? "these ranks share it: fewer ranks, or more GPUs; " : ""));
}

}  // namespace

int64_t planned_bytes(const LayoutPlan& plan, int rank, bool with_host) {
  const auto has = [&](const RankClass& c) { return std::binary_search(c.ranks.begin(), c.ranks.end(), rank); };
  const auto its = std::find_if(plan.classes.begin(), plan.classes.end(), has);
  WEFT_CHECK(its != plan.classes.end(), "no plan for rank {}", rank);
  const MemoryPlan& own = its->plan;
  return own.total_bytes() - (with_host ? 0 : own.persistent.records + own.teacher_rows);
}

void require_room(const Machine& machine, const LayoutPlan& plan) {
  const size_t num_devices = std::max<size_t>(1, machine.devices.size());
  std::vector<std::vector<int>> ranks(num_devices);
  for (int rank = 0; rank < plan.run.step.mesh.world(); ++rank) ranks[size_t(rank) % num_devices].push_back(rank);
  for (size_t d = 0; d < num_devices; ++d) require_room_on(machine.of_rank(int(d)), ranks[d], plan);
}

namespace {

namespace fs = std::filesystem;

int64_t bytes_of(const std::vector<fs::path>& folders) {
  int64_t bytes = 0;
  for (const fs::path& folder : folders) bytes += bytes_below(folder);
  return bytes;
}

std::vector<fs::path> without(std::vector<fs::path> all, const std::vector<fs::path>& some) {
  std::erase_if(all, [&](const fs::path& one) { return std::find(some.begin(), some.end(), one) != some.end(); });
  return all;
}

Recipe without_best(Recipe recipe) {
  recipe.checkpoint.keep_best = 0;
  return recipe;
}

}  // namespace

std::string judge_checkpoint_room(const Recipe& recipe, const RunPlan& plan) {
  const fs::path run = recipe.run.dir;
  const int64_t keep = recipe.checkpoint.keep_latest;
  const std::vector<fs::path> all = checkpoint_folders(run);
  const int64_t step = all.empty() ? 0 : step_of(all.back());
  const std::optional<int64_t> free = free_bytes_at(run), largest = largest_file_bytes();
  if (times_left(recipe, step, 0) == 0) return "";
  const CheckpointBytes one = checkpoint_bytes(plan.model, *plan.optimizer, plan.step.precision.stat);
  const auto say = [&](const std::string& what, const char* then) {
    const std::string text = fmt::format("{}: {}", run.string(), what);
    if (all.empty()) throw FileError(fmt::format("{}; nothing of this run could be saved", text));
    return fmt::format("{}; {}", text, then);
  };
  if (largest && one.largest_file > *largest)
    return say(fmt::format("a checkpoint has a file of {} bytes, this process may write files of {}: raise ulimit -f",
                           one.largest_file, *largest),
               "until then no save will succeed");
  if (!free) return "";
  // What a save may remove: everything that is no checkpoint, and checkpoints other than the newest and those that stay
  // whatever their age.
  const std::vector<fs::path> may_go =
      keep > 0 ? surplus_of(all, {.latest = 1, .whatever_age = kept_checkpoints(recipe).whatever_age})
               : std::vector<fs::path>();
  const int64_t room = *free + bytes_below(run / "checkpoints") - bytes_of(all) + bytes_of(may_go);
  if (one.total > room)
    return say(fmt::format("a checkpoint has {} bytes, and {} are free there: free {} more, or choose another run.dir",
                           one.total, room, one.total - room),
               "until then no save will succeed");
  const WantedCheckpoints wanted = wanted_checkpoints(
      recipe, {.staying = without(all, may_go), .for_phases = kept_checkpoints(without_best(recipe)).whatever_age});
  if (one.total * wanted.count <= room) return "";
  return fmt::format(
      "{}: a checkpoint has {} bytes, and {} are free there: {} do not fit, so that saves will fail; free {} more, or "
      "choose another run.dir{}",
      run.string(), one.total, room, wanted.name, one.total * wanted.count - room,
      keep == 0 ? ", or a checkpoint.keep_latest" : " (an older one is removed only when its successor is whole)");
}

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

// The same, and where there is a frozen model whose weights each rank has whole, also with these divided.
void add_candidate(const Recipe& given, Candidate c, std::vector<Candidate>& all) {
  const int64_t ranks = given.parallel.dp * given.parallel.cp;
  const bool whole = given.parallel.frozen_shard_size == 0 && c.recipe.parallel.zero_stage < 3;
  if (!c.settings.empty()) all.push_back(c);
  if (!has_frozen_model(given) || given.objective.top_k > 0 || !whole || ranks == 1) return;
  c.recipe.parallel.frozen_shard_size = ranks;
  c.settings.push_back(fmt::format("parallel.frozen_shard_size={}", ranks));
  c.weight += 100;
  all.push_back(std::move(c));
}

std::vector<Candidate> candidates(const Recipe& given) {
  // The later of these take less memory. To a smaller budget than it has a recipe is not fitted here.
  const bool has_budget = given.parallel.recompute == RecomputeKind::budget;
  const auto kept = size_t(has_budget ? RecomputeKind::full : given.parallel.recompute);
  std::vector<Candidate> all;
  for (size_t recompute = kept; recompute <= size_t(RecomputeKind::full); ++recompute) {
    for (int64_t batch = given.train.micro_batch_size, halvings = 0; batch >= 1; batch /= 2, ++halvings) {
      const bool shards = given.parallel.dp * given.parallel.cp > 1;
      for (int64_t zero = given.parallel.zero_stage; zero <= (shards ? 3 : given.parallel.zero_stage); ++zero) {
        Candidate c{.settings = {}, .recipe = given};
        c.recipe.parallel.recompute = RecomputeKind(recompute);
        c.recipe.train.micro_batch_size = batch;
        c.recipe.parallel.zero_stage = zero;
        c.recipe.parallel.memory_budget.clear();
        if (has_budget) c.settings.emplace_back("parallel.recompute=full parallel.memory_budget=");
        if (recompute > kept) c.settings.push_back(fmt::format("parallel.recompute={}", RecomputeKind(recompute)));
        if (halvings > 0) c.settings.push_back(fmt::format("train.micro_batch_size={}", batch));
        if (zero > given.parallel.zero_stage) c.settings.push_back(fmt::format("parallel.zero_stage={}", zero));
        c.weight = int(100 * c.settings.size() + (recompute - kept) + size_t(halvings) +
                       size_t(zero - given.parallel.zero_stage));
        add_candidate(given, std::move(c), all);
      }
      if (has_begun(given)) break;
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
                       const RanksOnHost& here, const HostMemory& memory, std::string_view all_the_same) {
  const HostNeed need = need_on_host(plan, here);
  const std::string why = why_no_room(need, memory);
  if (why.empty()) return;
  const size_t ranks = here.ranks.size();
  throw ConfigError(fmt::format(
      "no memory for the plan: {} take{} {} on this host (planned {}, and about {} beside it), but {}; {}; "
      "`weft plan` shows what takes it{}",
      ranks == 1 ? "its rank" : fmt::format("its {} ranks", ranks), ranks == 1 ? "s" : "", gib_text(need.total()),
      gib_text(need.planned), gib_text(need.beside), why, advice(recipe, workspace, here, memory), all_the_same));
}

void require_host_room(const Recipe& recipe, const LayoutPlan& plan, const Machine& machine) {
  if (!machine.device.empty()) return;
  require_host_room(recipe, plan, *machine.workspace_model, all_on_this_host(plan, false), memory_of_this_host());
}

}  // namespace weft
