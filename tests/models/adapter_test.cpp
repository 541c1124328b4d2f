// Low-rank adapters beside a frozen model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include "models/tiny.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/models/hf_names.h"
#include "weft/models/peft.h"
#include "weft/models/transformer.h"
#include "weft/nn/grouped_adapter.h"
#include "weft/nn/projection.h"
#include "weft/optim/optimizer.h"
#include "weft/sharding/quantise.h"

namespace weft {
namespace {

using testing::error_of;
using testing::StepOptions;
using testing::TinyRun;

ModelSpec with_adapter(ModelSpec model, std::vector<std::string> targets = {"all-linear"}, double dropout = 0) {
  model.adapter = adapter_of(model, {.rank = 3, .alpha = 5, .dropout = dropout, .targets = std::move(targets)}, "test");
  return model;
}
ModelSpec with_magnitudes(ModelSpec model) {
  model.adapter->magnitudes = true;
  return model;
}

// Models whose matrices are fused, biased, normed and recomputed in every way.
std::vector<std::pair<std::string, ModelSpec>> adapted_models() {
  ModelSpec fused = testing::tiny_llama();
  fused.family = Family::phi3;
  ModelSpec capped = testing::tiny_latent_lite();
  capped.logit_softcap = 1;
  capped.embedding_scale = 3;
  return {
      {"llama", with_adapter(testing::tiny_llama())},
      {"some of llama", with_adapter(testing::tiny_llama(), {"k_proj", "v_proj", "up_proj", "*.layers.1.*down_proj"})},
      {"fused", with_adapter(fused)},
      {"gpt2", with_adapter(testing::tiny_gpt2())},
      {"dropping", with_adapter(testing::tiny_llama(), {"all-linear"}, 0.3)},
      {"qwen3", with_adapter(testing::tiny_qwen3())},
      {"attention beside experts", with_adapter(testing::tiny_experts(), {"q_proj", "o_proj"})},
      {"experts", with_adapter(testing::tiny_experts())},
      {"experts, dropping", with_adapter(testing::tiny_experts(), {"all-linear"}, 0.3)},
      {"some of experts", with_adapter(testing::tiny_experts(), {"*.experts.*.up_proj", "*.0.*.experts.*.down_proj"})},
      {"latent", with_adapter(testing::tiny_latent())},
      {"latent lite, dropping", with_adapter(testing::tiny_latent_lite(), {"all-linear"}, 0.3)},
      {"ends", with_adapter(testing::tiny_llama(), {"embed_tokens", "lm_head", "v_proj"})},
      {"ends, dropping", with_adapter(capped, {"embed_tokens", "lm_head"}, 0.3)},
      {"dora", with_magnitudes(with_adapter(testing::tiny_qwen3()))},
      {"dora of some",
       with_magnitudes(with_adapter(testing::tiny_llama(), {"k_proj", "up_proj", "*.layers.1.*down_proj"}))},
      {"dora, dropping", with_magnitudes(with_adapter(testing::tiny_qwen3(), {"k_proj", "o_proj", "up_proj"}, 0.3))},
      {"dora fused", with_magnitudes(with_adapter(fused))},
      {"dora of gpt2", with_magnitudes(with_adapter(testing::tiny_gpt2()))},
      {"dora of latent", with_magnitudes(with_adapter(testing::tiny_latent()))},
      {"dora of some of latent", with_magnitudes(with_adapter(testing::tiny_latent_lite(), {"q_proj", "kv_b_proj"}))}};
}

ModelSpec beside_codes(ModelSpec model, WeightCodes codes) {
  model.adapter->base_codes = codes;
  return model;
}
// The same of bases that are kept in codes.
std::vector<std::pair<std::string, ModelSpec>> models_in_codes() {
  ModelSpec fused = testing::tiny_llama();
  fused.family = Family::phi3;
  return {{"nf4", beside_codes(with_adapter(testing::tiny_llama()), WeightCodes::nf4)},
          {"nf4 of some", beside_codes(with_adapter(testing::tiny_qwen3(), {"k_proj", "up_proj"}), WeightCodes::nf4)},
          {"nf4 fused", beside_codes(with_adapter(fused), WeightCodes::nf4)},
          {"int8", beside_codes(with_adapter(testing::tiny_gpt2()), WeightCodes::int8)},
          {"nf4 experts", beside_codes(with_adapter(testing::tiny_experts()), WeightCodes::nf4)},
          {"int8 beside experts", beside_codes(with_adapter(testing::tiny_experts(), {"o_proj"}), WeightCodes::int8)},
          {"nf4 latent", beside_codes(with_adapter(testing::tiny_latent()), WeightCodes::nf4)},
          {"qdora", beside_codes(with_magnitudes(with_adapter(testing::tiny_llama())), WeightCodes::nf4)},
          {"qdora of some in int8",
           beside_codes(with_magnitudes(with_adapter(testing::tiny_gpt2(), {"c_proj"})), WeightCodes::int8)},
          {"qdora of latent", beside_codes(with_magnitudes(with_adapter(testing::tiny_latent())), WeightCodes::nf4)}};
}
std::vector<std::pair<std::string, ModelSpec>> models_of_all_kinds() {
  std::vector<std::pair<std::string, ModelSpec>> all = adapted_models();
  for (auto& one : models_in_codes()) all.push_back(std::move(one));
  return all;
}

// Gives the frozen matrices of a run the numbers that codes of this kind stand for.
void round_base(TinyRun& run, WeightCodes codes) {
  for (const Param* p : run.state.params.params()) {
    if (!p->spec().linear || p->spec().always_numbers || p->learns()) continue;
    const int64_t cols = p->spec().shape[1];
    double* const w = run.state.params.stored(*p)[0].master.as<double>();
    for (const HeldPart& part : p->parts()) {
      double* const first = w + part.part_rows.first * cols;
      std::vector<float> numbers(first, first + part.part_rows.count * cols);
      round_to_codes(codes, p->spec().name, cols, numbers, 1);
      std::copy(numbers.begin(), numbers.end(), first);
    }
  }
}

// Of a table, or of a head, whose losses are made chunk by chunk.
bool is_at_an_end(const std::string& name) { return name.starts_with("ends"); }

// A target's matrices, as they are now. Rows of its own, of all that its product has.
struct Target {
  const double *a, *b;
  double *w, *m;  // w: none in codes; m: none without magnitudes
  int64_t rows, in, rank;
  double scale;
  bool is_table;  // of which A has a row for each token, and B one for each column

