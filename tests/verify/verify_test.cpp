// weft verify: that it finds layouts equal that are, and names what is wrong in those that are not.
#include "weft/verify/verify.h"

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/program.h"
#include "golden_folders.h"
#include "train/faults.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/data/teacher_logits.h"
#include "weft/plan/recompute_budget.h"
#include "weft/verify/expected_update.h"
#include "weft/verify/narrow_copy.h"
#include "weft/verify/trial_data.h"

namespace weft {
namespace {

using testing::ranks_with;

Recipe recipe_for(const std::string& golden, const std::vector<std::string>& overrides) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden" / golden;
  std::vector<std::string> all{"model.path=" + folder.string(),
                               "model.init=random",
                               "data.train=" + (folder / "tokens.bin").string(),
                               "train.seq_length=8",
                               "train.micro_batch_size=1",
                               "train.global_batch_size=8",
                               "run.threads=1",
                               "run.dir=not-to-be-made"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_recipe("", "verify", all);
}

VerifyReport report_on(const Recipe& recipe, const RunRanks& run = run_on_threads, const DecorateBackend& decorate = {},
                       int64_t steps = 2) {
  return verify({.recipe = recipe,
                 .machine_for = [](const Recipe& r) { return machine_for(r); },
                 .steps = steps,
                 .run = run,
                 .decorate = decorate});
}

std::string first_of(const VerifyReport& report) {
  return report.finding ? report.finding->what + " by " + report.finding->operation : "";
}

TEST(VerifySlow, FindsEveryFamilyEqualOnALayout) {
  for (const std::string& name : testing::kGoldenCases) {
    const VerifyReport report =
        report_on(recipe_for(name, {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.zero_stage=1",
                                    "model.hidden_dropout=0.1", "model.attention_dropout=0.1"}));
    EXPECT_TRUE(report.equal()) << name << ": " << first_of(report);
    EXPECT_EQ(report.passes.size(), 2u);
    EXPECT_FALSE(std::filesystem::exists("not-to-be-made"));
  }
}

// Sinks and clamped units; caps, norms on both sides and two kinds of rope; norms of whole q and k; gated shared
// experts; latents and groups; losses of routers, over the global batch too.
TEST(VerifySlow, FindsFamiliesOfExpertsWindowsAndLatentsEqualOnALayout) {
  const std::pair<const char*, std::vector<std::string>> families[] = {
      {"gemma2", {"parallel.pp=2"}},
      {"gemma3", {"parallel.pp=2"}},
      {"olmo2", {"parallel.pp=2"}},
      {"gpt-oss", {"parallel.ep=2"}},
      {"qwen2-moe", {"parallel.ep=2"}},
      {"deepseek-v2-groups", {"parallel.ep=2"}},
      {"moe-zloss-global", {"parallel.ep=2", "moe.z_loss_coef=0.001", "moe.global_aux_loss_coef=0.05"}}};
  for (const auto& [name, more] : families) {
    std::vector<std::string> layout{"parallel.dp=2", "parallel.tp=2", "parallel.zero_stage=1", "train.seq_length=16"};
    layout.insert(layout.end(), more.begin(), more.end());
    const VerifyReport report = report_on(recipe_for(name, layout));
    EXPECT_TRUE(report.equal()) << name << ": " << first_of(report);
    EXPECT_EQ(report.passes.size(), 2u) << name;
  }
}

// A plan's config, which has the module already, is what each run is planned from.
TEST(Verify, FindsMultiTokenPredictionEqualOnALayout) {
  const VerifyReport report =
      report_on(recipe_for("mtp", {"parallel.dp=2", "parallel.ep=2", "parallel.pp=2", "train.mtp_loss_coef=0.3"}));
  EXPECT_TRUE(report.equal()) << first_of(report);
}

// A part of each head rotates, by factors that the length of a sequence chooses.
TEST(VerifySlow, FindsPhi3EqualOnALayout) {
  const auto cases = testing::golden_case_folders();
  const auto phi3 = cases.find("phi3");
  if (phi3 == cases.end()) GTEST_SKIP() << "the golden folders have no phi3";
  for (const char* length : {"train.seq_length=16", "train.seq_length=48"}) {  // short and long factors
    const VerifyReport report = report_on(recipe_for(
        "phi3", {"model.path=" + phi3->second.string(), "data.train=" + (phi3->second / "tokens.bin").string(),
                 "parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.zero_stage=1", length}));
    EXPECT_TRUE(report.equal()) << length << ": " << first_of(report);
    EXPECT_EQ(report.passes.size(), 2u);
  }
}

// Keys around a ring and heads exchanged: FindsLayoutsEqualInEachPrecision.
TEST(VerifySlow, FindsKeysThatAreGatheredAndHeadsExchangedBesideARingEqual) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.cp=2", "parallel.cp_comm_type=all_gather", "parallel.tp=2"},
        {"parallel.cp=4", "parallel.cp_comm_type=a2a+p2p", "parallel.cp_a2a_size=2"}}) {
    for (const char* name : {"llama-gqa", "mistral-window"}) {
      std::vector<std::string> all = layout;
      all.push_back("train.seq_length=32");  // longer than the window
      const VerifyReport report = report_on(recipe_for(name, all));
      EXPECT_TRUE(report.equal()) << name << " " << report.layout << ": " << first_of(report);
    }
  }
}

