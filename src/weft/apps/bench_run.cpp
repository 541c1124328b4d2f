#include "weft/apps/bench_run.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/models/init.h"
#include "weft/train/objectives.h"

namespace weft {

SyntheticTokens::SyntheticTokens(Recipe& recipe, int64_t vocab_size) {
  if (recipe.data.train != std::vector<std::string>{"synthetic"}) return;
  const Recipe::Data defaults;
  if (recipe.data.packing != defaults.packing || recipe.data.attn_mask_type != defaults.attn_mask_type)
    throw ConfigError(
        "data.packing and data.attn_mask_type need documents, which synthetic tokens are not; leave them out, or name "
        "files in data.train");
  path_ = std::filesystem::temp_directory_path() / fmt::format("weft-bench-{}.bin", getpid());
  const int64_t n = recipe.train.seq_length * recipe.train.global_batch_size * 4 + 1;
  std::ofstream out(path_, std::ios::binary);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t id = random_bits(rng_key(1, "tokens"), uint64_t(i)) % uint32_t(vocab_size);
    out.write(reinterpret_cast<const char*>(&id), sizeof id);
  }
  if (!out) throw FileError(fmt::format("{}: cannot be written", path_.string()));
  recipe.data.train = {path_.string()};
  recipe.data.dtype = IdDtype::uint32;
}

SyntheticTokens::~SyntheticTokens() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

BenchRun::BenchRun(const Recipe& recipe, const Machine& machine, RunPlan plan, const ProcessMesh& mesh)
    : is_late(machine.late),
      rank(std::move(plan), machine, mesh),
      data(open_run_data(recipe, rank.plan.model)),
      batches(*data.train, {.seq_length = recipe.train.seq_length,
                            .micro_batch_size = rank.plan.step.micro_batch_size,
                            .order = rank.plan.step.order,
                            .documents_alike = recipe.train.loss_average == LossAverage::document}),
      objective(objective_of(recipe, *data.train)) {
  const auto begin = [&](ParamStore& params) {
    init_weights(params, 1, machine.threads);
    params.masters_changed(rank.backend);
    init_magnitudes(params, rank.backend);
    params.masters_changed(rank.backend);
  };
  begin(rank.state.params);
  for (FrozenModel& other : rank.state.frozen) begin(other.params);
  if (rank.state.teacher) begin(rank.state.teacher->params);
}

void BenchRun::warm_up() {
  for (int i = 0; i < (is_late ? 3 : 1); ++i) step(rank.backend);
}

void BenchRun::step(Backend& on, const Watched* watched) {
  const OpenSource::Counted counted = batches.counted(done);
  const auto share = [](int64_t n) { return 1 / double(std::max<int64_t>(1, n)); };
  const LoadMicroBatch load = [&](MicroBatch& b) { batches.load(done, b); };
  const LoadMicroBatch others = [&](MicroBatch& b) { batches.load_others(done, b); };
  const LoadMicroBatch global = [&](MicroBatch& b) { batches.load_global(done, b); };
  Executor::StepInput input{.load = load,
                            .loss_scale = 1 / objective->divisor(batches.units(counted)),
                            .dropout_key = rng_key(1, uint64_t(done)),
                            .mtp_scale = share(counted.further),
                            .objective = *objective,
                            .batch = done,
                            .others = &others,
                            .global = &global};
  if (watched != nullptr) {
    input.begins = [&](const Action* action, const Instruction& i) {
      const Model& model = rank.state.model;
      watched->instructions.push_back(
          {.track = "instructions",
           .name = fmt::format("{} {} {}", action != nullptr ? to_string(*action) : "end", name_of(i.op),
                               object_of(i, model.layers(action != nullptr ? action->chunk : 0), rank.state.params)),
           .start_ns = watched->now_ns()});
      if (watched->layers != nullptr) watched->layers->begins(action, i);
    };
    input.ends = [&] {
      if (watched->layers != nullptr) watched->layers->ends();
      watched->instructions.back().end_ns = watched->now_ns();
    };
  }
  rank.executor.run_on(on, input);
  const double norm = rank.state.norm->wait_measure(on);
  Arena& scratch = rank.executor.scratch();
  const auto update = [&] {
    update_all(on, *rank.plan.optimizer, rank.state.params, scratch,
               {.lr = 1e-4, .grad_scale = clip_scale(norm, 1), .step = ++done});
  };
  if (const auto& norms = rank.state.weight_norms)
    norms->wait_update(on, scratch, false, update);  // most steps measure nothing, and have the memory for it
  else
    update();
}

}  // namespace weft
