#include "weft/apps/layer_watch.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

constexpr size_t kTimesOfLayer = 3;  // forward, dgrad, wgrad

double median_of(std::vector<double> all) {
  if (all.empty()) return 0;
  const auto middle = all.begin() + std::ptrdiff_t(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

bool is_of_a_layer(Instruction::Op op) {
  return op == Instruction::Op::forward || op == Instruction::Op::dgrad || op == Instruction::Op::wgrad;
}

}  // namespace

LayerWatch::LayerWatch(const Model& model, const RunPlan& plan, const Traced& traced)
    : model_(model), plan_(plan), traced_(traced) {}

void LayerWatch::begins(const Action* action, const Instruction& instruction) {
  watches_ = action != nullptr && is_of_a_layer(instruction.op);
  if (watches_) seen_.push_back({.place = place_of_layer(*action, instruction), .first_op = traced_.num_recorded()});
}

void LayerWatch::ends() {
  if (watches_) seen_.back().last_op = traced_.num_recorded() - 1;
  watches_ = false;
}

// Layers are the embedding, the model's blocks, the head.
size_t LayerWatch::place_of_layer(const Action& action, const Instruction& instruction) const {
  const std::vector<ModelLayer>& layers = model_.layers(action.chunk);
  const auto& parts = plan_.step.model.parts;
  const int64_t first = parts.empty() ? 0 : parts[size_t(action.chunk)].blocks.first;
  const int64_t before = model_.has_embedding(action.chunk) ? 1 : 0;
  int64_t layer = 0;
  switch (layers[size_t(instruction.at)].kind) {
    case LayerKind::embedding:
      break;
    case LayerKind::block:
      layer = 1 + first + instruction.at - before;
      break;
    case LayerKind::head:
      layer = 1 + plan_.model.num_layers;
      break;
  }
  return size_t(layer) * kTimesOfLayer + size_t(instruction.op) - size_t(Instruction::Op::forward);
}

std::vector<double> LayerWatch::medians() const {
  WEFT_CHECK(traced_.num_dropped() == 0, "a trace has dropped {} ops", traced_.num_dropped());
  const std::vector<TraceEvent> events = traced_.events();
  std::vector<std::vector<double>> times(size_t(plan_.model.num_layers + 2) * kTimesOfLayer);
  for (const Seen& s : seen_)
    times[s.place].push_back(
        s.last_op < s.first_op ? 0
                               : double(events[size_t(s.last_op)].end_ns - events[size_t(s.first_op)].start_ns) * 1e-9);
  std::vector<double> all;
  for (std::vector<double>& one : times) all.push_back(median_of(std::move(one)));
  return all;
}

LayerTrace LayerWatch::wait_gather(Communicator& world, const Recipe& recipe, const std::string& machine) const {
  const std::vector<double> mine = medians();
  std::vector<double> all(mine.size() * size_t(world.size()));
  std::copy(mine.begin(), mine.end(), all.begin() + std::ptrdiff_t(mine.size() * size_t(world.rank())));
  world.all_reduce({all.data(), DType::f64, {int64_t(all.size())}}).wait();
  std::vector<double> slowest = mine;
  for (size_t i = 0; i < all.size(); ++i) slowest[i % mine.size()] = std::max(slowest[i % mine.size()], all[i]);
  const auto layer = [&](int64_t l) {
    const double* times = &slowest[size_t(l) * kTimesOfLayer];
    return LayerSeconds{times[0], times[1], times[2]};
  };
  LayerTrace trace{.machine = machine,
                   .settings = settings_of_trace(recipe, plan_.model),
                   .cut = block_layout_of(recipe, plan_.model),
                   .embedding = layer(0),
                   .head = layer(plan_.model.num_layers + 1)};
  for (int64_t l = 0; l < plan_.model.num_layers; ++l) trace.blocks.push_back(layer(l + 1));
  return trace;
}

}  // namespace weft
