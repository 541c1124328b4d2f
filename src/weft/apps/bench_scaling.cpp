#include "weft/apps/bench_scaling.h"

#include <algorithm>
#include <iostream>
#include <mutex>

#include "weft/apps/backends.h"
#include "weft/apps/bench_run.h"
#include "weft/base/error.h"
#include "weft/comm/local_group.h"
#include "weft/comm/timed.h"
#include "weft/train/clock.h"
#include "weft/train/train_on_ranks.h"

namespace weft {
namespace {

constexpr int kBarColumns = 40;
constexpr int64_t kStepsOfARound = 2;

// One layout, and what was measured of it.
struct Layout {
  std::string name;
  Recipe recipe;
  std::vector<double> step_s = {};  // of the rounds
  CommTimes times = {};             // of the slowest round's rank 0, per step
  double best_s() const { return *std::min_element(step_s.begin(), step_s.end()); }
};

// "dp=2,zero_stage=3": settings of [parallel]; "train.micro_batch_size=1" of any section.
std::vector<std::string> overrides_of(const std::string& layout) {
  std::vector<std::string> all;
  for (size_t at = 0; at < layout.size();) {
    const size_t end = std::min(layout.find(',', at), layout.size());
    const std::string one = layout.substr(at, end - at);
    all.push_back(one.find('.') < one.find('=') ? one : "parallel." + one);
    at = end + 1;
  }
  return all;
}

std::vector<Layout> layouts_of(const BenchOptions& o) {
  const Recipe base = parse_recipe_file(o.recipe, o.overrides);
  const int cores = base.run.threads > 0 ? int(base.run.threads) : machine_for(base).threads;
  std::vector<std::string> names = o.layouts;
  if (names.empty()) {
    const std::string n = std::to_string(std::max(2, cores));
    names = {"dp=" + n, "dp=" + n + ",zero_stage=1", "dp=" + n + ",zero_stage=3", "tp=" + n,
             "pp=" + n + ",pipeline_schedule=zb_h1"};
  }
  std::vector<Layout> all{{"one rank", base}};
  all[0].recipe.parallel = {};
  all[0].recipe.parallel.recompute = base.parallel.recompute;
  for (const std::string& name : names) {
    std::vector<std::string> overrides = o.overrides;
    for (const std::string& one : overrides_of(name)) overrides.push_back(one);
    all.push_back({name, parse_recipe_file(o.recipe, overrides)});
  }
  for (Layout& l : all) {
    check_supported(l.recipe);
    if (l.recipe.run.ranks != "local")
      throw ConfigError(fmt::format("run.ranks = \"{}\": bench scaling times ranks as threads; set run.ranks=local",
                                    l.recipe.run.ranks));
    l.recipe.run.threads = std::max<int64_t>(1, cores / mesh_sizes_of(l.recipe).world());
  }
  return all;
}

// Some steps of every rank, after one that warms up: the time of one.
void time_layout(Layout& layout) {
  const Machine machine = machine_for(layout.recipe);
  double took = 0;
  CommTimes times;
  run_on_threads(mesh_sizes_of(layout.recipe), [&](const ProcessMesh& mesh) {
    CommTimes mine;
    BenchRun run(layout.recipe, machine, plan_run(layout.recipe, *machine.workspace_model, mesh.world->rank()),
                 timed(mesh, mine, now_s));
    run.step(run.rank.backend);
    for (auto& [axis, time] : mine) time = {};
    barrier(*mesh.world);
    const double began = now_s();
    for (int64_t i = 0; i < kStepsOfARound; ++i) run.step(run.rank.backend);
    barrier(*mesh.world);
    if (mesh.world->rank() != 0) return;
    took = (now_s() - began) / double(kStepsOfARound);
    times = mine;
  });
  if (layout.step_s.empty() || took < layout.best_s()) layout.times = times;
  layout.step_s.push_back(took);
}

double blocked_s(const Layout& l) {
  double all = 0;
  for (const auto& [axis, t] : l.times) all += t.blocked_s;
  return all / double(kStepsOfARound);
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

void print(const std::vector<Layout>& layouts) {
  size_t width = 8;
  for (const Layout& l : layouts) width = std::max(width, l.name.size());
  const double one = layouts[0].best_s();
  std::cout << fmt::format("{:<{}} {:>6} {:>8} {:>9} {:>10} {:>11} {:>9}  {}\n", "layout", width, "ranks", "threads",
                           "step ms", "tokens/s", "exposed ms", "of one", "communication under way, ms and volume");
  for (const Layout& l : layouts) {
    const auto& t = l.recipe.train;
    std::cout << fmt::format("{:<{}} {:>6} {:>8} {:>9.1f} {:>10.0f} {:>11.1f} {:>9.3f}  {}\n", l.name, width,
                             mesh_sizes_of(l.recipe).world(), l.recipe.run.threads, l.best_s() * 1e3,
                             double(t.global_batch_size * t.seq_length) / l.best_s(), blocked_s(l) * 1e3,
                             one / l.best_s(), axes_text(l));
  }
  std::cout << "\n";
  for (const Layout& l : layouts) {
    const auto columns = size_t(std::clamp(one / l.best_s() * kBarColumns, 0.0, 2.0 * kBarColumns));
    std::string bar;
    for (size_t i = 0; i < columns; ++i) bar += "█";
    std::cout << fmt::format("{:<{}} {} {:.2f}\n", l.name, width, bar, one / l.best_s());
  }
}

}  // namespace

int bench_scaling(const BenchOptions& o) {
  if (o.recipe.empty())
    throw ConfigError("bench scaling needs a recipe, as in `weft bench scaling bench/llama-8x512.toml`");
  std::vector<Layout> layouts = layouts_of(o);
  const Machine machine = machine_for(layouts[0].recipe);
  const SyntheticTokens tokens(layouts[0].recipe,
                               plan_run(layouts[0].recipe, *machine.workspace_model).model.vocab_size);
  for (Layout& l : layouts) l.recipe.data = layouts[0].recipe.data;
  std::cerr << fmt::format("{}; {} rounds of {} steps, the best counts\n", machine.description, o.iters,
                           kStepsOfARound);
  for (int64_t round = 0; round < o.iters; ++round) {  // interleaved, so that all see the same machine
    for (Layout& l : layouts) {
      time_layout(l);
      std::cerr << fmt::format("round {}: {:<32} {:>8.1f} ms a step\n", round + 1, l.name, l.step_s.back() * 1e3);
    }
  }
  print(layouts);
  return kExitOk;
}

}  // namespace weft