TEST(VerifySlow, FindsLayoutsEqualInEachPrecision) {
  const char* const kLarge = "parallel.memory_budget=60GiB";  // each trial has one of its own
  const std::vector<std::string> layouts[] = {{"parallel.dp=4", "parallel.zero_stage=3"},
                                              {"parallel.tp=4", "parallel.sequence_parallel=false"},
                                              {"parallel.pp=4", "parallel.pipeline_schedule=zb_h1"},
                                              {"parallel.tp=2", "parallel.recompute=selective"},
                                              {"parallel.pp=2", "parallel.recompute=budget", kLarge},
                                              {"parallel.cp=2", "parallel.dp=2", "parallel.zero_stage=2"},
                                              {"parallel.cp=2", "parallel.cp_comm_type=a2a"},
                                              {"parallel.pp=2", "parallel.pipeline_schedule=zbv", "parallel.dp=2"},
                                              {"parallel.dp=2", "train.numerics=invariant", "parallel.zero_stage=2"}};
  const char* const precisions[] = {"f32", "bf16", "fp16"};
  const char* const names[] = {"gpt2", "llama-gqa", "qwen3-qknorm"};
  // Every pair of a layout, a precision and a model, not every three of them.
  for (size_t l = 0; l < std::size(layouts); ++l) {
    for (size_t p = 0; p < std::size(precisions); ++p) {
      const char* const name = names[(l + p) % std::size(names)];
      std::vector<std::string> layout = layouts[l];
      layout.push_back(std::string("train.precision=") + precisions[p]);
      const VerifyReport report = report_on(recipe_for(name, layout), run_on_threads, {}, 3);
      EXPECT_TRUE(report.equal()) << name << " " << report.layout << ": " << first_of(report);
    }
  }
}

// Room for rows is no part of it: what is dropped depends on the layout.
TEST(Verify, FindsExpertsOnRanksOfTheirOwnEqual) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.dp=2", "parallel.ep=2", "moe.capacity_factor=1", "moe.overflow=drop"},
        {"parallel.cp=2", "parallel.ep=2", "moe.aux_loss_coef=0.1"}}) {
    const VerifyReport report = report_on(recipe_for("mixtral", layout), run_on_threads, {}, 1);
    EXPECT_TRUE(report.equal()) << report.layout << ": " << first_of(report);
  }
}

// Without that room experts take more than the budget of the run, which no trial has to keep.
TEST(Verify, ABudgetThatFitsTheRunAloneIsNoHindrance) {
  Recipe recipe =
      recipe_for("mixtral", {"parallel.dp=2", "parallel.ep=2", "moe.capacity_factor=1", "moe.overflow=drop"});
  const auto range_of = [](const Recipe& r) {
    return recompute_range(r, prepare_run(r, 0), *machine_for(r).workspace_model);
  };
  const int64_t budget = range_of(recipe).least;
  recipe.parallel.recompute = RecomputeKind::budget;
  recipe.parallel.memory_budget = fmt::format("{}", budget);
  Recipe tried = recipe;
  tried.moe.capacity_factor.reset();
  tried.moe.overflow = ExpertOverflow::error;
  ASSERT_GT(range_of(tried).least, budget);
  const VerifyReport report = report_on(recipe, run_on_threads, {}, 1);
  EXPECT_TRUE(report.equal()) << first_of(report);
}

TEST(Verify, FindsAdaptersEqual) {
  const VerifyReport report =
      report_on(recipe_for("llama-gqa", {"adapter.kind=lora", "adapter.rslora=true", "parallel.dp=2", "parallel.tp=2",
                                         "parallel.zero_stage=3"}));
  EXPECT_TRUE(report.equal()) << first_of(report);
}

