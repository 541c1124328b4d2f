#include "weft/apps/bench_scaling.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/bench_run.h"
#include "weft/apps/data_lines.h"
#include "weft/apps/first_rank_says.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher.h"
#include "weft/apps/ranks.h"
#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/comm/timed.h"
#include "weft/ops/traced.h"
#include "weft/plan/layout_plan.h"
#include "weft/records/clock.h"
#include "weft/train/rank_plan.h"
#include "weft/train/room.h"

namespace weft {
namespace {

constexpr int kBarColumns = 40;
constexpr int64_t kStepsOfARound = 2;
constexpr double kNever = 1e30;  // seconds

// How a step is run: as it is, with every collective waited for where it is called, or without any communication.
enum class How : uint8_t { as_it_is, at_once, compute_alone };
constexpr std::array kWays{How::as_it_is, How::at_once, How::compute_alone};

// One layout, and what was measured of it.
struct Layout {
  std::string name;
  Recipe recipe;
  std::array<double, kWays.size()> step_s = {kNever, kNever, kNever};  // the best of the rounds
  CommTimes times = {};  // of rank 0 in the best round as it is, in all its steps
  bool communicates() const { return mesh_sizes_of(recipe).world() > 1; }
  double best_s(How how = How::as_it_is) const { return step_s[size_t(how)]; }
  // Communication time, and the part that nothing hides; waiting for other ranks counts too.
  double comm_s() const { return std::max(0.0, best_s(How::at_once) - best_s(How::compute_alone)); }
  double exposed_s() const { return std::max(0.0, best_s() - best_s(How::compute_alone)); }
};

void check_same_run(const std::vector<std::string>& layouts) {
  for (const std::string& layout : layouts)
    for (const std::string& one : layout_overrides(layout))
      if (one.starts_with("run."))
        throw ConfigError(
            fmt::format("--layouts {}: [run] is the same for all layouts; write {} before --layouts, which "
                        "takes what follows it: weft bench scaling r.toml {} --layouts dp=2 tp=2",
                        layout, one, one));
}

std::vector<Layout> layouts_of(const BenchOptions& o) {
  check_same_run(o.layouts);
  const bool speaks = launched_as(environment).rank == 0;
  const Recipe base = first_steps_of(read_recipe(o.recipe, o.overrides, speaks), speaks);
  std::vector<std::string> names = o.layouts;
  if (names.empty()) {
    const std::string n = std::to_string(std::max(2, base.run.threads > 0 ? int(base.run.threads) : usable_cores()));
    names = {"dp=" + n, "dp=" + n + ",zero_stage=1", "dp=" + n + ",zero_stage=3", "tp=" + n,
             "pp=" + n + ",pipeline_schedule=zb_h1"};
  }
  std::vector<Layout> all;
  if (base.run.ranks == RanksKind::local) {
    all.push_back({"one rank", base});
    all[0].recipe.parallel = {};
    if (base.parallel.recompute != RecomputeKind::budget)  // which is of the ranks of a layout
      all[0].recipe.parallel.recompute = base.parallel.recompute;
  }
  for (const std::string& name : names) {
    std::vector<std::string> overrides = o.overrides;
    for (const std::string& one : layout_overrides(name)) overrides.push_back(one);
    overrides.push_back(fmt::format("run.backend={}", base.run.backend));  // of "auto", what it took
    all.push_back({name, first_steps_of(parse_recipe_file(o.recipe, overrides), false)});
  }
  for (Layout& l : all) {
    l.recipe.train.autotune = false;  // steps are timed as the layout says, whether or not it leaves something to try
    check_supported(l.recipe);
    check_launch(l.recipe, mesh_sizes_of(l.recipe).world(), {});
    const int ranks = mesh_sizes_of(l.recipe).world(), others = mesh_sizes_of(all.back().recipe).world();
    if (base.run.ranks != RanksKind::local && ranks != others)
      throw ConfigError(
          fmt::format("run.ranks = \"{}\": layout {} has {} ranks, and {} has {}; one run times layouts of "
                      "one number of processes",
                      base.run.ranks, l.name, ranks, all.back().name, others));
  }
  return all;
}

void share_cores(std::vector<Layout>& layouts, int cores, int ranks_here) {
  for (Layout& l : layouts) {
    const int sharing = ranks_here > 0 ? ranks_here : mesh_sizes_of(l.recipe).world();
    l.recipe.run.threads = std::max(1, cores / sharing);
  }
}

// The same machine, whose rank's calls are timed whichever way its tensors go.
Machine timed_machine(Machine machine, CommTimes& times, const TimedOptions& options) {
  machine.join = [join = std::move(machine.join), &times, options](const ProcessMesh& host) {
    return timed(join(host), times, options);
  };
  return machine;
}

// The same, whose rank is alone.
Machine dry_machine(Machine machine) {
  machine.join = [](const ProcessMesh& host) { return dry_mesh(host.sizes, host.world->rank()); };
  return machine;
}

// The machine of the layout with the most ranks. No layout begins before all have room.
Machine machine_of_all(const std::vector<Layout>& layouts, const RankProcess& process) {
  const auto ranks = [](const Layout& l) { return mesh_sizes_of(l.recipe).world(); };
  const auto most = std::max_element(layouts.begin(), layouts.end(),
                                     [&](const Layout& a, const Layout& b) { return ranks(a) < ranks(b); });
  Machine machine = machine_for(most->recipe, int(process.here.size()));
  if (!process.here.empty()) return machine;
  for (const Layout& l : layouts) {
    const LayoutPlan plan = plan_layout(l.recipe, *machine.workspace_model);
    require_room(machine, plan);
    require_host_room(l.recipe, plan, machine);
  }
  return machine;
}

// Some steps of every rank, after one that warms up: the time of one.
void time_layout(Layout& layout, How how, const RankProcess& process) {
  const Machine machine = machine_for(layout.recipe, int(process.here.size()));
  double took = 0;
  CommTimes times;
  process.run(mesh_sizes_of(layout.recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    CommTimes mine;
    const int rank = mesh.world->rank();
    const Machine& mine_alone = machine.of_rank(rank);
    const Machine used = how == How::compute_alone
                             ? dry_machine(mine_alone)
                             : timed_machine(mine_alone, mine, {.now_s = now_s, .at_once = how == How::at_once});
    BenchRun run(layout.recipe, used, plan_of_rank(layout.recipe, *machine.workspace_model, *mesh.world), mesh);
    run.warm_up();
    for (auto& [axis, time] : mine) time = {};
    barrier(*mesh.world);
    const double began = now_s();
    for (int64_t i = 0; i < kStepsOfARound; ++i) run.step(run.rank.backend);
    barrier(*mesh.world);
    if (rank != 0) return;
    took = (now_s() - began) / double(kStepsOfARound);
    times = mine;
  });
  double& best = layout.step_s[size_t(how)];
  if (how == How::as_it_is && took < best) layout.times = times;
  best = std::min(best, took);
}

// One step as rank 0 sees it: its ops, and the communication under way beside them.
void trace_layout(const Layout& layout, const std::string& file, const RankProcess& process) {
  const Machine machine = machine_for(layout.recipe, int(process.here.size()));
  process.run(mesh_sizes_of(layout.recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    CommTimes times;
    std::vector<CommEvent> calls;
    const int rank = mesh.world->rank();
    const Machine used = timed_machine(machine.of_rank(rank), times, {.now_s = now_s, .events = &calls});
    BenchRun run(layout.recipe, used, plan_of_rank(layout.recipe, *machine.workspace_model, *mesh.world), mesh);
    const auto now_ns = [] { return int64_t(now_s() * 1e9); };
    Traced first(run.rank.backend, now_ns);
    run.step(first);  // warms up, and counts the ops
    first.wait_all();
    calls.clear();
    Traced traced(run.rank.backend, now_ns, 2 * first.num_recorded());
    LayerWatch layers(run.rank.state.model, run.rank.plan, traced);
    traced.wait_clear();
    barrier(*mesh.world);
    std::vector<TraceSpan> spans;
    const BenchRun::Watched watched{spans, now_ns, &layers};
    run.step(traced, &watched);
    barrier(*mesh.world);
    const std::vector<CommEvent> in_step = calls;
    const LayerTrace of_layers = layers.wait_gather(*mesh.world, layout.recipe, machine.description);
    if (rank != 0) return;
    const auto add = [&](const char* what, const CommEvent& c, double from_s, double to_s) {
      spans.push_back({c.axis + what, c.op, int64_t(from_s * 1e9), int64_t(to_s * 1e9), c.bytes});
    };
    for (const CommEvent& c : in_step) {
      add("", c, c.began_s, c.ended_s);
      if (c.waited_s < c.ended_s) add(", waited for", c, c.waited_s, c.ended_s);
    }
    write_chrome_trace(file, traced.events(), spans, to_json(of_layers).dump());
  });
}

std::string axes_text(const Layout& l) {
  std::string text;
  for (const auto& [axis, t] : l.times)
    if (t.calls > 0)
      text += fmt::format("{}{} {:.1f} ({:.1f} MiB)", text.empty() ? "" : ", ", axis,
                          t.under_way_s / double(kStepsOfARound) * 1e3,
                          double(t.bytes) / double(kStepsOfARound) / (1 << 20));
  return text;
}

std::string hidden_text(const Layout& l) {
  constexpr double kLeast = 0.02;  // of a step: below it the difference of two times says nothing
  if (l.comm_s() < kLeast * l.best_s()) return "-";
  return fmt::format("{:.0f} %", 100 * std::clamp(1 - l.exposed_s() / l.comm_s(), 0.0, 1.0));
}

void print(const std::vector<Layout>& layouts) {
  size_t width = 8;
  for (const Layout& l : layouts) width = std::max(width, l.name.size());
  const bool has_one = !layouts[0].communicates();
  const auto of_one = [&](const Layout& l) { return has_one ? layouts[0].best_s() / l.best_s() : 0; };
  std::cout << fmt::format("{:<{}} {:>6} {:>8} {:>9} {:>10} {:>9} {:>11} {:>11} {:>7}  {}\n", "layout", width, "ranks",
                           "threads", "step ms", "tokens/s", "of one", "comm ms", "exposed ms", "hidden",
                           "under way on rank 0, ms (volume)");
  for (const Layout& l : layouts) {
    const auto& t = l.recipe.train;
    std::cout << fmt::format("{:<{}} {:>6} {:>8} {:>9.1f} {:>10.0f} {:>9}", l.name, width,
                             mesh_sizes_of(l.recipe).world(), l.recipe.run.threads, l.best_s() * 1e3,
                             double(t.global_batch_size * sequences_of_sample(l.recipe) * t.seq_length) / l.best_s(),
                             has_one ? fmt::format("{:.3f}", of_one(l)) : "-");
    if (l.communicates())
      std::cout << fmt::format(" {:>11.1f} {:>11.1f} {:>7}  {}", l.comm_s() * 1e3, l.exposed_s() * 1e3, hidden_text(l),
                               axes_text(l));
    std::cout << "\n";
  }
  std::cout
      << "comm: a step that waits for each collective where it is called, less one that only computes; exposed: the "
         "step as it is, less that\n";
  if (!has_one) return;
  std::cout << "\n";
  for (const Layout& l : layouts) {
    const auto columns = size_t(std::clamp(of_one(l) * kBarColumns, 0.0, 2.0 * kBarColumns));
    std::string bar;
    for (size_t i = 0; i < columns; ++i) bar += "█";
    std::cout << fmt::format("{:<{}} {} {:.2f}\n", l.name, width, bar, of_one(l));
  }
}

int bench_layouts(const BenchOptions& o, std::vector<Layout> layouts, const RankProcess& process) {
  if (process.leads() && !o.trace.empty()) require_replaceable("--trace", o.trace, o.again);
  const Recipe base = layouts[0].recipe;
  const int cores = base.run.threads > 0 ? int(base.run.threads) : usable_cores();
  share_cores(layouts, cores, int(process.here.size()));
  const Machine machine = machine_of_all(layouts, process);
  const SyntheticTokens tokens(layouts[0].recipe, prepare_run(layouts[0].recipe, 0).model.vocab_size);
  for (Layout& l : layouts) l.recipe.data = layouts[0].recipe.data;
  const auto say = [&](const std::string& text) {
    if (process.leads()) std::cerr << text << "\n";
  };
  for (const std::string& note : machine.notes) say("note: " + note);
  say(fmt::format("{}; {} rounds of {} steps, the best counts", machine.description, o.iters, kStepsOfARound));
  for (int64_t round = 0; round < o.iters; ++round) {  // interleaved, so that all see the same machine
    for (Layout& l : layouts) {
      for (const How how : kWays)
        if (how == How::as_it_is || l.communicates()) time_layout(l, how, process);
      say(fmt::format("round {}: {:<32} best {:>8.1f} ms a step", round + 1, l.name, l.best_s() * 1e3));
    }
  }
  if (process.leads()) print(layouts);
  if (!o.trace.empty()) trace_layout(layouts.back(), o.trace, process);
  return kExitOk;
}

}  // namespace

std::vector<std::string> layout_overrides(const std::string& layout) {
  std::vector<std::string> all(1);
  int open = 0;  // brackets
  for (const char c : layout) {
    open += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && open == 0)
      all.emplace_back();
    else
      all.back() += c;
  }
  for (std::string& one : all)
    if (one.find('.') >= one.find('=')) one = "parallel." + one;
  return all;
}

int bench_scaling(const BenchOptions& o) {
  if (o.recipe.empty())
    throw ConfigError("bench scaling needs a recipe, as in `weft bench scaling bench/llama-8x512.toml`");
  std::vector<Layout> layouts = layouts_of(o);
  const Recipe& last = layouts.back().recipe;
  const Launched launched = launched_as(environment);
  const int world = mesh_sizes_of(last).world();
  const auto can_start = [&] { check_launch(last, world, launched); };
  if (const auto status = first_rank_says(launched, kExitUsage, can_start)) return *status;
  if (last.run.ranks != RanksKind::mpi) return bench_layouts(o, std::move(layouts), {});
  check_mpi_is_built_in();
  if (launched.by.empty())
    return run_ranks_by_mpirun({.ranks = world,
                                .command = this_command(),
                                .launched = launched,
                                .start_timeout_s = 60 * last.run.start_timeout_minutes});
  const RankProcess process = join_mpi(world, last.run, "bench");
  return run_as_rank(process, "bench", [&] { return bench_layouts(o, std::move(layouts), process); });
}

}  // namespace weft
