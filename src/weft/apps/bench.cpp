// weft bench: what a step costs beside what the machine allows.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/bench_decode.h"
#include "weft/apps/bench_machine.h"
#include "weft/apps/bench_run.h"
#include "weft/apps/bench_scaling.h"
#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/apps/op_table.h"
#include "weft/apps/product_kernels.h"
#include "weft/apps/step_floor.h"
#include "weft/base/error.h"
#include "weft/comm/communicator.h"
#include "weft/ops/traced.h"
#include "weft/records/clock.h"
#include "weft/train/matmul_rate.h"
#include "weft/train/rank_plan.h"
#include "weft/train/room.h"
#include "weft/train/train_on_ranks.h"

namespace weft {
namespace {

int64_t clock_ns() { return int64_t(now_s() * 1e9); }

template <class F>
double seconds_of(F f) {
  const double began = now_s();
  f();
  return now_s() - began;
}

struct Floor {
  double products_s = 0, optimizer_s = 0;
  double total() const { return products_s + optimizer_s; }
};

double flops_of(const std::vector<Matmul>& products) {
  double flops = 0;
  for (const Matmul& op : products) flops += flops_of(op);
  return flops;
}

// What a step of one rank cannot do without.
struct Needed {
  std::vector<Matmul> products;
  double optimizer_bytes = 0;  // read and written
};

// The library's products of this step, by the faster of its ways, one after the other on the memory they have in it
// (where it is the library that runs them: at the rate of large ones), and the optimizer's traffic at `bandwidth`.
Floor measure_floor(const Machine& machine, const Needed& needed, double bandwidth) {
  const std::vector<Matmul>& products = needed.products;
  Floor floor{.products_s = 1e30};
  const auto ways = machine.make_library_matmuls();
  if (ways.empty() && !products.empty())
    floor.products_s = flops_of(products) / machine.measure_matmul_rate(products[0].a.dtype);
  for (const auto& run_product : ways) {
    floor.products_s = std::min(floor.products_s, seconds_of([&] {
                                  for (const Matmul& op : products) run_product(op);
                                }));
  }
  floor.optimizer_s = needed.optimizer_bytes / bandwidth;
  return floor;
}

void print_parts(const std::vector<TraceEvent>& events, double step_s) {
  std::map<std::string, double> parts;
  double all = 0;
  for (const TraceEvent& e : events) {
    parts[std::string(e.op)] += double(e.end_ns - e.start_ns) * 1e-9;
    all += double(e.end_ns - e.start_ns) * 1e-9;
  }
  parts["data and the rest"] = std::max(0.0, step_s - all);
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, s] : parts) order.emplace_back(-s, name);
  std::sort(order.begin(), order.end());
  std::cout << fmt::format("\n{:<22} {:>10} {:>8}\n", "part of a step", "ms", "%");
  for (const auto& [s, name] : order)
    std::cout << fmt::format("{:<22} {:>10.2f} {:>7.1f}%\n", name, -s * 1e3, -s / step_s * 100);
}

bool is_of_optimizer(std::string_view op) {
  constexpr std::string_view kOps[] = {AdamW::kName,   AdamW8Max::kName, AdamW8::kName,
                                       MaxRows::kName, Sgd::kName,       Axpby::kName};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}
bool is_product(std::string_view op) {
  return op == Matmul::kName || op == GroupedMatmul::kName || op == GroupedWeightGrad::kName;
}

Needed needed_of(const Traced& step) {
  Needed needed{step.products()};
  for (const TraceEvent& e : step.events())
    if (is_of_optimizer(e.op)) needed.optimizer_bytes += double(e.cost.bytes_read + e.cost.bytes_written);
  return needed;
}

struct TracedStep {
  std::vector<TraceEvent> events;
  std::vector<TraceSpan> instructions;
  int64_t began_ns = 0, ended_ns = 0;
  double seconds_of(bool (*is_wanted)(std::string_view op)) const {
    double s = 0;
    for (const TraceEvent& e : events)
      if (is_wanted(e.op)) s += double(e.end_ns - e.start_ns) * 1e-9;
    return s;
  }
};

TracedStep trace_step(BenchRun& run, Traced& traced, LayerWatch& layers) {
  traced.wait_clear();
  TracedStep step{.events = {}, .instructions = {}, .began_ns = clock_ns()};
  const BenchRun::Watched watched{step.instructions, clock_ns, &layers};
  run.step(traced, &watched);
  step.ended_ns = clock_ns();
  WEFT_CHECK(traced.num_dropped() == 0, "the traced step has more than twice the ops of the first, by {}",
             traced.num_dropped());
  step.events = traced.events();
  return step;
}

void print_ops(const TracedStep& step, double best_s, const MachineRates& rates) {
  std::cout << fmt::format("\nthe ops of one more step, which was traced (without, {:.2f} ms)\n", best_s * 1e3)
            << to_table(parts_of_step(step.events, step.began_ns, step.ended_ns), rates);
}