// Their corrections have no gradient and no optimizer's state; the weights of a step have them.
TEST(Verify, FindsRoutersWithCorrectionsEqual) {
  const VerifyReport report =
      report_on(recipe_for("deepseek-v3-bias", {"parallel.dp=2", "parallel.tp=2", "moe.bias_update_rate=0.01"}));
  EXPECT_TRUE(report.equal()) << first_of(report);
}

TEST(VerifySlow, NamesTheExpertsWhoseGradientIsSummedTwice) {
  const auto experts_of = [](ProcessMesh& mesh) -> std::shared_ptr<Communicator>& { return mesh.experts.replicas; };
  const VerifyReport report =
      report_on(recipe_for("mixtral", {"parallel.dp=4", "parallel.ep=2"}),
                ranks_with({.among = experts_of, .file = "gradient_sums", .doubled = true}), {}, 1);
  ASSERT_FALSE(report.equal());
  EXPECT_EQ(report.finding->tensor, "blocks.3.mlp.experts.down.weight");
  EXPECT_SAYS(report.finding->operation, "the sum of this gradient over ranks");
}

TEST(Verify, NamesTheGradientWhoseSumOverTpIsLeftOut) {
  const Recipe recipe = recipe_for("llama-gqa", {"parallel.dp=2", "parallel.tp=2"});
  const VerifyReport report = report_on(recipe, ranks_with({testing::tp_of, "gradient_sums"}), {}, 1);
  ASSERT_FALSE(report.equal());
  EXPECT_EQ(report.finding->tensor, "final_norm.weight");  // the first of backward that tp ranks hold whole
  EXPECT_EQ(report.finding->step, 1);
  EXPECT_EQ(layout_words(report.finding->smallest.recipe), "tp 2 with sequence parallelism");
  EXPECT_SAYS(report.finding->operation, "the sum of this gradient over ranks");
}

TEST(Verify, NamesTheAxisWhoseSumOfGradientsIsDoubled) {
  const Recipe recipe = recipe_for("llama-gqa", {"parallel.dp=4", "parallel.tp=2", "parallel.recompute=full"});
  const VerifyReport report =
      report_on(recipe, ranks_with({.among = testing::replicas_of, .file = "gradient_sums", .doubled = true}), {}, 1);
  ASSERT_FALSE(report.equal());
  EXPECT_EQ(report.finding->tensor, "head.weight");
  EXPECT_EQ(layout_words(report.finding->smallest.recipe), "dp 2");
  EXPECT_SAYS(report.finding->operation, "the sum of this gradient over ranks");
}

TEST(Verify, SeesANormThatIsNotSummedOverTp) {
  const VerifyReport report = report_on(recipe_for("llama-gqa", {"parallel.dp=2", "parallel.tp=2"}),
                                        ranks_with({testing::tp_of, "grad_norm"}), {}, 1);
  ASSERT_FALSE(report.equal());
  EXPECT_EQ(report.finding->what, "the gradient norm");
  EXPECT_SAYS(layout_words(report.finding->smallest.recipe), "tp 2");
}

TEST(Verify, NamesTheOperandThatACollectiveShouldHaveSummed) {
  const Recipe recipe = recipe_for("qwen2-bias", {"parallel.tp=2", "parallel.sequence_parallel=false"});
  const VerifyReport report = report_on(recipe, ranks_with({testing::tp_of, "boundary"}), {}, 1);
  ASSERT_FALSE(report.equal());
  EXPECT_EQ(report.finding->what, "the loss");
  EXPECT_SAYS(report.finding->operation, "what brought operand");
  EXPECT_SAYS(report.finding->operation, "of norm in blocks.0.attn, forward of micro-batch 0");
}

void expect_wrong_swiglu_named(const std::string& layout) {
  const Recipe recipe = recipe_for("llama-gqa", {layout});
  const VerifyReport report = report_on(recipe, run_on_threads, testing::wrong_swiglu("blocks.3.mlp", DType::f64), 1);
  ASSERT_FALSE(report.equal()) << layout;
  EXPECT_EQ(report.finding->precision, "fp64");
  EXPECT_SAYS(report.finding->operation, "operand `a` of gated_unit in blocks.3.mlp, forward");
  EXPECT_SAYS(report.finding->operation, "what it read was equal");
}

