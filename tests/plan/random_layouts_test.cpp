// Any layout of up to 16,384 ranks either plans or is refused in words that help.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>

#include "support.h"
#include "weft/apps/backends.h"
#include "weft/plan/layout_plan.h"

namespace weft {
namespace {

constexpr int kLayouts = 150;
constexpr int64_t kMostRanks = 16384;
constexpr int64_t kMostOfSums = 1024;  // bytes of workspace

class RandomLayoutsSlow : public ::testing::Test {
 protected:
  RandomLayoutsSlow() {
    const char* given = std::getenv("WEFT_TEST_SEED");
    const unsigned seed = given ? unsigned(std::atoi(given)) : std::random_device()();
    std::cout << "WEFT_TEST_SEED=" << seed << " repeats this" << std::endl;
    gen_.seed(seed);
  }
  int64_t number(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(gen_); }
  int64_t power(int most) { return int64_t{1} << number(0, most); }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[number(0, int64_t(all.size()) - 1)];
  }

  // A model of any legal sizes, small or large.
  std::string config() {
    const int64_t kv = one_of<int64_t>({1, 2, 3, 4, 8, 16}), heads = kv * number(1, 8), head = 2 * number(1, 64);
    const int64_t layers = number(1, 40), ffn = number(1, 30000), vocab = number(2, 150000);
    const std::string family = one_of<std::string>({"gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral"});
    if (family == "gpt2")
      return fmt::format(R"({{"model_type": "gpt2", "vocab_size": {}, "n_positions": 4096, "n_embd": {},
        "n_layer": {}, "n_head": {}, "n_inner": {}}})",
                         vocab, heads * head, layers, heads, ffn);
    return fmt::format(R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
      "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {},
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": {}{}}})",
                       family, vocab, family == "qwen2" ? heads * head : number(1, 9000), ffn, layers, heads, kv, head,
                       one_of({"true", "false"}),
                       family == "mistral"   ? R"(, "sliding_window": 500)"
                       : family == "mixtral" ? fmt::format(R"(, "num_local_experts": {}, "num_experts_per_tok": {})",
                                                           one_of<int64_t>({8, 12, 60}), one_of<int64_t>({1, 2, 6}))
                                             : "");
  }

  // Half of all sizes are powers of two, as in practice.
  int64_t size(int64_t most) { return std::min(number(0, 1) ? power(14) : number(1, most), most); }

  std::vector<std::string> layout() {
    const int64_t tp = size(16), pp = size(std::min<int64_t>(24, kMostRanks / tp));
    const int64_t dp = size(kMostRanks / (tp * pp)), zero = number(0, 3), micro = one_of<int64_t>({1, 2, 3, 8});
    // A budget takes many plans: there are few of them.
    const auto recompute =
        number(0, 9) == 0 ? std::string("budget") : one_of<std::string>({"none", "selective", "full"});
    const bool hybrid = number(0, 2) == 0;
    const std::pair<const char*, std::string> all[] = {
        {"train.seq_length", fmt::format("{}", one_of<int64_t>({1, 7, 128, 1000, 4096}))},
        {"train.micro_batch_size", fmt::format("{}", micro)},
        {"train.global_batch_size", fmt::format("{}", dp * micro * number(1, 40))},
        {"train.precision", one_of<std::string>({"f32", "bf16", "fp16"})},
        {"train.grad_reduce_dtype", one_of<std::string>({"f32", "f32", "bf16"})},
        {"train.numerics", one_of<std::string>({"fast", "invariant"})},
        {"optimizer.name", one_of<std::string>({"adamw", "adamw8bit", "sgd", "muon"})},
        {"parallel.dp", fmt::format("{}", dp)},
        {"parallel.tp", fmt::format("{}", tp)},
        {"parallel.pp", fmt::format("{}", pp)},
        {"parallel.zero_stage", fmt::format("{}", zero)},
        {"parallel.zero_shard_size", fmt::format("{}", hybrid && dp % 2 == 0 ? dp / 2 : 0)},
        {"parallel.sequence_parallel", one_of<std::string>({"true", "false"})},
        {"parallel.order", one_of<std::string>({"tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp", "dp-tp-cp-ep-pp"})},
        {"parallel.pipeline_schedule", one_of<std::string>({"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zbv"})},
        {"parallel.recompute", recompute},
        {"run.backend", number(0, 3) == 0 ? "ref" : "cpu"},
        {"run.threads", "2"}};
    std::vector<std::string> overrides{"model.path=" + dir_.path().string(), "model.init=random", "data.train=none"};
    for (const auto& [key, value] : all) overrides.push_back(std::string(key) + "=" + value);
    if (recompute == "budget")
      overrides.push_back("parallel.memory_budget=" + one_of<std::string>({"1MiB", "500MiB", "8GB", "60GiB"}));
    if (number(0, 1)) overrides.push_back("data.valid_fraction=0.1");
    if (number(0, 2) == 0) overrides.push_back(fmt::format("parallel.ep={}", number(1, 12)));
    if (number(0, 2) == 0) overrides.push_back(fmt::format("parallel.virtual_pipeline_parallel_size={}", number(1, 4)));
    if (number(0, 2) == 0) overrides.push_back("parallel.pipeline_layout=" + pipeline_layout(pp));
    return overrides;
  }

  // For pp stages or twice as many: it fits some models.
  std::string pipeline_layout(int64_t pp) {
    std::vector<int64_t> blocks(size_t(pp * number(1, 2)));
    for (int64_t& b : blocks) b = number(0, 4);
    return fmt::format("[{}]", fmt::join(blocks, ","));
  }

  // A rank's own plan is that of its class, in everything but what its share of a tree sends.
  void expect_in_its_class(const Recipe& recipe, const LayoutPlan& plan, const WorkspaceModel& workspace) {
    const MeshSizes& mesh = plan.run.step.mesh;
    const int rank = int(number(0, mesh.world() - 1));
    const MeshPlace at = place_of(mesh, rank);
    const MemoryPlan mine =
        measure_memory(plan.run.model, step_of(recipe, plan.run, rank), *plan.run.optimizer, workspace);
    int found = 0, equal = 0;
    std::string others;
    for (const RankClass& c : plan.classes) {
      const auto has = [](const std::vector<int>& all, int one) { return std::count(all.begin(), all.end(), one) > 0; };
      if (!has(c.stages, at.pp) || !has(c.tp_ranks, at.tp)) continue;
      ++found;
      MemoryPlan planned = c.plan;
      // A stage of an embedding alone multiplies nothing: its kernels sum, by the size of the rank's own shard.
      if (std::max(mine.workspace, planned.workspace) <= kMostOfSums) planned.workspace = mine.workspace;
      others += fmt::format("\n{} {} {} {}", planned.persistent.states, planned.scratch, planned.workspace,
                            planned.total_bytes());
      equal += planned.total_bytes() == mine.total_bytes() && planned.persistent == mine.persistent;
    }
    EXPECT_EQ(equal, 1) << "rank " << rank << " of " << found << " classes" << others << "\n"
                        << mine.persistent.states << " " << mine.scratch << " " << mine.workspace << " "
                        << mine.total_bytes() << "\n"
                        << to_string(mine);
    EXPECT_TRUE(found == 1 || recipe.optimizer.name == OptimizerKind::muon ||
                recipe.optimizer.name == OptimizerKind::adamw8bit)
        << "rank " << rank;
  }

  // Empty where it plans.
  std::string refusal_of(const std::vector<std::string>& overrides, int64_t* ranks) {
    try {
      const Recipe recipe = parse_recipe("", "random", overrides);
      check_supported(recipe);
      const Machine machine = machine_for(recipe);
      const LayoutPlan plan = plan_layout(recipe, *machine.workspace_model);
      int64_t in_classes = 0;
      for (const RankClass& c : plan.classes) in_classes += c.num_ranks;
      EXPECT_EQ(in_classes, plan.run.step.mesh.world());
      EXPECT_GT(plan.run.memory.total_bytes(), 0);
      expect_in_its_class(recipe, plan, *machine.workspace_model);
      *ranks += in_classes;
    } catch (const ConfigError& e) { return e.what(); } catch (const PlacementError& e) {
      return e.what();
    } catch (const std::exception& e) { ADD_FAILURE() << "not a refusal: " << e.what(); }
    return "";
  }

  const testing::TempDir dir_;
  std::mt19937 gen_;
};