Recipe recipe_of_step(const BenchOptions& o) {
  if (o.recipe.empty()) throw ConfigError("bench step needs a recipe, as in `weft bench step bench/gpt2-124m.toml`");
  if (!o.layouts.empty()) throw ConfigError("--layouts is of `weft bench scaling`; bench step times the recipe's own");
  Recipe recipe = first_steps_of(read_recipe(o.recipe, o.overrides));
  check_supported(recipe);
  if (recipe.run.ranks != RanksKind::local && mesh_sizes_of(recipe).world() > 1)
    throw ConfigError(fmt::format(
        "run.ranks = \"{}\" cannot run: bench step times ranks of one process; the nearest that works: run.ranks = "
        "\"local\", or `weft bench scaling`, which times layouts over processes",
        recipe.run.ranks));
  return recipe;
}

// What a step took beside its floor, both the best of some.
struct Times {
  double step_s = 1e30;
  Floor floor{1e30, 1e30};
  double rate = 0, least_rate = 1e30;  // flop/s of large products
  double bandwidth = 0;                // bytes/s
};

// Interleaved, so that both see the same machine; and all ranks at once, each with its own.
Times time_steps(BenchRun& run, const Machine& machine, const Needed& needed, int64_t iters) {
  Times best;
  Communicator& world = *run.rank.mesh.world;
  for (int64_t i = 0; i < iters; ++i) {
    barrier(world);
    best.step_s = std::min(best.step_s, seconds_of([&] {
                             run.step(run.rank.backend);
                             barrier(world);
                           }));
    const double bandwidth = machine.measure_bandwidth();
    best.bandwidth = std::max(best.bandwidth, bandwidth);
    const Floor now = measure_floor(machine, needed, bandwidth);
    best.floor = {std::min(best.floor.products_s, now.products_s), std::min(best.floor.optimizer_s, now.optimizer_s)};
    const double rate = machine.measure_matmul_rate(run.rank.plan.step.precision.compute);
    best.rate = std::max(best.rate, rate);
    best.least_rate = std::min(best.least_rate, rate);
  }
  run.rank.executor.check_used();
  return best;
}

void print_beside_floor(const Times& best, const TracedStep& traced, const Needed& needed, const RunPlan& plan) {
  const double step_s = best.step_s;
  const Floor& floor = best.floor;
  const auto tokens = double(plan.step.order.global_micro_batches() * plan.step.micro_batch_tokens());
  const double products_s = traced.seconds_of(is_product), optimizer_s = traced.seconds_of(is_of_optimizer);
  std::cout << fmt::format("{:<22} {:>10} {:>10} {:>8}\n", "", "floor ms", "step ms", "ratio")
            << fmt::format("{:<22} {:>10.2f} {:>10.2f} {:>8.3f}   library {:.1f} GFLOP/s\n", "matrix products",
                           floor.products_s * 1e3, products_s * 1e3, products_s / floor.products_s,
                           flops_of(needed.products) / floor.products_s / 1e9)
            << fmt::format("{:<22} {:>10.2f} {:>10.2f} {:>8.3f}   {:.1f} GB/s\n", "optimizer", floor.optimizer_s * 1e3,
                           optimizer_s * 1e3, optimizer_s / floor.optimizer_s,
                           needed.optimizer_bytes / floor.optimizer_s / 1e9)
            << fmt::format("{:<22} {:>10} {:>10.2f}\n", "everything else", "",
                           (step_s - products_s - optimizer_s) * 1e3)
            << fmt::format("{:<22} {:>10.2f} {:>10.2f} {:>8.3f}   {:.0f} tokens/s, {:.1f} GFLOP/s, {}\n", "whole step",
                           floor.total() * 1e3, step_s * 1e3, step_s / floor.total(), tokens / step_s,
                           plan.memory.arithmetic.model_flops / step_s / 1e9,
                           fmt::format("{:.0f} MiB planned", double(plan.memory.total_bytes()) / (1 << 20)));
}

// Where there is no rate (the reference's is none), there is no such floor.
void print_at_rates(const TracedStep& step, double step_s, const MachineRates& rates) {
  if (!(rates.flops > 0) || !(rates.bytes > 0)) return;
  std::cout << "\n"
            << to_table(floor_of(parts_of_step(step.events, step.began_ns, step.ended_ns), rates), step_s, rates);
}

void print_mfu(const Times& best, const RunPlan& plan) {
  constexpr double kSteady = 1.2;  // the best of some measurements over the least, on a machine without other work
  if (!(best.rate > 0)) return;
  const double mfu = plan.memory.arithmetic.model_flops / best.step_s / best.rate;
  std::cout << fmt::format("MFU {:.3f} of the {} that large {} products reach here", mfu, flops_text(best.rate),
                           name_of(plan.step.precision.compute));
  if (best.rate > kSteady * best.least_rate)
    std::cout << fmt::format("; unsure: they reached from {} to that, so other work runs beside",
                             flops_text(best.least_rate));
  if (mfu > 1) std::cout << "; above 1 it is unsure: " << kWhyAboveOne;
  std::cout << "\n";
}