TEST(Verify, NamesTheOperationThatIsWrongOnOneRank) { expect_wrong_swiglu_named("parallel.pp=2"); }

TEST(VerifySlow, NamesTheOperationThatIsWrongOnOneRank) {
  for (const char* layout : {"parallel.tp=2", "parallel.dp=2"}) expect_wrong_swiglu_named(layout);
}

// Where keys are whole on each of more ranks than there are key heads, a layout has other operations than one rank.
void expect_named(const testing::WrongOp& wrong, const std::string& named) {
  const Recipe recipe = recipe_for("llama-gqa", {"parallel.tp=8", "train.global_batch_size=1"});
  const VerifyReport report = report_on(recipe, run_on_threads, testing::with(wrong), 1);
  ASSERT_FALSE(report.equal()) << named;
  EXPECT_SAYS(report.finding->operation, named);
  EXPECT_SAYS(report.finding->operation, "what it read was equal");
}

TEST(Verify, NamesTheOperationThatIsWrongWhereThereAreMoreRanksThanKeyHeads) {
  expect_named(
      {.region = "blocks.1.attn", .op = "matmul", .field = "out", .which = 1, .held = Spmd::Replicate},
      "`out` of matmul in blocks.1.attn, forward of micro-batch 0, with blocks.1.attn.qkv.weight (part 2 of it)");
  expect_named({.region = "blocks.1.attn", .op = "attention", .field = "o"},
               "`o` of attention in blocks.1.attn, forward");
}

TEST(VerifySlow, NamesTheOperationThatIsWrongWhereThereAreMoreRanksThanKeyHeads) {
  expect_named({.region = "blocks.1.attn", .op = "matmul", .field = "out"},
               "`out` of matmul in blocks.1.attn, forward of micro-batch 0, with blocks.1.attn.qkv.weight:");
  expect_named({.region = "blocks.1.attn", .op = "matmul", .field = "out", .which = 2},
               "`out` of matmul in blocks.1.attn, forward of micro-batch 0, with blocks.1.attn.out.weight:");
  expect_named({.region = "blocks.1.attn", .op = "rope", .field = "x", .which = 1},
               "`x` of rope in blocks.1.attn, forward");
  expect_named({.region = "blocks.2.mlp", .op = "gated_unit", .field = "a"},
               "`a` of gated_unit in blocks.2.mlp, forward");
}

// One rank that is as wrong as a layout makes neither right.
TEST(Verify, SaysWhereOneRankItselfIsWrongInTheRecipesPrecision) {
  const Recipe recipe = recipe_for("llama-gqa", {"parallel.dp=2"});
  const testing::WrongOp wrong{.region = "blocks.1.mlp",
                               .op = "gated_unit",
                               .field = "a",
                               .dtype = DType::f32,
                               .factor = 1.4,
                               .on_one_rank = true};
  const VerifyReport report = report_on(recipe, run_on_threads, testing::with(wrong), 1);
  ASSERT_FALSE(report.equal());
  EXPECT_TRUE(report.finding->on_one_rank);
  EXPECT_EQ(report.finding->precision, "f32");
  EXPECT_SAYS(report.finding->what, "on one rank");
  EXPECT_SAYS(report.finding->operation, "operand `a` of gated_unit in blocks.1.mlp, forward");
}

TEST(Verify, SeesAnUpdateThatIsWrongOnALayout) {
  const Recipe recipe = recipe_for("llama-gqa", {"parallel.dp=2", "parallel.zero_stage=1"});
  const VerifyReport report =
      report_on(recipe, run_on_threads, testing::with({.region = "", .op = "adamw", .field = "v", .factor = 1.1}), 1);
  ASSERT_FALSE(report.equal());
  EXPECT_SAYS(report.finding->what, "the optimizer's exp_avg_sq of ");
  EXPECT_EQ(layout_words(report.finding->smallest.recipe), "dp 2");
  EXPECT_SAYS(report.finding->operation, "the update: the optimizer, or what clips its gradients");
}

void expect_wrong_update(const std::string& optimizer, const testing::WrongOp& wrong, const std::string& named) {
  const Recipe recipe = recipe_for("llama-gqa", {"parallel.dp=2", "optimizer.name=" + optimizer});
  const VerifyReport report = report_on(recipe, run_on_threads, testing::with(wrong), 1);
  ASSERT_FALSE(report.equal()) << named;
  EXPECT_TRUE(report.finding->on_one_rank);
  EXPECT_SAYS(report.finding->what, named);
  EXPECT_SAYS(report.finding->operation, "the formula of " + optimizer);
}