  double merged(int64_t i, int64_t j) const {
    double sum = w[i * in + j];
    for (int64_t k = 0; k < rank; ++k)
      sum += scale * (is_table ? a[i * rank + k] * b[j * rank + k] : b[i * rank + k] * a[k * in + j]);
    return sum;
  }
  double length(int64_t i) const {
    double squares = 0;
    for (int64_t j = 0; j < in; ++j) squares += merged(i, j) * merged(i, j);
    return std::sqrt(squares);
  }
};
// `base`: the run whose numbers are the base's, where `run` keeps it in codes.
std::vector<Target> targets_of(TinyRun& run, const ModelSpec& model, TinyRun* base = nullptr) {
  std::map<std::string, const Param*> weights;
  for (const Param* p : run.state.params.params()) weights[p->spec().name] = p;
  const auto numbers = [&](const std::string& name) {
    const auto found = weights.find(name);
    if (found == weights.end()) return static_cast<double*>(nullptr);
    TinyRun* const in = found->second->spec().in_codes() ? base : &run;
    if (in == nullptr) return static_cast<double*>(nullptr);
    const std::vector<Param*> all = in->state.params.params();
    const auto weight = std::find_if(all.begin(), all.end(), [&](const Param* p) { return p->spec().name == name; });
    return in->state.params.stored(**weight)[0].master.as<double>();
  };
  std::vector<Target> all;
  std::map<std::string, int64_t> a_rows, b_rows;  // of each weight, so far
  std::map<std::string, int64_t> counts;          // of its targets
  for (const AdapterSpec::Target& t : model.adapter->targets) ++counts[t.weight];
  for (const AdapterSpec::Target& t : model.adapter->targets) {
    const std::string product = t.weight.substr(0, t.weight.rfind('.'));
    std::string with_b = product + ".lora_B.weight";
    if (t.of_expert)
      with_b = GroupedAdapter::name_of_b(
          product, a_rows[product] / model.adapter->rank % (counts.at(t.weight) / model.experts.count));
    const int64_t in = weights.at(t.weight)->spec().shape[1], r = model.adapter->rank;
    double *const m = numbers(product + ".lora_magnitude_vector"), *const w = numbers(t.weight);
    all.push_back({.a = numbers(product + ".lora_A.weight") + a_rows[product] * in,
                   .b = numbers(with_b) + b_rows[with_b] * r,
                   .w = w == nullptr ? w : w + t.rows.first * in,
                   .m = m == nullptr ? m : m + b_rows[with_b],
                   .rows = t.rows.count,
                   .in = in,
                   .rank = r,
                   .scale = model.adapter->scale,
                   .is_table = t.weight == "embed.tokens"});
    a_rows[product] += r;
    b_rows[with_b] += t.rows.count;
  }
  return all;
}

// B is zero at first, which would hide half of what is to be seen; and magnitudes are the lengths of the base's rows.
void draw_adapter(TinyRun& run) {
  std::mt19937 gen(5);
  std::normal_distribution<double> n;
  for (const Param* p : run.state.params.params()) {
    if (!p->spec().is_adapter) continue;
    auto* const numbers = run.state.params.stored(*p)[0].master.as<double>();
    for (int64_t i = 0; i < p->spec().shape.elements(); ++i)
      numbers[i] = 0.3 * n(gen) + (p->spec().in_stat ? numbers[i] : 0);
  }
}

// With few tokens, and with so many that A and B are added to some matrices. The lengths by which magnitudes are
// divided are constants to gradients, so they are kept here: the magnitudes move with them.
TEST(Adapter, ItsGradientIsTheDerivativeOfTheLoss) {
  for (const auto& [name, model] : models_of_all_kinds()) {
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      const bool many = is_at_an_end(name) || (schedule[0] == 'z' && model.adapter->base_codes == WeightCodes::none);
      TinyRun run(model, {.keep_activations = schedule[0] == '1',
                          .micro_batch_size = many ? 3 : 1,
                          .num_micro_batches = 2,
                          .schedule = schedule,
                          .logits_bytes = 1});
      draw_adapter(run);
      run.loss_and_gradients();
      double slope = 0;
      const WeightCodes codes = model.adapter->base_codes;
      std::optional<TinyRun> base;
      if (codes != WeightCodes::none)
        round_base(base.emplace(beside_codes(model, WeightCodes::none), StepOptions{}), codes);
      const std::vector<Target> targets = targets_of(run, model, base ? &*base : nullptr);
      const double near = base && model.adapter->magnitudes ? 1e-7 : 1e-8;  // the base's numbers here are f32
      const auto with_lengths = [&](const auto& f) {                        // f(m, |V|) for every row
        for (const Target& t : targets)
          for (int64_t i = 0; t.m != nullptr && i < t.rows; ++i) f(t.m[i], t.length(i));
      };
      std::vector<double> lengths;
      with_lengths([&](double&, double length) { lengths.push_back(length); });
      const auto move = [&](double h) {
        std::mt19937 gen(3);
        std::normal_distribution<double> n;
        for (const Param* p : run.state.params.params()) {
          if (!p->learns()) continue;
          const ParamStore::Stored s = run.state.params.stored(*p)[0];
          for (int64_t i = 0; i < p->spec().shape.elements(); ++i) {
            const double v = n(gen);
            s.master.as<double>()[i] += h * v;
            if (h == 0) slope += s.grad.as<double>()[i] * v;
          }
        }
      };
      const bool drops = model.adapter->dropout > 0;
      const auto loss = [&] {
        size_t i = 0;
        with_lengths([&](double& m, double length) { m *= length / lengths[i++]; });
        const double value = drops ? run.loss_and_gradients() : run.evaluate();
        i = 0;
        with_lengths([&](double& m, double length) { m *= lengths[i++] / length; });
        return value;
      };
      move(0);
      const double h = name == "nf4 experts" ? 5e-7 : 1e-6;
      move(h);
      const double above = loss();
      move(-2 * h);
      const double below = loss();
      EXPECT_GT(std::abs(slope), 1e-3) << name;
      EXPECT_NEAR((above - below) / (2 * h), slope, near * std::abs(slope) + 1e-9) << name << " " << schedule;
    }
  }
}

// As files name the matrices, row by row: W + scale B A, or that with the lengths of the magnitudes.
TEST(Adapter, ItsModelIsTheOneWithItsProductsAdded) {
  for (const auto& [name, model] : adapted_models()) {
    TinyRun with(model, {});
    draw_adapter(with);
    ModelSpec plain = model;
    plain.adapter.reset();
    TinyRun merged(plain, {});
    std::map<std::string, const Param*> weights;
    for (const Param* p : merged.state.params.params()) weights[p->spec().name] = p;
    const double before = merged.evaluate();
    const std::vector<Target> targets = targets_of(with, model);
    for (size_t n = 0; n < targets.size(); ++n) {
      const Target& t = targets[n];
      const AdapterSpec::Target& where = model.adapter->targets[n];
      auto* const w = merged.state.params.stored(*weights.at(where.weight))[0].master.as<double>();
      for (int64_t i = 0; i < t.rows; ++i)
        for (int64_t j = 0; j < t.in; ++j)
          w[(where.rows.first + i) * t.in + j] = t.merged(i, j) * (t.m == nullptr ? 1 : t.m[i] / t.length(i));
    }
    EXPECT_NEAR(with.evaluate(), merged.evaluate(), 1e-12) << name;
    EXPECT_GT(std::abs(merged.evaluate() - before), 1e-3) << name;
  }
}

// Every part of a matrix has codes of its own; adapters, norms, tables and biases have none.
TEST(Adapter, InCodesTheBaseIsTheNumbersThatTheyStandFor) {
  for (const auto& [name, model] : models_in_codes()) {
    TinyRun in_codes(model, {});
    TinyRun rounded(beside_codes(model, WeightCodes::none), {}), whole(beside_codes(model, WeightCodes::none), {});
    round_base(rounded, model.adapter->base_codes);
    init_magnitudes(rounded.state.params, rounded.backend);  // lengths are those of the numbers
    for (TinyRun* run : {&in_codes, &rounded, &whole}) draw_adapter(*run);
    for (const Param* p : in_codes.state.params.params())
      EXPECT_EQ(p->spec().in_codes(), p->spec().linear && !p->spec().always_numbers && !p->learns());
    EXPECT_NEAR(in_codes.evaluate(), rounded.evaluate(), 1e-7) << name;
    EXPECT_GT(std::abs(rounded.evaluate() - whole.evaluate()), 1e-4) << name;
  }
}

// NF4 is 4.13 bits an element; a product has the numbers of one part of one matrix at a time.
TEST(Adapter, InCodesTheBaseTakesBytesForItsCodesAndTemporariesForOneMatrix) {
  ModelSpec wide = testing::tiny_llama();
  wide.width = wide.ffn_width = 256;
  wide.num_heads = wide.num_kv_heads = 16;
  wide.head_dim = 16;
  wide.adapter = adapter_of(wide, {.rank = 1}, "test");
  const TinyRun whole(wide, {}), nf4(beside_codes(wide, WeightCodes::nf4), {}),
      int8(beside_codes(wide, WeightCodes::int8), {});
  const int64_t matrices = wide.num_layers * 7 * 256 * 256;
  const auto less = [&](const TinyRun& run) { return whole.used().params - run.used().params; };
  EXPECT_NEAR(double(less(nf4)), double(matrices) * (8 - 0.52), 0.02 * double(matrices));
  EXPECT_NEAR(double(less(int8)), double(matrices) * (8 - 1 - 8.0 / 256), 0.02 * double(matrices));
  EXPECT_LE(nf4.plan().scratch, whole.plan().scratch + 256 * 256 * 8);
  EXPECT_EQ(int8.plan().scratch, nf4.plan().scratch);
}

// But for the rounding of a bias that is added later.
TEST(Adapter, BeginsAsTheModelItself) {
  for (const auto& [name, model] : adapted_models()) {
    ModelSpec plain = model;
    plain.adapter.reset();
    const double adapted = TinyRun(model, {}).evaluate(), alone = TinyRun(plain, {}).evaluate();
    EXPECT_NEAR(adapted, alone, name == "dora of gpt2" ? 1e-14 : 0) << name;
  }
}

// Rows of twice W's length, with B of zeros, make W x + W dropout(x) of x: as B = W and A = 1 do without lengths.
TEST(Adapter, WithLengthsNothingIsDroppedOfTheModelsOwnProduct) {
  ModelSpec model = testing::tiny_llama();
  model.adapter =
      adapter_of(model, {.rank = model.width, .alpha = 16, .dropout = 0.3, .targets = {"k_proj", "up_proj"}}, "test");
  ASSERT_EQ(model.adapter->scale, 1);
  TinyRun twice(with_magnitudes(model), {}), added(model, {});
  for (const Target& t : targets_of(twice, with_magnitudes(model)))
    for (int64_t i = 0; i < t.rows; ++i) t.m[i] *= 2;
  for (const Target& t : targets_of(added, model)) {
    std::copy_n(t.w, t.rows * t.in, const_cast<double*>(t.b));
    for (int64_t i = 0; i < t.rank * t.in; ++i) const_cast<double*>(t.a)[i] = i / t.in == i % t.in;
  }
  for (TinyRun* run : {&twice, &added}) run->state.params.masters_changed(run->backend);
  const double loss = twice.loss_and_gradients();
  EXPECT_NEAR(loss, added.loss_and_gradients(), 1e-12);
  EXPECT_GT(std::abs(loss - twice.evaluate()), 1e-4);
}

TEST(Adapter, ARowOfZerosHasNoLengthToBeginWith) {
  TinyRun run(with_magnitudes(with_adapter(testing::tiny_llama())), {});
  for (const Param* p : run.state.params.params())
    if (p->spec().name == "blocks.1.mlp.down.weight") {
      const Tensor w = run.state.params.stored(*p)[0].master;
      std::fill_n(w.as<double>(), w.elements(), 0.0);
    }
  run.state.params.masters_changed(run.backend);
  EXPECT_SAYS(error_of([&] { init_magnitudes(run.state.params, run.backend); }), "blocks.1.mlp.down");
}

// Frozen weights have neither gradients nor state, and no product is computed for them.
TEST(Adapter, OnlyItsMatricesMoveAndHaveMemory) {
  for (const auto& [name, model] : models_of_all_kinds()) {
    TinyRun run(model, {});
    draw_adapter(run);
    const auto masters = [&](bool learning) {
      std::vector<double> all;
      for (const Param* p : run.state.params.params()) {
        if (p->spec().in_codes()) continue;
        const double* values = run.state.params.stored(*p)[0].master.as<double>();
        if (p->learns() == learning) all.insert(all.end(), values, values + p->spec().shape.elements());
      }
      return all;
    };
    const auto all = run.state.params.params();
    const int64_t weights = std::count_if(all.begin(), all.end(), [](const Param* p) { return p->learns(); });
    const std::vector<double> frozen = masters(false), learning = masters(true);
    run.loss_and_gradients();
    run.update();
    EXPECT_EQ(masters(false), frozen) << name;
    const std::vector<double> moved = masters(true);
    for (size_t i = 0; i < moved.size() && !is_at_an_end(name); ++i)  // rows of tokens that do not occur stay
      EXPECT_NE(moved[i], learning[i]) << name << " " << i;
    const auto bytes = int64_t(learning.size() * sizeof(double)), padding = int64_t{256} * 8 * weights;
    EXPECT_LE(run.used().grads, bytes + padding) << name;
    EXPECT_LE(run.used().states, 2 * (bytes + padding)) << name;
  }
}

TEST(Adapter, TheScoreOfARewardModelLearnsInFullBesideIt) {
  ModelSpec model = testing::tiny_llama();
  model.head = HeadKind::score;
  for (const bool trains : {true, false}) {
    model.adapter = adapter_of(model, {.rank = 2, .trains_score = trains}, "test");
    model.adapter->base_codes = WeightCodes::nf4;
    for (const ParamSpec& p : all_params(model))
      EXPECT_EQ(p.learns(), p.is_adapter || (trains && p.name == "score.weight")) << p.name;
    EXPECT_EQ(adapter_tensors(model).size(), 2u * 2 * 7 + (trains ? 1 : 0));
  }
  EXPECT_SAYS(error_of<ConfigError>([&] { adapter_of(testing::tiny_llama(), {.trains_score = true}, "test"); }),
              "has no score");
}

TEST(Adapter, TheValuesOfPpoLearnInFullBesideIt) {
  ModelSpec model = testing::tiny_llama();
  model.predicts_values = true;
  model.adapter = adapter_of(model, {.rank = 2, .trains_score = true}, "test");
  model.adapter->base_codes = WeightCodes::nf4;
  for (const ParamSpec& p : all_params(model))
    EXPECT_EQ(p.learns(), p.is_adapter || p.name == "value.weight" || p.name == "value.bias") << p.name;
  const std::vector<HfTensor> tensors = adapter_tensors(model);
  ASSERT_EQ(tensors.size(), 2u * 2 * 7 + 2);
  EXPECT_EQ(tensors[tensors.size() - 2].name, "v_head.summary.weight");
  EXPECT_EQ(tensors.back().name, "v_head.summary.bias");
}

// A third of the products of a step are gradients of weights; an adapter's own are few where it is narrow.
TEST(Adapter, NoGradientOfFrozenWeightsIsComputed) {
  ModelSpec plain = testing::tiny_llama();
  plain.width = plain.ffn_width = 256;
  plain.num_heads = plain.num_kv_heads = 16;
  plain.head_dim = 16;
  ModelSpec adapted = plain;
  adapted.adapter = adapter_of(plain, {.rank = 1}, "test");
  const double all = TinyRun(plain, {}).plan().arithmetic.model_flops;
  EXPECT_LT(TinyRun(adapted, {}).plan().arithmetic.model_flops, 0.7 * all);
}
TEST(Adapter, NoGradientOfFrozenExpertsIsComputed) {
  ModelSpec plain = testing::tiny_experts();
  plain.experts.width = 256;
  const auto flops = [&](const std::vector<std::string>& targets) {
    ModelSpec model = plain;
    if (!targets.empty()) model.adapter = adapter_of(plain, {.rank = 1, .targets = targets}, "test");
    return TinyRun(model, {}).plan().arithmetic.model_flops;
  };
  EXPECT_LT(flops({"all-linear"}), 0.85 * flops({}));
  EXPECT_LT(flops({"q_proj"}), 0.75 * flops({}));
}

TEST(Adapter, TargetsAreNamedAsInFiles) {
  const ModelSpec llama = testing::tiny_llama();
  EXPECT_EQ(with_adapter(llama).adapter->targets.size(), 2u * 7);
  const AdapterSpec some = *with_adapter(llama, {"model.layers.1.self_attn.v_proj"}).adapter;
  ASSERT_EQ(some.targets.size(), 1u);
  EXPECT_EQ(some.targets[0].weight, "blocks.1.attn.qkv.weight");
  EXPECT_EQ(some.targets[0].rows.first, 4 * 6 + 2 * 6);
  EXPECT_EQ(some.targets[0].rows.count, 2 * 6);
  EXPECT_DOUBLE_EQ(some.scale, 5.0 / 3);
  const auto refusal = [&](const ModelSpec& model, const std::string& target) {
    return error_of<ConfigError>([&] { with_adapter(model, {target}); });
  };
  EXPECT_SAYS(refusal(llama, "q_prj"), "the model has no module \"q_prj\"; did you mean \"q_proj\"?");
  EXPECT_SAYS(refusal(llama, "*.1.self_attn.v_porj"), "; did you mean \"*.1.self_attn.v_proj\"?");
  EXPECT_SAYS(refusal(llama, "attention.o_proj"), "; did you mean \"o_proj\"?");
  EXPECT_SAYS(refusal(llama, "all-linaer"), "; did you mean \"all-linear\"?");
  EXPECT_SAYS(refusal(llama, "query_key_value"), "; it has down_proj, ");
  const AdapterSpec ends = *with_adapter(llama, {"embed_tokens", "lm_head"}).adapter;
  ASSERT_EQ(ends.targets.size(), 2u);
  EXPECT_EQ(ends.targets[0].module, "model.embed_tokens");
  const ModelSpec tied = testing::tiny_qwen3();
  EXPECT_SAYS(refusal(tied, "embed_tokens"), "model.embed_tokens is the head's matrix too (tie_word_embeddings)");
  EXPECT_SAYS(refusal(tied, "lm_head"), "its head is the embedding's table (tie_word_embeddings)");
  EXPECT_SAYS(error_of<ConfigError>([&] { adapter_of(llama, {.dora = true, .targets = {"lm_head"}}, "test"); }),
              "lm_head is an embedding or a head, whose rows' lengths are not trained yet");
  EXPECT_SAYS(refusal(llama, "norm"), "is no matrix");
  const ModelSpec experts = testing::tiny_experts();  // of two blocks five, and a shared one
  const AdapterSpec all = *with_adapter(experts).adapter;
  EXPECT_EQ(all.targets.size(), 3u * 4 + 2 * 6 * 3 + 3);
  EXPECT_TRUE(all.has_experts());
  EXPECT_FALSE(with_adapter(experts, {"*.shared_expert.*"}).adapter->has_experts());
  EXPECT_SAYS(refusal(experts, "*.experts.1.up_proj"), "another expert of its block has none");
  EXPECT_SAYS(refusal(experts, "*.[ex]*.[0124].up_proj"), "all experts of a block");
  EXPECT_SAYS(refusal(experts, "mlp.gate"), "is of a router");
  EXPECT_SAYS(refusal(experts, "shared_expert_gate"), "is a gate");
  EXPECT_SAYS(error_of<ConfigError>([&] { adapter_of(experts, {.dora = true}, "test"); }),
              "mlp.experts.0.gate_proj is of an expert, whose rows' lengths are not trained yet");
  ModelSpec stacked = experts;
  stacked.family = Family::gpt_oss;
  stacked.experts = {.count = 5, .chosen = 2, .width = 6, .clamp = 7, .bias = true};
  EXPECT_SAYS(refusal(stacked, "all-linear"), "name the modules that shall have adapters");
  EXPECT_EQ(with_adapter(testing::tiny_latent()).adapter->targets.size(), 2u * 8);
  EXPECT_SAYS(refusal(testing::tiny_latent(), "kv_a_layernorm"), "is no matrix");
  EXPECT_SAYS(refusal(testing::tiny_mtp(), "o_proj"), "multi-token prediction cannot be trained beside adapters yet");
}

TEST(Adapter, MagnitudesAreReadInF32WhateverLayersComputeIn) {
  ParamStore store{kBf16, {}};
  store.adapt({.rank = 2, .magnitudes = true, .targets = {{"p.weight", {0, 4}, "p"}}});
  const Projection projection(store, "p", {.in = 3, .out = 4, .place = weights(Spmd::Invariant)});
  store.close_unit("block", 0);
  Arena params("params", 1 << 16), grads("grads", 1 << 16), states("states", 1 << 16);
  store.allocate({params, grads, states, params}, make_adamw({})->formats());
  for (const Param* p : store.params()) {
    const bool is_magnitude = p->spec().shape.rank() == 1;
    EXPECT_EQ(p->value.dtype, is_magnitude ? DType::f32 : DType::bf16) << p->spec().name;
    EXPECT_EQ(p->value.data == store.stored(*p)[0].master.data, is_magnitude || !p->learns()) << p->spec().name;
  }
}

// What a file of PEFT's says that weft does not do is refused by its name.
TEST(Adapter, ConfigsOfOtherAdaptersAreRefused) {
  testing::TempDir dir;
  const nlohmann::json good{{"peft_type", "LORA"},
                            {"r", 4},
                            {"lora_alpha", 8},
                            {"target_modules", {"q_proj"}},
                            {"base_model_name_or_path", "base"}};
  const auto with = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json json = good;
    json[key] = value;
    if (value.is_null()) json.erase(key);
    std::ofstream(dir / "adapter_config.json") << json;
    return error_of<FileError>([&] { read_peft_config(dir.path()); });
  };
  EXPECT_EQ(with("lora_dropout", 0.1), "");
  const PeftConfig read = read_peft_config(dir.path());
  EXPECT_EQ(read.rank, 4);
  EXPECT_EQ(read.base, "base");
  EXPECT_FALSE(read.dora);
  EXPECT_EQ(with("use_dora", true), "");
  EXPECT_TRUE(read_peft_config(dir.path()).dora);
  EXPECT_SAYS(with("use_dora", 1), "\"use_dora\"");
  EXPECT_SAYS(with("peft_type", "IA3"), "\"peft_type\"");
  EXPECT_SAYS(with("bias", "all"), "\"bias\"");
  for (const nlohmann::json& others : std::vector<nlohmann::json>{{"lm_head"}, {"classifier"}, {"score", "lm_head"}})
    EXPECT_SAYS(with("modules_to_save", others), "\"modules_to_save\"");
  EXPECT_SAYS(with("modules_to_save", "score"), "\"modules_to_save\"");
  EXPECT_EQ(with("modules_to_save", {"classifier", "score"}), "");
  EXPECT_TRUE(read_peft_config(dir.path()).trains_score);
  EXPECT_FALSE(read.trains_score);
  EXPECT_SAYS(with("rank_pattern", {{"q_proj", 2}}), "\"rank_pattern\"");
  EXPECT_SAYS(with("r", 0), "\"r\"");
  EXPECT_SAYS(with("lora_alpha", "8"), "\"lora_alpha\"");
  EXPECT_SAYS(with("target_modules", {1}), "\"target_modules\"");
  EXPECT_SAYS(with("target_modules", "q_.*"), "\"target_modules\"");
  EXPECT_SAYS(with("target_modules", nullptr), "\"target_modules\": expected a list of names of modules");
  EXPECT_EQ(with("base_model_name_or_path", "nowhere"), "");
  EXPECT_SAYS(error_of<FileError>([&] { base_of_adapter(dir.path(), read_peft_config(dir.path())); }),
              "\"base_model_name_or_path\"");
}

}  // namespace
}  // namespace weft