void print_step(const Recipe& recipe, const Machine& machine, const RunPlan& plan) {
  const int world = mesh_sizes_of(recipe).world();
  std::cout << fmt::format(
      "{}: {} parameters, {} sequences of {} tokens, {}, {}{}\n", recipe.model.path, plan.memory.arithmetic.num_params,
      recipe.train.global_batch_size * sequences_of_sample(recipe), recipe.train.seq_length, recipe.train.precision,
      machine.description, world > 1 ? fmt::format(", {} ranks, of which this is rank 0", world) : "");
}

// Which kernels do the products, by their share of the arithmetic, and which all else.
void print_kernels(const Recipe& recipe, int threads, const Needed& needed) {
  if (recipe.run.backend != BackendKind::cpu) return;
  for (const ProductKernels& kernels : kernels_of(needed.products, threads, numerics_of(recipe)))
    std::cout << to_string(kernels) << "\n";
  for (const std::string& line : lines_of_other_kernels(precision_of(recipe).compute)) std::cout << line << "\n";
}

// Every rank takes part; rank 0 speaks of its own.
void bench_rank(const BenchOptions& o, const Recipe& recipe, const Machine& machine, const ProcessMesh& mesh) {
  BenchRun run(recipe, machine, plan_of_rank(recipe, *machine.workspace_model, *mesh.world), mesh);
  Traced first(run.rank.backend, clock_ns);
  run.step(first);  // says which products there are, and warms up
  first.wait_all();
  const Needed needed = needed_of(first);
  if (machine.late) run.warm_up();
  const Times best = time_steps(run, machine, needed, o.iters);
  Traced traced(run.rank.backend, clock_ns, 2 * first.num_recorded());
  barrier(*mesh.world);
  LayerWatch layers(run.rank.state.model, run.rank.plan, traced);
  const TracedStep step = trace_step(run, traced, layers);
  std::string other_data;
  if (!o.trace.empty()) other_data = to_json(layers.wait_gather(*mesh.world, recipe, machine.description)).dump();
  if (mesh.world->rank() != 0) return;
  print_step(recipe, machine, run.rank.plan);
  const MachineRates rates{.flops = best.rate, .bytes = best.bandwidth};
  print_kernels(recipe, machine.threads, needed);
  print_beside_floor(best, step, needed, run.rank.plan);
  print_at_rates(step, best.step_s, rates);
  print_mfu(best, run.rank.plan);
  if (o.ops)
    print_ops(step, best.step_s, rates);
  else
    print_parts(step.events, best.step_s);
  if (!o.trace.empty()) write_chrome_trace(o.trace, step.events, step.instructions, other_data);
}

int bench_step(const BenchOptions& o) {
  Recipe recipe = recipe_of_step(o);
  if (!o.trace.empty()) require_replaceable("--trace", o.trace, o.again);
  const Machine machine = machine_for(recipe);
  const LayoutPlan planned = plan_layout(recipe, *machine.workspace_model);
  require_room(machine, planned);
  require_host_room(recipe, planned, machine);
  const SyntheticTokens tokens(recipe, planned.run.model.vocab_size);
  run_on_threads(mesh_sizes_of(recipe), *machine.mover,
                 [&](const ProcessMesh& mesh) { bench_rank(o, recipe, machine.of_rank(mesh.world->rank()), mesh); });
  return kExitOk;
}

}  // namespace

int run_bench(const BenchOptions& options) {
  if (options.what != "decode" && (options.batch || options.prompt))
    throw ConfigError("--batch and --prompt are of `weft bench decode`");
  if (options.what == "machine") return bench_machine(options);
  if (options.what == "decode") return bench_decode(options);
  if (!options.ranks.empty() || !options.out.empty())
    throw ConfigError("--ranks and --out are of `weft bench machine`");
  if (options.again && options.trace.empty())
    throw ConfigError("--again is of `weft bench machine`, and of --trace FILE, which it replaces");
  if (options.what == "forecast") return bench_forecast(options);
  if (!options.cluster.empty() || options.json)
    throw ConfigError("--cluster is of `weft bench forecast`, and --json of it and of `weft bench decode`");
  if (options.what == "kernels") return bench_kernels(options);
  if (options.backend || options.precision || options.threads || options.tokens)
    throw ConfigError(
        "--backend, --precision, --threads and --tokens are of `weft bench kernels`; a recipe says run.backend, "
        "train.precision and run.threads");
  if (options.what == "scaling" && options.ops) throw ConfigError("--ops is of `weft bench step`");
  return options.what == "scaling" ? bench_scaling(options) : bench_step(options);
}

}  // namespace weft