TEST(Verify, HoldsTheUpdatesOfOneRankToTheFormulaOfTheOptimizer) {
  expect_wrong_update("adamw", {.region = "", .op = "adamw", .field = "m", .factor = 1.001, .on_one_rank = true},
                      "the optimizer's exp_avg of ");
  expect_wrong_update("sgd", {.region = "", .op = "sgd", .field = "w", .factor = 1.001, .on_one_rank = true}, "the ");
}

TEST(VerifySlow, EveryOptimizersUpdatesAreThoseOfItsFormula) {
  for (const char* optimizer : {"adamw", "adamw8bit", "sgd", "muon"}) {
    const VerifyReport report =
        report_on(recipe_for("llama3-rope-tied",
                             {"parallel.dp=2", "parallel.pp=2", "parallel.zero_stage=1", "optimizer.weight_decay=0.2",
                              "optimizer.min_8bit_size=500", std::string("optimizer.name=") + optimizer}),
                  run_on_threads, {}, 3);
    EXPECT_TRUE(report.equal()) << optimizer << ": " << first_of(report);
  }
}

TEST(Verify, ClipsGradientsEvenWhereTheRecipesAreSmaller) {
  std::string said;
  Recipe recipe = recipe_for("llama-gqa", {"parallel.dp=2", "optimizer.clip_grad=1000"});
  const VerifyReport report = verify({.recipe = recipe,
                                      .machine_for = [](const Recipe& r) { return machine_for(r); },
                                      .steps = 1,
                                      .say = [&](const std::string& line) { said += line + "\n"; }});
  EXPECT_TRUE(report.equal()) << first_of(report);
  EXPECT_SAYS(said, "gradients are clipped to ");
}

// Weights so large that attention looks at one token alone: roundings of the products before it move the gradients much
// farther than the arithmetic of a step of common weights, in fp64 as well.
TEST(VerifySlow, KnowsAStepThatIsIllConditionedFromOneThatIsWrong) {
  const auto golden = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  for (const double std : {0.05, 1.0}) {
    const testing::TempDir model;
    auto config = nlohmann::json::parse(std::ifstream(golden / "config.json"));
    config["initializer_range"] = std;
    std::ofstream(model / "config.json") << config;
    const VerifyReport report =
        report_on(recipe_for("llama-gqa", {"parallel.dp=2", "model.path=" + model.path().string()}));
    EXPECT_TRUE(report.equal()) << first_of(report);
    EXPECT_EQ(report.passes.back().ill_conditioned.empty(), std < 1) << "weights of " << std;
  }
}

TEST(Verify, SeesWhatIsWrongInTheRecipesPrecisionAlone) {
  const Recipe recipe = recipe_for("llama-gqa", {"parallel.tp=2"});
  const VerifyReport report = report_on(recipe, run_on_threads, testing::wrong_swiglu("blocks.1.mlp", DType::f32), 1);
  ASSERT_FALSE(report.equal());
  ASSERT_EQ(report.passes.size(), 2u);
  EXPECT_EQ(report.finding->precision, "f32");
  EXPECT_SAYS(report.finding->operation, "of gated_unit in blocks.1.mlp, forward");
}

TEST(Verify, HoldsInvariantNumericsToTheBits) {
  const Recipe recipe = recipe_for("gpt2", {"parallel.dp=2", "parallel.pp=2", "train.numerics=invariant"});
  const VerifyReport report = report_on(recipe);
  EXPECT_TRUE(report.equal()) << first_of(report);
  ASSERT_EQ(report.passes.size(), 3u);
  for (const VerifyReport::Row& row : report.passes[2].rows) EXPECT_EQ(row.layout, 0);
}