// "parallel.tp = 7 cannot run: ...; the nearest that works: parallel.tp = 4"
bool helps(const std::string& message) {
  const bool names = message.find(" = ") != std::string::npos && message.find('.') < message.find(" = ");
  return names && (message.find("the nearest that works") != std::string::npos ||
                   message.find("expected") != std::string::npos || message.find("use at most") != std::string::npos);
}

// What a refusal says would work: "a.b = 1 and c.d = 2", as overrides.
std::vector<std::string> advice_of(const std::string& message) {
  constexpr std::string_view kBefore = "the nearest that works: ", kAnd = " and ";
  std::vector<std::string> all;
  const size_t at = message.find(kBefore);
  if (at == std::string::npos) return all;
  std::string rest = message.substr(at + kBefore.size());
  rest.resize(std::min(rest.find('\n'), rest.size()));
  for (size_t end = 0; end != std::string::npos; rest.erase(0, end + kAnd.size())) {
    end = rest.find(kAnd);
    std::string one = rest.substr(0, end);
    const size_t equals = one.find(" = ");
    if (equals == std::string::npos) {
      ADD_FAILURE() << "not a setting: " << message;
      break;
    }
    one.replace(equals, 3, "=");
    all.push_back(one);
    if (end == std::string::npos) break;
  }
  return all;
}

TEST_F(RandomLayoutsSlow, PlanOrAreRefusedInWordsThatHelp) {
  constexpr int kMostAdvice = 8;  // each is for one setting, or two: so many may be at odds with others
  const auto began = std::chrono::steady_clock::now();
  int tried = 0, planned = 0, refused = 0;
  int64_t ranks = 0;
  for (; planned < kLayouts && !HasFailure(); ++tried) {
    const std::string model = config();
    testing::spill(dir_ / "config.json", model);
    std::vector<std::string> overrides = layout();
    std::string text = model;
    for (const std::string& o : overrides) text += "\n" + o;
    SCOPED_TRACE(text);
    for (int advice = 0; advice <= kMostAdvice; ++advice) {
      const std::string refusal = refusal_of(overrides, &ranks);
      if (refusal.empty()) {
        ++planned;
        break;
      }
      refused += advice == 0;
      EXPECT_TRUE(helps(refusal)) << refusal;
      EXPECT_LT(advice, kMostAdvice) << "the advice does not help: " << refusal;
      const std::vector<std::string> better = advice_of(refusal);
      if (better.empty()) break;
      overrides.insert(overrides.end(), better.begin(), better.end());
    }
  }
  std::cout << planned << " of " << tried << " planned (" << refused << " were refused at first), " << ranks
            << " ranks, in " << std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()
            << " s\n";
}

}  // namespace
}  // namespace weft
