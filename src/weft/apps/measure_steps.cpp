#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "weft/apps/bench_run.h"
#include "weft/apps/measure_machine.h"
#include "weft/comm/communicator.h"
#include "weft/ops/backend_around.h"
#include "weft/plan/step_data.h"

namespace weft {
namespace {

constexpr int64_t kMostSteps = 3;         // that are timed; a few, as each has many ops
constexpr int64_t kTokensForGaps = 1024;  // of a step, at most: in a longer one what lies between ops is lost in noise

// Ops alike in a step.
using OpKey = std::tuple<std::string, std::string, double>;  // name, types, bytes
struct OpSum {
  double seconds = 0;
  int64_t count = 0;
};
using OpSums = std::map<OpKey, OpSum>;

// Times what it passes on.
class OpClock final : public BackendAround {
 public:
  OpClock(Backend& inner, const std::function<double()>& now_s) : BackendAround(inner), now_s_(now_s) {}
  void run(const AnyOp& op) override {
    const double began = now_s_();
    inner_.run(op);
    const double took = now_s_() - began;
    const StepOp one = step_op_of(op, "");
    OpSum& sum = sums_[{one.name, dtypes_of(one), one.bytes}];
    sum.seconds += took;
    ++sum.count;
    if (!rated_op(one)) memory_.insert({one.name, dtypes_of(one), one.bytes});
  }
  OpSums take() { return std::exchange(sums_, {}); }
  bool is_rated(const OpKey& key) const { return memory_.count(key) == 0; }

 private:
  const std::function<double()>& now_s_;
  OpSums sums_;
  std::set<OpKey> memory_;  // kinds that cost bytes
};

int64_t heads_of(const TimedModel& m) { return std::max<int64_t>(2, m.width / 64); }
int64_t length_of(const TimedModel& m) { return std::min<int64_t>(m.tokens, 512); }  // of a sequence

nlohmann::json config_json(const TimedModel& m) {
  const int64_t heads = heads_of(m), head = m.width / heads, inner = m.width * 8 / 3 / 16 * 16;
  if (std::string_view(m.family) == "gpt2")
    return {{"model_type", "gpt2"},
            {"n_layer", 1},
            {"n_head", heads},
            {"n_embd", m.width},
            {"n_positions", m.tokens},
            {"vocab_size", m.vocabulary},
            {"activation_function", "gelu_new"}};
  nlohmann::json json{{"model_type", m.family}, {"hidden_size", m.width},       {"intermediate_size", inner},
                      {"num_hidden_layers", 1}, {"num_attention_heads", heads}, {"num_key_value_heads", heads / 2},
                      {"head_dim", head},       {"vocab_size", m.vocabulary},   {"max_position_embeddings", m.tokens},
                      {"rms_norm_eps", 1e-5},   {"hidden_act", "silu"},         {"tie_word_embeddings", false}};
  if (std::string_view(m.family) == "mixtral")
    json.update({{"num_local_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"output_router_logits", true},
                 {"router_aux_loss_coef", 0.01}});
  return json;
}

}  // namespace

std::vector<TimedModel> timed_models(int64_t most_tokens, int ranks) {
  const std::pair<int64_t, int64_t> sizes[] = {{128, 128}, {256, 512}, {512, 2048}};  // width, tokens
  std::vector<TimedModel> models;
  for (const char* family : {"llama", "gpt2", "mixtral"})
    for (const auto& [width, tokens] : sizes) {
      if (tokens > most_tokens && tokens > sizes[0].second) continue;
      models.push_back({family, width, std::min(tokens, most_tokens), 8 * width});
    }
  const std::vector<TimedModel> whole(models.begin(), models.begin() + std::ptrdiff_t(models.size() / 3));
  for (TimedModel model : whole) {  // of the first family
    if (ranks == 1) break;
    model.dp = ranks;
    models.push_back(model);
    std::swap(model.dp, model.cp);
    if (length_of(model) % (2 * ranks) == 0) models.push_back(model);
    std::swap(model.cp, model.tp);
    if (heads_of(model) / 2 % ranks == 0) models.push_back(model);  // its heads of keys
  }
  return models;
}

Recipe recipe_of(const TimedModel& model, PrecisionChoice precision) {
  Recipe recipe;
  recipe.model.path = model.family;
  recipe.model.init = InitChoice::random;
  recipe.data.train = {"synthetic"};
  recipe.train.seq_length = length_of(model);
  recipe.train.micro_batch_size = model.tokens / recipe.train.seq_length;
  const int64_t micro_batches = model.tokens <= kTokensForGaps / 2 ? 2 : 1;
  recipe.train.global_batch_size = micro_batches * recipe.train.micro_batch_size * model.dp;
  recipe.parallel.tp = model.tp;
  recipe.parallel.cp = model.cp;
  recipe.parallel.dp = model.dp;
  recipe.parallel.zero_stage = model.dp > 1 ? 1 : 0;
  recipe.train.train_iters = 100;
  recipe.train.precision = precision;
  return recipe;
}

HfConfig config_of(const TimedModel& model) {
  HfConfig config = parse_hf_config(config_json(model), model.family);
  config.has_folder = false;
  return config;
}

StepTimes measure_steps(const MeasuringRank& rank, const Recipe& recipe, const HfConfig& config) {
  const bool alone = mesh_sizes_of(recipe).world() == 1;
  const bool has_gaps = alone && recipe.train.global_batch_size * recipe.train.seq_length <= kTokensForGaps;
  const int number = alone ? 0 : rank.mesh.world->rank();
  BenchRun run(recipe, rank.machine, plan_run(recipe, config, *rank.machine.workspace_model, number),
               alone ? single_mesh() : rank.mesh);
  OpClock clock(run.rank.backend, rank.now_s);
  run.step(clock);  // warms up
  clock.take();
  std::map<OpKey, std::vector<double>> seconds;  // the mean of each step
  std::vector<double> whole, in_ops;
  int64_t count = 0;
  for (int64_t i = 0; i < std::min(rank.iters, kMostSteps); ++i) {
    barrier(*rank.mesh.world);
    const double began = rank.now_s();
    if (has_gaps) run.step(run.rank.backend);
    whole.push_back(rank.now_s() - began);
    barrier(*rank.mesh.world);
    run.step(clock);
    double all = 0;
    count = 0;
    for (const auto& [key, sum] : clock.take()) {
      all += sum.seconds;
      count += sum.count;
      if (!clock.is_rated(key)) seconds[key].push_back(sum.seconds / double(sum.count));
    }
    in_ops.push_back(all);
  }
  StepTimes times;
  for (auto& [key, each] : seconds)
    times.ops.push_back({.op = std::get<0>(key),
                         .dtypes = std::get<1>(key),
                         .bytes = std::get<2>(key),
                         .seconds = typical_s(std::move(each), rank.crowded)});
  const double gaps = typical_s(std::move(whole), rank.crowded) - typical_s(std::move(in_ops), rank.crowded);
  if (has_gaps) times.gap_s = std::max(0.0, gaps) / double(count);
  return times;
}

}  // namespace weft