// AdamW's updates by small gradients are nearly as large as those by large ones, and so are their errors: relative to
// the largest element, the small ones of gemma3's norms would be many times as far off as their gradients. An eps below
// those of verify's trials makes that plainer. An update adds its own roundings, of which there are about 16 of f32, to
// those of the gradients.
TEST(Verify, WeightsThatBeginAtZeroAreAboutAsFarOffAsTheirGradients) {
  const auto with = [](const char* setting) {
    return recipe_for("gemma3", {"optimizer.adam_eps=1e-4", "optimizer.lr_decay_style=constant", setting});
  };
  const Recipe recipe = with("train.precision=f32"), exact = with("run.backend=ref");
  Recipe faster = recipe;
  faster.optimizer.lr *= 1.001;
  const HfConfig config = read_hf_config(recipe.model.path);
  const auto data = random_tokens(recipe, config, 1);
  const RunRecord record = record_run({exact, config, *data, 1}, machine_for(exact));
  const Distances right = compare_run({recipe, config, *data, 1}, machine_for(recipe), {}, record);
  const Distances wrong = compare_run({faster, config, *data, 1}, machine_for(faster), {}, record);
  int begin_at_zero = 0;
  for (const std::string& name : record.order) {
    if (record.first_weights.at(name).largest > 0) continue;
    ++begin_at_zero;
    const double of_gradients = right.at(0, Quantity::gradients, name);
    EXPECT_LE(right.at(0, Quantity::weights, name), 1.5 * of_gradients + 16 * unit_roundoff(PrecisionChoice::f32))
        << name;
    EXPECT_GT(wrong.at(0, Quantity::weights, name), 5e-4) << name << ": an update that is 0.1 % too large goes unseen";
  }
  EXPECT_GE(begin_at_zero, 20);
}

// By a loss scale that overflows: training would skip steps until it fits, and so do one rank and the layout here.
TEST(Verify, ScalesTheLossInFp16AsTrainingDoes) {
  const std::vector<std::string> fp16{"parallel.dp=2", "train.precision=fp16"};
  const auto with = [&](const std::string& setting) {
    std::vector<std::string> all = fp16;
    all.push_back(setting);
    return recipe_for("llama-gqa", all);
  };
  const VerifyReport falls = report_on(with("train.initial_loss_scale=1073741824"));  // 2^30
  EXPECT_TRUE(falls.equal()) << first_of(falls);
  ASSERT_EQ(falls.passes.size(), 2u);
  EXPECT_LT(falls.passes[1].rows[1].one_rank, 0.1) << "gradients are compared without the scale";
  EXPECT_TRUE(report_on(with("train.loss_scale=128")).equal());
  EXPECT_THROW(report_on(with("train.loss_scale=1073741824")), NumericsError);
}

TEST(Verify, RefusesToCompareWithARunThatIsNotFinite) {
  EXPECT_THROW(report_on(recipe_for("llama-gqa", {"parallel.dp=2", "optimizer.lr=1e300"})), NumericsError);
}

TEST(VerifySlow, PackedDocumentsAreComparedToo) {
  for (const char* packing : {"first-fit", "concatenate-and-split"}) {
    const Recipe recipe = recipe_for(
        "llama-gqa", {"run.backend=ref", "parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "data.train=a.txt",
                      "data.attn_mask_type=block_causal", fmt::format("data.packing={}", packing)});
    EXPECT_TRUE(report_on(recipe).equal()) << packing;
  }
}

// The control of the tests that name operations: where nothing is wrong, every operation that can be compared is equal.
TEST(VerifySlow, OperationsOfALayoutAreEqualToThoseOfOneRank) {
  for (const std::string& name : testing::kGoldenCases) {
    for (const char* recompute : {"none", "full", "selective"}) {
      const Recipe many =
          recipe_for(name, {"run.backend=ref", "parallel.dp=2", "parallel.pp=2", "parallel.zero_stage=3",
                            name == "llama-gqa" ? "parallel.tp=8" : "parallel.tp=2",  // more than key heads
                            "parallel.pipeline_schedule=zb_h1", fmt::format("parallel.recompute={}", recompute)});
      Recipe one = one_rank_of(many);
      one.parallel.recompute = choice_named<RecomputeKind>(recompute).value();
      const HfConfig config = read_hf_config(many.model.path);
      const auto data = random_tokens(many, config, 1);
      OpLog of_one, of_many;
      run_trial({one, config, *data, 1}, machine_for(one), {.ops = &of_one});
      run_trial({many, config, *data, 1}, machine_for(many), {.ops = &of_many});
      const auto difference = of_many.first_difference(of_one, 1e-10);
      EXPECT_FALSE(difference) << name << " " << recompute << ": " << to_string(difference->name);
      EXPECT_GE(of_many.num_comparable(of_one), 1000) << name;
    }
  }
}

