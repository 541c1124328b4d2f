// weft bench machine: what weft takes on this machine, as a cluster's file.
#include "weft/apps/bench_machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <set>

#include "weft/apps/backends.h"
#include "weft/apps/bench_run.h"
#include "weft/apps/launch.h"
#include "weft/apps/measure_machine.h"
#include "weft/apps/ranks.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/memory_limits.h"
#include "weft/base/threads.h"
#include "weft/forecast/cluster.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr int kMostRanksOfANode = 256;
constexpr int64_t kUsualTokens = 2048;

// 1, 2, 4, ... up to the cores.
std::vector<int> usual_ranks() {
  std::vector<int> all;
  for (int n = 1; n <= std::min(usable_cores(), kMostRanksOfANode); n *= 2) all.push_back(n);
  return all;
}

std::vector<int> ranks_of(const std::vector<std::string>& words) {
  std::set<int> all;
  for (const std::string& word : words) {
    int n = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (error != std::errc() || end != word.data() + word.size() || n < 1 || n > kMostRanksOfANode)
      throw ConfigError(
          fmt::format("--ranks {}: numbers of ranks, from 1 to {}, as in --ranks 1,2,4", word, kMostRanksOfANode));
    all.insert(n);
  }
  return {all.begin(), all.end()};
}

std::vector<PrecisionChoice> precisions_of(const BenchOptions& o) {
  if (!o.precision) return {PrecisionChoice::f32, PrecisionChoice::bf16, PrecisionChoice::fp16};
  return {choice_named<PrecisionChoice>(*o.precision).value()};
}

Precision precision_of(PrecisionChoice choice) {
  return choice == PrecisionChoice::f32 ? kF32 : choice == PrecisionChoice::bf16 ? kBf16 : kF16;
}

// Measures so many ranks of this node, or the ranks that were started by a launcher.
class NodeMeasuring {
 public:
  NodeMeasuring(const BenchOptions& options, int world, const RankProcess& process)
      : options_(options), process_(process), world_(world) {
    const int here = process.here.empty() ? world : int(process.here.size());
    Recipe recipe;
    recipe.run.threads = options.threads.value_or(0);
    recipe.run.ranks = process.here.empty() ? RanksKind::local : RanksKind::mpi;
    recipe.parallel.dp = world;
    machine_ = machine_for(recipe, here);
    measured_ = {.ranks = here, .threads = machine_.threads, .processes = !process.here.empty()};
  }

  MeasuredRanks run() {
    if (!process_.here.empty())
      on_ranks({.dp = world_},
               [&](const MeasuringRank& rank) { require_hosts_alike(*rank.mesh.world, measured_.ranks); });
    for (const PrecisionChoice p : precisions_of(options_)) {
      say(fmt::format("products and attention, {}", p));
      on_ranks({.dp = world_}, [&](const MeasuringRank& rank) {
        std::vector<RateGrid> grids = measure_rates(rank, precision_of(p));
        if (leads(rank)) std::move(grids.begin(), grids.end(), std::back_inserter(measured_.rates));
      });
      say(fmt::format("steps of small models, op by op, {}", p));
      for (const TimedModel& model : timed_models(tokens(), world_)) measure_model(model, p);
    }
    measured_.ops = curves_of(timed_);
    std::sort(gaps_.begin(), gaps_.end());
    if (!gaps_.empty()) measured_.gap_s = gaps_[gaps_.size() / 2];  // of the rank that leads
    for (int n = 2; n <= world_; ++n)
      if (world_ % n == 0) measure_axis(n);
    return std::move(measured_);
  }
  const Machine& machine() const { return machine_; }

 private:
  int64_t tokens() const { return options_.tokens.value_or(kUsualTokens); }
  bool leads(const MeasuringRank& rank) const { return rank.mesh.world->rank() == 0; }
  void say(const std::string& what) const {
    if (process_.leads())
      std::cerr << fmt::format("{} rank{} of {} thread{}: {}\n", world_, world_ > 1 ? "s" : "", machine_.threads,
                               machine_.threads > 1 ? "s" : "", what);
  }
  void on_ranks(const MeshSizes& sizes, const std::function<void(const MeasuringRank&)>& body) {
    process_.run(sizes, *machine_.mover, [&](const ProcessMesh& mesh) {
      body({.machine = machine_.of_rank(mesh.world->rank()),
            .mesh = mesh,
            .now_s = now_s,
            .iters = options_.iters,
            .most_tokens = tokens(),
            .crowded = measured_.ranks * machine_.threads > usable_cores()});
    });
  }
  void measure_model(const TimedModel& model, PrecisionChoice precision) {
    Recipe recipe = recipe_of(model, precision);
    const SyntheticTokens data(recipe, model.vocabulary);
    const HfConfig config = config_of(model);
    const MeshSizes sizes = mesh_sizes_of(recipe);
    on_ranks(sizes.world() > 1 ? sizes : MeshSizes{.dp = world_}, [&](const MeasuringRank& rank) {
      const StepTimes times = measure_steps(rank, recipe, config);
      if (!leads(rank)) return;
      timed_.insert(timed_.end(), times.ops.begin(), times.ops.end());
      if (times.gap_s) gaps_.push_back(*times.gap_s);
    });
  }
  void measure_axis(int n) {
    say(fmt::format("collectives and messages of {} ranks", n));
    const bool far = goes_over_hosts(n, measured_.ranks);
    on_ranks({.dp = world_, .shards = n}, [&](const MeasuringRank& rank) {
      const std::vector<CollectiveCurve> curves = measure_collectives(rank, far);
      if (leads(rank)) measured_.collectives.insert(measured_.collectives.end(), curves.begin(), curves.end());
    });
  }