ModelSpec large_model(std::mt19937& gen) {
  const auto one_of = [&](std::initializer_list<int64_t> all) { return *(all.begin() + gen() % all.size()); };
  ModelSpec m;
  m.num_layers = one_of({1, 2, 7, 32, 80});
  m.num_kv_heads = one_of({1, 2, 3, 8, 9, 64});
  m.num_heads = m.num_kv_heads * one_of({1, 2, 4, 8});
  m.head_dim = one_of({64, 80, 100, 128});
  m.width = one_of({64, 256, 1600, 1601, 2048, 4096});
  m.ffn_width = one_of({11008, 11009, 14337});
  m.vocab_size = one_of({32000, 50257, 128256});
  m.max_positions = 1 << 17;
  m.init_std = 0.02;
  return m;
}

TEST(NarrowCopy, KeepsEveryLayoutThatTheModelCanHaveAndItsRemainders) {
  std::mt19937 gen(3);
  int judged = 0;
  for (int i = 0; i < 3000; ++i) {
    const ModelSpec m = large_model(gen);
    Recipe r = recipe_for("llama-gqa", {});
    const auto pick = [&](std::initializer_list<int64_t> all) { return *(all.begin() + gen() % all.size()); };
    r.parallel.dp = pick({1, 2, 3}), r.parallel.tp = pick({1, 2, 3, 4, 8, 16}), r.parallel.pp = pick({1, 2, 4});
    r.parallel.pipeline_schedule = gen() % 2 ? ScheduleKind::one_f_one_b : ScheduleKind::interleaved_1f1b;
    r.parallel.sequence_parallel = gen() % 2;
    r.train.seq_length = pick({1023, 2048, 4096}), r.train.micro_batch_size = pick({1, 2, 4, 6});
    r.train.global_batch_size = r.train.micro_batch_size * r.parallel.dp * pick({1, 2, 5, 8, 64});
    try {
      check_layout(r, m);
    } catch (const ConfigError&) { continue; }
    ++judged;
    const NarrowCopy copy = narrow_copy(r, {m, {}, {}});
    const ModelSpec& n = copy.config.spec;
    const int64_t tp = r.parallel.tp;
    EXPECT_NO_THROW(check_layout(copy.recipe, n));
    EXPECT_EQ(n.num_heads / n.num_kv_heads, m.num_heads / m.num_kv_heads);
    EXPECT_EQ(tp > n.num_kv_heads, tp > m.num_kv_heads);
    EXPECT_EQ(n.num_kv_heads % tp, m.num_kv_heads % tp);
    EXPECT_EQ(n.ffn_width % tp, m.ffn_width % tp);
    EXPECT_EQ(n.vocab_size % tp, m.vocab_size % tp);
    EXPECT_LE(n.vocab_size * n.width + n.ffn_width * n.width, 20000);
    EXPECT_EQ(n.width % 8, m.width % 8);
    EXPECT_EQ(n.head_dim % 8, m.head_dim % 8);
    EXPECT_EQ(kSumLeaf % n.width == 0, kSumLeaf % m.width == 0) << m.width;
    EXPECT_EQ(kSumLeaf % n.head_dim == 0, kSumLeaf % m.head_dim == 0) << m.head_dim;
    EXPECT_EQ(kSumLeaf % (n.ffn_width / tp) == 0, kSumLeaf % (m.ffn_width / tp) == 0) << m.ffn_width;
    const auto tokens = [](const Recipe& x) { return x.train.seq_length * x.train.micro_batch_size; };
    EXPECT_EQ(tokens(copy.recipe) % tp == 0, tokens(r) % tp == 0);
    EXPECT_EQ(num_micro_batches_of(copy.recipe) % r.parallel.pp, num_micro_batches_of(r) % r.parallel.pp);
    EXPECT_EQ(num_micro_batches_of(copy.recipe) > 1, num_micro_batches_of(r) > 1);
    EXPECT_EQ(copy.recipe.train.global_batch_size % (copy.recipe.train.micro_batch_size * r.parallel.dp), 0);
  }
  EXPECT_GE(judged, 500);
}

TEST(NarrowCopy, KeepsWhichVirtualStagesHaveMoreBlocks) {
  Recipe r = recipe_for("llama-gqa", {"parallel.pp=4", "parallel.pipeline_layout=[0, 9, 8, 7]"});
  ModelSpec m;
  m.num_layers = 24, m.num_heads = m.num_kv_heads = 8, m.head_dim = m.width = 64;
  m.ffn_width = m.vocab_size = 512;
  const NarrowCopy copy = narrow_copy(r, {m, {}, {}});
  EXPECT_EQ(copy.recipe.parallel.pipeline_layout, (BlockLayout{0, 2, 2, 1}));
  EXPECT_EQ(copy.config.spec.num_layers, 5);
}

// GPT-2 XL: 1600 is no divisor or multiple of what shards are cut at.
TEST(NarrowCopy, ShardsAreCutWithinRowsWhereTheModelsAre) {
  for (const int64_t width : {1600, 4096, 256}) {
    HfConfig config = read_hf_config(std::filesystem::path(testing::kSourceDir) / "tests/golden/gpt2");
    ModelSpec& m = config.spec;
    m.num_layers = 48, m.num_heads = m.num_kv_heads = 25, m.head_dim = 64, m.width = width, m.ffn_width = 6400;
    m.vocab_size = 50257, m.layers.clear();
    for (const char* layout : {"parallel.dp=2", "parallel.dp=3", "parallel.dp=8"}) {
      const Recipe recipe =
          recipe_for("gpt2", {"run.backend=ref", layout, "parallel.zero_stage=1", "train.global_batch_size=24"});
      const NarrowCopy copy = narrow_copy(recipe, config);
      const auto data = random_tokens(copy.recipe, copy.config, 1);
      std::atomic<int> cut = 0;
      const auto see = [&](const TrialMoment& now) {
        for (const Param* p : now.params.params()) {
          const bool row = p->spec().shape.rank() == 2 && p->spec().shape[1] == copy.config.spec.width;
          for (const ParamStore::Stored& block : now.params.stored(*p)) cut += row && block.cols.count < p->shape()[1];
        }
      };
      run_trial({copy.recipe, copy.config, *data, 1}, machine_for(copy.recipe), {.see = see});
      EXPECT_EQ(cut > 0, width != 256) << width << " " << layout;
    }
  }
}

// The model is too large to be trained in fp64.
Recipe recipe_of_large_model(const testing::TempDir& dir, const std::vector<std::string>& settings) {
  testing::spill(dir / "config.json", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "use_sliding_window": false})");
  Recipe recipe = recipe_for("llama-gqa", settings);
  recipe.model = {.path = dir.path().string(), .init = InitChoice::pretrained};
  recipe.data.train = {"not-there.txt"};
  return recipe;
}

TEST(VerifySlow, FindsTheSmallestLayoutOfANarrowCopyToo) {
  const testing::TempDir dir;
  const Recipe recipe = recipe_of_large_model(dir, {"parallel.dp=2", "parallel.tp=2"});
  const VerifyReport report = report_on(recipe, ranks_with({testing::tp_of, "gradient_sums"}));
  EXPECT_SAYS(report.model, "a narrow copy of ");
  ASSERT_FALSE(report.equal());
  EXPECT_EQ(layout_words(report.finding->smallest.recipe), "tp 2 with sequence parallelism");
}

// More logits are stored than the copy's vocabulary has tokens.
TEST(VerifySlow, ANarrowCopyBesideStoredLogitsHasRandomOnes) {
  const testing::TempDir dir;
  const std::string file = (dir / "top").string();
  TeacherLogitsWriter(file,
                      {.top = 128,
                       .seq_length = 4096,
                       .num_samples = 1,
                       .vocab_size = 152064,
                       .temperature = 2,
                       .teacher = "a teacher",
                       .samples = "some tokens"},
                      true)
      .commit();
  const Recipe recipe =
      recipe_of_large_model(dir, {"train.objective=distill", "objective.teacher_logits=" + file, "parallel.tp=4",
                                  "parallel.dp=2", "train.seq_length=4096", "train.global_batch_size=64"});
  const VerifyReport report = report_on(recipe);
  EXPECT_TRUE(report.equal()) << first_of(report);
  EXPECT_SAYS(report.model, "a narrow copy of ");
}

TEST(Verify, TrainsANarrowCopyOfALargeModel) {
  const testing::TempDir dir;
  const Recipe recipe =
      recipe_of_large_model(dir, {"parallel.tp=7", "parallel.tp=4", "parallel.pp=2", "parallel.dp=2",
                                  "parallel.zero_stage=1", "train.seq_length=4096", "train.global_batch_size=64"});
  const VerifyReport report = report_on(recipe);
  EXPECT_TRUE(report.equal()) << first_of(report);
  EXPECT_SAYS(report.model, "a narrow copy of ");
  EXPECT_SAYS(report.model, "28 query and 4 key heads of 8");
  EXPECT_SAYS(report.model, "random tokens");
}

}  // namespace
}  // namespace weft