  const BenchOptions& options_;
  const RankProcess& process_;
  int world_;
  Machine machine_;
  MeasuredRanks measured_;
  std::vector<TimedOp> timed_;
  std::vector<double> gaps_;
};

// Bytes a second of the largest of these collectives; none: 0.
LinkSpec link_of(const std::vector<MeasuredRanks>& all, bool far) {
  LinkSpec link;
  for (const MeasuredRanks& m : all)
    for (const CollectiveCurve& c : m.collectives) {
      if (c.far != far) continue;
      link.bytes_per_s = std::max(link.bytes_per_s, c.curve.at.back() / c.curve.seconds.back());
      link.latency_s =
          link.latency_s == 0 ? c.curve.seconds.front() : std::min(link.latency_s, c.curve.seconds.front());
    }
  return link;
}

ClusterSpec cluster_of(std::vector<MeasuredRanks> measured, const Machine& machine, int nodes) {
  ClusterSpec c;
  c.devices_per_node = c.domain = measured.back().ranks;
  c.num_devices = nodes * c.devices_per_node;
  c.device.name = "cpu";
  c.device.source = fmt::format("weft bench machine; {}", machine.description);
  for (const MeasuredRanks& m : measured) {
    c.device.peak.bits16 = std::max({c.device.peak.bits16, m.best_rate("bf16"), m.best_rate("f16")});
    c.device.peak.f32 = std::max(c.device.peak.f32, m.best_rate("f32"));
  }
  if (c.device.peak.bits16 == 0) c.device.peak.bits16 = c.device.peak.f32;
  c.device.products = c.device.peak;
  c.device.memory_bytes_per_s = machine.measure_bandwidth();
  const auto left = memory_left_here();
  c.device.memory_bytes = double(left ? left->bytes : int64_t{1} << 34) / c.devices_per_node;
  c.scale_out = link_of(measured, true);
  c.scale_up = link_of(measured, false);
  c.scale_up.bytes_per_s = std::max({c.scale_up.bytes_per_s, c.scale_out.bytes_per_s, 1e6});
  if (c.scale_out.bytes_per_s > 0) {  // a thread of the mesh moves what goes to other hosts, while the rank computes
    const ProgramProfile usual;
    c.program = {{"gather_hidden", usual.gather_hidden}, {"reduce_hidden", usual.reduce_hidden}};
  }
  c.measured = std::move(measured);
  return c;
}

void write_cluster(const std::string& path, const ClusterSpec& cluster) {
  const std::string text = to_toml(cluster);
  try {
    parse_cluster(text, path);
  } catch (const ConfigError& e) {  // what took minutes is kept, under a name that says what it is
    write_file_durably(path + ".refused", text);
    throw ConfigError(fmt::format("{} (what was measured is kept in {}.refused)", e.what(), path));
  }
  write_file_durably(path, text);
  std::cout << fmt::format("{}: {} measured; now `weft plan RECIPE --cluster {}`\n", path, cluster.device.source, path);
}

void check_options(const BenchOptions& o) {
  if (!o.recipe.empty())
    throw ConfigError("bench machine takes no recipe; --ranks, --precision and --threads say what");
  if (!o.layouts.empty() || !o.trace.empty() || o.ops || o.backend || !o.cluster.empty() || o.json)
    throw ConfigError(
        "bench machine takes --ranks, --out, --again, --precision, --threads, --tokens and --iters alone");
}

// Before minutes of measurement: by the rank alone that will write it.
void check_path(const std::filesystem::path& path, bool again) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code none;
  if (std::filesystem::is_directory(path, none))
    throw ConfigError(fmt::format("--out {}: is a folder; name a file in it", path.string()));
  if (!std::filesystem::is_directory(folder, none) || access(folder.c_str(), W_OK) != 0)
    throw ConfigError(fmt::format("--out {}: {} is no folder that can be written to; make it, or name another",
                                  path.string(), folder.string()));
  if (std::filesystem::exists(path, none) && !again)
    throw ConfigError(
        fmt::format("{} is there already; name another with --out, or replace it with --again", path.string()));
}

int measure_processes(const BenchOptions& o, const std::string& path, const Launched& launched) {
  Recipe::Run run;
  run.ranks = RanksKind::mpi;
  const RankProcess process = join_mpi(launched.world, run, "bench");
  return run_as_rank(process, "bench", [&] {
    if (process.leads()) check_path(path, o.again);
    NodeMeasuring node(o, launched.world, process);
    MeasuredRanks measured = node.run();
    if (process.leads())
      write_cluster(path, cluster_of({std::move(measured)}, node.machine(), launched.world / int(process.here.size())));
    return kExitOk;
  });
}

}  // namespace

int bench_machine(const BenchOptions& o) {
  const std::string path = o.out.empty() ? kMachineFile : o.out;
  const Launched launched = launched_as(environment);
  std::vector<int> counts;
  try {
    check_options(o);
    counts = o.ranks.empty() ? usual_ranks() : ranks_of(o.ranks);
    if (!launched.by.empty()) check_mpi_is_built_in();
    if (!launched.by.empty() && !o.ranks.empty())
      throw ConfigError("--ranks is of ranks as threads; a launcher has started these processes");
  } catch (const ConfigError&) {
    if (launched.rank == 0) throw;
    let_the_first_rank_speak(launched.rank);
    return kExitUsage;
  }
  if (!launched.by.empty()) return measure_processes(o, path, launched);
  const RankProcess threads;
  std::vector<MeasuredRanks> all;
  std::optional<Machine> machine;
  check_path(path, o.again);
  for (const int n : counts) {
    NodeMeasuring node(o, n, threads);
    all.push_back(node.run());
    machine = node.machine();
  }
  write_cluster(path, cluster_of(std::move(all), *machine, 1));
  return kExitOk;
}

}  // namespace weft
