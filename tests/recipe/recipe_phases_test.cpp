#include "weft/recipe/recipe_phases.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "weft/base/error.h"
#include "weft/recipe/requirement.h"

namespace weft {
namespace {

const std::string kBase =
    "[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n[train]\ntrain_iters = 100\nglobal_batch_size = 8\n"
    "micro_batch_size = 4\nseq_length = 16\n[optimizer]\nlr = 1e-3\nmin_lr = 1e-4\n";

Recipe parse(const std::string& more, const std::vector<std::string>& overrides = {}) {
  Recipe recipe = parse_recipe(kBase + more, "r.toml", overrides);
  check_supported(recipe);
  return recipe;
}
std::string refusal_of(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return testing::error_of<Error>([&] { parse(more, overrides); });
}

TEST(RecipePhases, ARecipeWithoutPhasesIsItsOnlySpan) {
  const Recipe r = parse("");
  const auto spans = phase_spans(r);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].recipe, r);
  EXPECT_EQ(spans[0].end_step, 100);
  EXPECT_FALSE(has_phases(r));
}

TEST(RecipePhases, EachPhaseGoesOnWithTheValuesOfTheOneBefore) {
  const Recipe r = parse(
      "[[phase]]\nfrom_step = 10\ntrain.global_batch_size = 16\n"
      "[[phase]]\nfrom_step = 30\n[phase.train]\nseq_length = 32\nmicro_batch_size = 2\n"
      "[[phase]]\nfrom_step = 31\ndata.train = [\"b.bin\", \"c.bin\"]\ndata.weights = [1, 3]\n");
  const auto spans = phase_spans(r);
  ASSERT_EQ(spans.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const int64_t first[] = {0, 10, 30, 31}, end[] = {10, 30, 31, 100};
    EXPECT_EQ(spans[i].phase, int(i));
    EXPECT_EQ(spans[i].first_step, first[i]);
    EXPECT_EQ(spans[i].end_step, end[i]);
    EXPECT_EQ(spans[i].recipe.train.global_batch_size, i < 1 ? 8 : 16);
    EXPECT_EQ(spans[i].recipe.train.seq_length, i < 2 ? 16 : 32);
    EXPECT_EQ(spans[i].recipe.train.micro_batch_size, i < 2 ? 4 : 2);
    EXPECT_EQ(spans[i].recipe.data.weights.size(), i < 3 ? 0u : 2u);
    EXPECT_EQ(spans[i].recipe.optimizer, r.optimizer);
    EXPECT_EQ(spans[i].lr_first_step, 0);
    EXPECT_FALSE(has_phases(spans[i].recipe));
  }
  EXPECT_EQ(parse_recipe(to_toml(r), "again.toml", {}), r);
}

TEST(RecipePhases, ARequirementIsReadPrintedBackAndJudged) {
  const std::vector<std::string> tasks{"eval.tasks=[\"piqa=p.jsonl\", \"blimp=b\"]"};
  const Recipe r = parse("[[phase]]\nfrom_step = 10\nrequire = [\"piqa.acc >= 0.6\", \"blimp_x.acc<1e2\"]\n", tasks);
  EXPECT_EQ(r.phases.at(0).require.size(), 2u);
  EXPECT_EQ(parse_recipe(to_toml(r), "again.toml", {}), r);
  EXPECT_EQ(phase_spans(r).size(), 2u) << "a phase may change nothing";
  for (const char* wrong : {"\"\"", "[]", "3", "\"acc >= 1\"", "\"piqa.acc = 1\"", "\"piqa. >= 1\"",
                            "\"piqa.acc >= x\"", "\"piqa.acc >= nan\""})
    EXPECT_SAYS(refusal_of(fmt::format("[[phase]]\nfrom_step = 10\nrequire = {}\n", wrong), tasks),
                "[[phase]]: require");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_step = 10\nrequire = \"piqa.acc > 1\"\n"), "name it in eval.tasks");
  const Requirement least = *parse_requirement(" piqa.acc>=.5 "), below = *parse_requirement("a.b < -1");
  EXPECT_EQ(least.to_string(), "piqa.acc >= 0.5");
  EXPECT_TRUE(least.is_met(0.5));
  EXPECT_FALSE(least.is_met(0.49));
  EXPECT_FALSE(below.is_met(-1));
  EXPECT_TRUE(below.is_met(-2));
  EXPECT_FALSE(below.is_met(std::nan("")));
}

TEST(RecipePhases, SharesAreOfTheEntriesThatAPhaseNames) {
  const auto spans = phase_spans(parse("[[phase]]\nfrom_step = 10\ndata.train = [\"b.bin\"]\n",
                                       {"data.train=[\"a.bin\", \"b.bin\"]", "data.weights=[1, 2]"}));
  EXPECT_TRUE(spans[1].recipe.data.weights.empty());
}

TEST(RecipePhases, ALearningRateOfItsOwnHasAScheduleOfItsOwn) {
  const auto spans =
      phase_spans(parse("[[phase]]\nfrom_step = 40\noptimizer.lr = 2e-3\noptimizer.lr_warmup_iters = 5\n"
                        "[[phase]]\nfrom_step = 60\ntrain.global_batch_size = 16\n",
                        {"optimizer.lr_warmup_iters=7"}));
  EXPECT_EQ(spans[0].recipe.optimizer.lr_warmup_iters, 7);
  for (size_t i : {1, 2}) {
    EXPECT_EQ(spans[i].lr_first_step, 40);
    EXPECT_EQ(spans[i].recipe.optimizer.lr, 2e-3);
    EXPECT_EQ(spans[i].recipe.optimizer.lr_warmup_iters, 5);
    EXPECT_EQ(spans[i].recipe.optimizer.lr_decay_iters, 60) << "from step 40 to the end";
  }
}

TEST(RecipePhases, TheLearningRateFollowsTheBatchByTheRuleThatIsAskedFor) {
  const std::string grows = "[[phase]]\nfrom_step = 10\ntrain.global_batch_size = 32\n";
  const std::pair<const char*, double> rules[] = {{"none", 1}, {"linear", 4}, {"sqrt", 2}};
  for (const auto& [rule, factor] : rules) {
    const auto spans = phase_spans(parse(grows, {fmt::format("optimizer.lr_scaling={}", rule)}));
    EXPECT_EQ(spans[0].recipe.optimizer.lr, 1e-3);
    EXPECT_DOUBLE_EQ(spans[1].recipe.optimizer.lr, factor * 1e-3) << rule;
    EXPECT_DOUBLE_EQ(spans[1].recipe.optimizer.min_lr, factor * 1e-4) << rule;
    EXPECT_DOUBLE_EQ(spans[1].lr_factor, factor);
    EXPECT_EQ(to_string(spans[1]).find("lr_scaling") != std::string::npos, factor != 1) << to_string(spans[1]);
  }
  // Back to the first size, the rate is the first again; one that is stated is taken as it is.
  const auto back =
      phase_spans(parse(grows + "[[phase]]\nfrom_step = 20\ntrain.global_batch_size = 8\n" +
                            "[[phase]]\nfrom_step = 30\ntrain.global_batch_size = 16\noptimizer.lr = 5e-4\n",
                        {"optimizer.lr_scaling=linear"}));
  EXPECT_DOUBLE_EQ(back[2].recipe.optimizer.lr, 1e-3);
  EXPECT_EQ(back[3].recipe.optimizer.lr, 5e-4);
  EXPECT_EQ(back[3].lr_factor, 1);
}

// A step of k times the batch counts as k steps, for Adam's averages too.
TEST(RecipePhases, TheSquareRootRuleInFullMovesAdamsAveragesToo) {
  const std::string grows = "[[phase]]\nfrom_step = 12\ntrain.global_batch_size = 32\n";
  const auto spans = phase_spans(parse(grows + "[[phase]]\nfrom_step = 20\ntrain.global_batch_size = 8\n" +
                                           "[[phase]]\nfrom_step = 30\ntrain.global_batch_size = 16\n"
                                           "optimizer.lr = 5e-4\n",
                                       {"optimizer.lr_scaling=sqrt_adam"}));
  const double beta1[] = {0.9, 0.6, 0.9, 0.8}, beta2[] = {0.95, 0.8, 0.95, 0.9};
  const double eps[] = {1e-8, 5e-9, 1e-8, 1e-8 / std::sqrt(2.0)}, lr[] = {1e-3, 2e-3, 1e-3, 5e-4};
  // 12 steps are 3 of four times the batch; behind 8 more of those, 44; behind 10 more, 27 of twice the batch.
  const int64_t averaged[] = {0, 3, 44, 27};
  for (size_t i = 0; i < 4; ++i) {
    const auto& o = spans[i].recipe.optimizer;
    EXPECT_NEAR(o.adam_beta1, beta1[i], 1e-15) << i;
    EXPECT_NEAR(o.adam_beta2, beta2[i], 1e-15) << i;
    EXPECT_NEAR(o.adam_eps, eps[i], 1e-20) << i;
    EXPECT_DOUBLE_EQ(o.lr, lr[i]) << i;
    EXPECT_EQ(spans[i].averaged_steps, averaged[i]) << i;
  }
  EXPECT_EQ(spans[2].recipe.optimizer, spans[0].recipe.optimizer) << "back to the bit";
  EXPECT_SAYS(to_string(spans[1]), "adam_beta1 0.6, adam_beta2 0.8, adam_eps 5e-09, with 1 - beta x 4");
  for (const PhaseSpan& span : phase_spans(parse(grows, {"optimizer.lr_scaling=sqrt"})))
    EXPECT_EQ(span.averaged_steps, span.first_step);
  const auto ramp = phase_spans(
      parse("", {"train.rampup_batch_size=[2, 6, 4]", "train.micro_batch_size=2", "optimizer.lr_scaling=sqrt_adam"}));
  EXPECT_NEAR(ramp[0].recipe.optimizer.adam_beta1, 0.975, 1e-15) << "of the whole batch it is that of the recipe";
  EXPECT_EQ(ramp[1].recipe.optimizer.adam_beta1, 0.9);
}

TEST(RecipePhases, AFullSquareRootRuleThatCannotBeIsRefused) {
  const std::string grows = "[[phase]]\nfrom_step = 12\ntrain.global_batch_size = 128\n";
  const std::string rule = "optimizer.lr_scaling=sqrt_adam";
  EXPECT_SAYS(refusal_of(grows, {rule}),
              "in steps 12 to 99: expected at least 0 and below 1, and optimizer.lr_scaling");
  EXPECT_EQ(refusal_of(grows, {rule, "optimizer.adam_beta1=0.99", "optimizer.adam_beta2=0.99"}), "");
  for (const char* name : {"sgd", "muon"})
    EXPECT_SAYS(refusal_of(grows, {rule, fmt::format("optimizer.name={}", name)}), "optimizer.lr_scaling = \"sqrt\"");
}

// Step by step, as Megatron's microbatch calculator does it.
TEST(RecipePhases, TheBatchGrowsAsMegatronCounts) {
  for (const auto& [start, increment, samples] :
       std::vector<std::array<int64_t, 3>>{{8, 8, 100}, {4, 4, 300}, {16, 16, 10}, {4, 20, 77}, {8, 4, 1}}) {
    const Recipe r = parse("", {fmt::format("train.rampup_batch_size=[{}, {}, {}]", start, increment, samples),
                                "train.global_batch_size=64", "optimizer.lr_scaling=sqrt"});
    const auto spans = phase_spans(r);
    int64_t consumed = 0;
    size_t at = 0;
    for (int64_t step = 0; step < 100; ++step) {
      const double each = double(samples) / double((64 - start) / increment);
      const int64_t batch = consumed > samples ? 64 : start + int64_t(double(consumed) / each) * increment;
      while (step >= spans[at].end_step) ++at;
      ASSERT_EQ(spans[at].recipe.train.global_batch_size, batch) << "step " << step << " of " << start;
      EXPECT_DOUBLE_EQ(spans[at].recipe.optimizer.lr, 1e-3 * std::sqrt(double(batch) / 64));
      consumed += batch;
    }
    EXPECT_EQ(spans.back().end_step, 100);
  }
}

TEST(RecipePhases, ARampOfAPhaseEndsAtItsBatchOrItsLastStep) {
  const auto spans = phase_spans(
      parse("[[phase]]\nfrom_step = 10\ntrain.global_batch_size = 32\ntrain.rampup_batch_size = [8, 8, 1000]\n"
            "[[phase]]\nfrom_step = 12\noptimizer.lr = 1e-4\ntrain.global_batch_size = 32\n"));
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[1].recipe.train.global_batch_size, 8);
  EXPECT_EQ(spans[1].end_step, 12);
  EXPECT_EQ(spans[2].recipe.train.global_batch_size, 32);
}

TEST(RecipePhases, WhatCannotChangeIsRefusedByNameWithWhatCan) {
  const std::string error = refusal_of("[[phase]]\nfrom_step = 3\ntrain.precision = \"bf16\"\nrun.threads = 2\n");
  EXPECT_SAYS(error,
              "r.toml:15:7: train.precision = \"bf16\" cannot change in a [[phase]]; these keys may: data.train");
  EXPECT_SAYS(error, "run.threads = 2 cannot change");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_step = 3\noptimizer.learning_rate = 1\n"), "did you mean optimizer.lr");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_step = 3\noptimizer.lr = -1\n"),
              "optimizer.lr = -1: expected a number of at");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_step = 3\n"), "changes nothing; these keys may change: data.train");
  EXPECT_SAYS(refusal_of("[[phase]]\noptimizer.lr = 1\n"), "[[phase]]: expected from_step = N");
  EXPECT_SAYS(refusal_of("[phase]\nfrom_step = 3\n"), "expected tables, [[phase]]");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_step = 3\nlr = 3\n"),
              "lr: expected section.key = value, as in optimizer.lr = 1e-4; did you mean optimizer.lr");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_stp = 3\noptimizer.lr = 3\n"), "from_stp: expected section.key = value");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_stp = 3\noptimizer.lr = 3\n"), "did you mean from_step?");
  EXPECT_SAYS(refusal_of("", {"phase=3"}), "[[phase]] tables are read from the recipe's file alone");
}

TEST(RecipePhases, PhasesThatDoNotFitTheRunAreRefused) {
  const std::string lr = "optimizer.lr = 1e-4\n", at = "[[phase]]\nfrom_step = ";
  EXPECT_SAYS(refusal_of(at + "5\n" + lr + at + "5\n" + lr),
              "from_step = 5: expected a step behind 5, where the phase");
  EXPECT_SAYS(refusal_of(at + "100\n" + lr), "from_step = 100: expected a step below train.train_iters = 100");
  EXPECT_SAYS(refusal_of(at + "5\n" + lr, {"train.epochs=2", "train.train_iters=0"}), "train.epochs = 2: expected 0");
  EXPECT_SAYS(refusal_of(at + "5\ntrain.global_batch_size = 18\n"),
              "train.global_batch_size = 18 in steps 5 to 99: expected a multiple of train.micro_batch_size");
  EXPECT_SAYS(refusal_of(at + "5\noptimizer.lr = 1e-5\n"),
              "optimizer.min_lr = 0.0001 in steps 5 to 99: expected at most");
  EXPECT_SAYS(refusal_of(at + "5\ntrain.seq_length = 8\n", {"data.valid_fraction=0.1"}), "name files in data.valid");
  EXPECT_SAYS(refusal_of(at + "5\ndata.train = []\n"), "data.train is missing in steps 5 to 99: ");
  EXPECT_SAYS(refusal_of(at + "5\noptimizer.lr_wsd_decay_iters = 3\n"), "phase 1, steps 5 to 99");
  EXPECT_SAYS(refusal_of(at + "5\noptimizer.lr_scaling = \"linear\"\noptimizer.lr = 1e-3\n"),
              "it has no effect in a phase");
  EXPECT_SAYS(refusal_of("", {"optimizer.lr_scaling=linear"}), "optimizer.lr_scaling = \"linear\" has no effect");
  EXPECT_SAYS(refusal_of("", {"train.rampup_batch_size=[4, 4]"}), "expected three numbers");
  EXPECT_SAYS(refusal_of("", {"train.rampup_batch_size=[4, 3, 50]"}), "expected to reach train.global_batch_size = 8");
  EXPECT_SAYS(refusal_of("", {"train.rampup_batch_size=[4, 1, 50]", "train.global_batch_size=2000"}), "at most 1024");
  std::string many;
  for (int step = 1; step < 300; ++step) many += fmt::format("{}{}\n{}", at, step, lr);
  EXPECT_SAYS(refusal_of(many, {"train.train_iters=1000"}), "299 [[phase]] tables: expected at most 256");
  EXPECT_SAYS(refusal_of(at + "5\ntrain.rampup_batch_size = [8, 4, 9]\n"), "from_step = 5: train.rampup_batch_size");
  // 10 samples by 4 each: steps 0 to 2.
  EXPECT_SAYS(refusal_of(at + "2\n" + lr, {"train.rampup_batch_size=[4, 4, 10]"}),
              "the batch still grows then, with 4 of 8 samples, and a ramp ends with its phase: begin at step 3");
  EXPECT_EQ(phase_spans(parse(at + "3\n" + lr, {"train.rampup_batch_size=[4, 4, 10]"})).size(), 2u);
}

TEST(RecipePhases, APhaseWithAnotherObjectiveHasDataAndSettingsOfItsOwn) {
  const std::string dpo = "[[phase]]\nfrom_step = 5\ntrain.objective = \"dpo\"\ndata.pairs = \"p.jsonl\"\n";
  const Recipe r = parse(dpo + "objective.beta = 0.3\n[[phase]]\nfrom_step = 7\noptimizer.lr = 1e-3\n" +
                             "[[phase]]\nfrom_step = 9\ntrain.objective = \"kto\"\ndata.examples = \"e.jsonl\"\n"
                             "data.valid = \"v.jsonl\"\nobjective.reference = \"m\"\n",
                         {"run.dir=r", "data.valid=x.bin", "train.eval_interval=3", "data.packing=first-fit"});
  const auto spans = phase_spans(r);
  ASSERT_EQ(spans.size(), 4u);
  const Recipe &a = spans[1].recipe, &b = spans[3].recipe;
  EXPECT_EQ(a.data.pairs, "p.jsonl");
  EXPECT_TRUE(a.data.train.empty() && a.data.valid.empty() && a.data.packing == Recipe().data.packing);
  EXPECT_EQ(a.objective.beta, 0.3);
  EXPECT_EQ(a.train.eval_interval, 0) << "nothing is held out";
  EXPECT_EQ(b.train.eval_interval, 3);
  EXPECT_EQ(b.objective.beta, 0.3) << "which kto has too";
  EXPECT_TRUE(b.data.pairs.empty());
  const char* references[] = {"", "r/checkpoints/step-5", "r/checkpoints/step-5", "m"};
  const int64_t own[] = {0, 5, 5, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spans[i].recipe.objective.reference, references[i]) << i;
    EXPECT_EQ(spans[i].own_reference, own[i]) << i;
  }
  EXPECT_SAYS(to_string(spans[1]), "phase 1, steps 5 to 6: dpo, 8 samples of 16 tokens");
}

TEST(RecipePhases, TheMeanOverDocumentsIsOfThePhasesOfCrossEntropyAlone) {
  const Recipe r = parse(
      "[[phase]]\nfrom_step = 5\ntrain.objective = \"distill\"\nobjective.teacher = \"t\"\n"
      "[[phase]]\nfrom_step = 7\ntrain.objective = \"cross_entropy\"\n",
      {"data.packing=first-fit", "train.loss_average=document"});
  const auto spans = phase_spans(r);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].recipe.train.loss_average, LossAverage::document);
  EXPECT_EQ(spans[1].recipe.train.loss_average, LossAverage::token);
  EXPECT_EQ(spans[2].recipe.train.loss_average, LossAverage::document);
}

TEST(RecipePhases, APhaseMayAverageTheLossOtherwise) {
  const std::string texts =
      "[[phase]]\nfrom_step = 5\ntrain.loss_average = \"document\"\n"
      "[[phase]]\nfrom_step = 7\ntrain.global_batch_size = 16\n"
      "[[phase]]\nfrom_step = 9\ntrain.objective = \"distill\"\nobjective.teacher = \"t\"\n"
      "[[phase]]\nfrom_step = 11\ntrain.objective = \"cross_entropy\"\ntrain.loss_average = \"document\"\n";
  const Recipe r = parse(texts, {"data.packing=first-fit"});
  const LossAverage expected[] = {LossAverage::token, LossAverage::document, LossAverage::document, LossAverage::token,
                                  LossAverage::document};
  const auto spans = phase_spans(r);
  ASSERT_EQ(spans.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(spans[i].recipe.train.loss_average, expected[i]) << i;
  EXPECT_SAYS(refusal_of(texts), "phase 1, steps 5 to 6: ");
  EXPECT_SAYS(refusal_of(texts), "train.loss_average = \"document\" cannot run: data.packing");
}

// Layouts are of whole runs: what frozen models have of it counts in the phases that have one.
TEST(RecipePhases, ShardsOfFrozenModelsAreOfThePhasesThatHaveSuch) {
  const std::string later = "[[phase]]\nfrom_step = 5\ntrain.objective = \"distill\"\nobjective.teacher = \"t\"\n";
  const std::vector<std::string> shards{"train.micro_batch_size=1", "parallel.dp=4", "parallel.frozen_shard_size=4"};
  const auto spans = phase_spans(parse(later, shards));
  EXPECT_EQ(spans[0].recipe.parallel.frozen_shard_size, 0);
  EXPECT_EQ(spans[1].recipe.parallel.frozen_shard_size, 4);
  check_supported(without_phases(parse(later, shards)));  // of which commands look at the first steps
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_step = 5\noptimizer.lr = 1e-4\n", shards),
              "parallel.frozen_shard_size = 4 has no effect: no model is frozen");
}

// Which no phase may say, so that none may lose it either.
TEST(RecipePhases, ATeachersLargestLogitsAndLayoutAreOfEachPhaseThatHasATeacherInMemory) {
  const std::vector<std::string> apart{"train.objective=distill", "objective.teacher=t", "objective.top_k=64",
                                       "parallel.tp=4", "parallel.teacher_tp=2"};
  const std::string dpo = "[[phase]]\nfrom_step = 5\ntrain.objective = \"dpo\"\ndata.pairs = \"p\"\n",
                    again =
                        "[[phase]]\nfrom_step = 9\ntrain.objective = \"distill\"\ndata.train = \"a.bin\"\n"
                        "objective.teacher = \"t\"\n";
  const std::string stored = "[[phase]]\nfrom_step = 11\nobjective.teacher = \"\"\nobjective.teacher_logits = \"l\"\n",
                    live = "[[phase]]\nfrom_step = 13\nobjective.teacher = \"t\"\nobjective.teacher_logits = \"\"\n";
  const auto spans = phase_spans(parse(dpo + again + stored + live, apart));
  ASSERT_EQ(spans.size(), 5u);
  const int64_t top[] = {64, 0, 64, 0, 64}, tp[] = {2, 0, 2, 0, 2};
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].recipe.objective.top_k, top[i]) << i;
    EXPECT_EQ(spans[i].recipe.parallel.teacher_tp, tp[i]) << i;
  }
  const std::string refused = refusal_of("[[phase]]\nfrom_step = 5\nobjective.top_k = 32\n", apart);
  EXPECT_SAYS(refused, "objective.top_k = 32: the layout of a teacher is that of the whole run");
}

TEST(RecipePhases, AnotherObjectiveThatCannotBeIsRefusedByName) {
  const std::string at = "[[phase]]\nfrom_step = 5\ntrain.objective = ";
  EXPECT_SAYS(refusal_of(at + "\"dpo\"\n"), "data.pairs is missing in steps 5 to 99: ");
  EXPECT_SAYS(refusal_of(at + "\"distill\"\n"), "objective.teacher is missing in steps 5 to 99: ");
  const std::vector<std::string> rewards{"train.objective=reward", "data.pairs=p", "data.train=", "model.path=m"};
  EXPECT_SAYS(refusal_of(at + "\"dpo\"\n", rewards),
              "the checkpoint of a reward model, which has no head for text; the "
              "nearest that works: objective.reference = \"m\", in this phase");
  parse(at + "\"dpo\"\nobjective.reference = \"m\"\n", rewards);
  EXPECT_SAYS(refusal_of(at + "\"dpo\"\ndata.pairs = \"p\"\n",
                         {"checkpoint.keep_best=1", "data.valid=v", "train.eval_interval=1"}),
              "checkpoint.keep_best = 1 compares held-out losses of all steps");
  EXPECT_SAYS(refusal_of(at + "\"dpo\"\ndata.pairs = \"p\"\ndata.weights = [1]\n"), "data.weights");
  EXPECT_SAYS(refusal_of(at + "\"dpo\"\ndata.pairs = \"p\"\n", {"train.mtp_loss_coef=0.1"}),
              "phase 1, steps 5 to 99: dpo, 8 samples of 16 tokens");
}

// By how many steps of its own an optimizer corrects the averages of a head that came later.
TEST(RecipePhases, AHeadThatAPhaseBeginsIsAsOldAsItsSteps) {
  const auto at = [](int step, const std::string& objective, const std::string& more = "") {
    return "[[phase]]\nfrom_step = " + std::to_string(step) + "\ntrain.objective = \"" + objective + "\"\n" + more;
  };
  const std::string rows = "data.pairs = \"p\"\n", sampled = "data.rollouts = \"r\"\n", text = "data.train = \"t\"\n";
  const auto spans = phase_spans(
      parse(at(5, "reward", rows) + "[[phase]]\nfrom_step = 15\noptimizer.lr = 1e-4\n" + at(30, "cross_entropy", text) +
            at(50, "ppo", sampled) +
            "[[phase]]\nfrom_step = 60\ntrain.global_batch_size = 16\noptimizer.lr_scaling = \"sqrt_adam\"\n"));
  ASSERT_EQ(spans.size(), 6u);
  using Steps = std::optional<int64_t>;
  const Steps none, text_head[] = {none, none, none, 0, 20, 15}, score[] = {none, 0, 10, none, none, none},
                    values[] = {none, none, none, none, 0, 5};
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto& steps = spans[i].heads_averaged_steps;
    EXPECT_EQ(steps[size_t(ModelHead::text)], text_head[i]) << i;
    EXPECT_EQ(steps[size_t(ModelHead::score)], score[i]) << i;
    EXPECT_EQ(steps[size_t(ModelHead::values)], values[i]) << i;
  }
}

TEST(RecipePhases, WhatIsBehindARunMayNotChangeAndWhatIsBeforeItMay) {
  const std::string first = "[[phase]]\nfrom_step = 5\noptimizer.lr = 1e-4\n",
                    other = "[[phase]]\nfrom_step = 5\noptimizer.lr = 2e-4\n",
                    second = "[[phase]]\nfrom_step = 9\noptimizer.lr = 2e-4\n";
  const Recipe none = parse(""), a = parse(first), b = parse(other), both = parse(first + second);
  for (const int64_t done : {0, 5}) EXPECT_TRUE(phase_differences(a, b, done).empty()) << done;
  const auto changed = phase_differences(a, b, 6);
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_SAYS(changed[0], "optimizer.lr = 0.0001 there, optimizer.lr = 0.0002 here");
  EXPECT_TRUE(phase_differences(a, both, 9).empty());
  EXPECT_EQ(phase_differences(a, both, 10).size(), 1u);
  EXPECT_SAYS(phase_differences(none, a, 6)[0], "no such phase there");
  EXPECT_SAYS(phase_differences(a, none, 6)[0], "no such phase here");
}

TEST(RecipePhases, ALayoutOfItsOwnIsThatOfTheProcessesThatBeginThere) {
  const Recipe r = parse(
      "[parallel]\ndp = 2\n[[phase]]\nfrom_step = 10\noptimizer.lr = 1e-4\n[[phase]]\nfrom_step = 20\n"
      "parallel.dp = 1\nparallel.pp = 2\nrun.ranks = \"mpi\"\n[[phase]]\nfrom_step = 30\nparallel.pp = 2\n[[phase]]\n"
      "from_step = 40\nparallel.pp = 4\n");
  const std::vector<PhaseSpan> spans = phase_spans(r);
  ASSERT_EQ(spans.size(), 5u);
  const int64_t from[] = {0, 0, 20, 20, 40}, pp[] = {1, 1, 2, 2, 4};
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].layout_from, from[i]) << "what stays as it was is no other layout";
    EXPECT_EQ(spans[i].recipe.parallel.pp, pp[i]);
  }
  EXPECT_SAYS(to_string(spans[2]), ", on pp 2");
  EXPECT_TRUE(has_layouts(r));
  EXPECT_TRUE(changes_layout_at(r, 20) && changes_layout_at(r, 40));
  EXPECT_FALSE(changes_layout_at(r, 0) || changes_layout_at(r, 10) || changes_layout_at(r, 30));
  EXPECT_EQ(in_layout_at(r, 19), r);
  const Recipe second = in_layout_at(r, 20);
  EXPECT_EQ(second.parallel.dp * 10 + second.parallel.pp, 12);
  EXPECT_EQ(second.run.ranks, RanksKind::mpi);
  EXPECT_EQ(layout_from(second), 20);
  EXPECT_EQ(to_toml(second), to_toml(r)) << "a run's folder has the recipe as it was given";
  EXPECT_EQ(in_layout_at(second, 0), r);
  EXPECT_EQ(in_layout_at(second, 99).parallel.pp, 4);
  // Where the process has another one than the phase says, it has it till the next layout.
  Recipe narrow = second;
  narrow.parallel.pp = 1;
  const std::vector<PhaseSpan> narrowed = phase_spans(narrow);
  const int64_t now[] = {1, 1, 1, 1, 4};
  for (size_t i = 0; i < narrowed.size(); ++i) EXPECT_EQ(narrowed[i].recipe.parallel.pp, now[i]);
  EXPECT_EQ(narrowed[0].recipe.parallel.dp, 2);
  EXPECT_EQ(parse_recipe(to_toml(r), "again.toml", {}), r);
}

TEST(RecipePhases, ALayoutThatCannotBeIsRefusedByName) {
  const std::string eight = "[[phase]]\nfrom_step = 10\nparallel.dp = 8\n";
  EXPECT_SAYS(refusal_of(eight), "parallel.dp = 8 in steps 10 to 99: expected a divisor of");
  EXPECT_EQ(refusal_of(eight + "train.global_batch_size = 32\n"), "");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_step = 10\nparallel.cp = 16\ntrain.seq_length = 32\n"),
              "must also fit to what the steps before them are evaluated with; ");
  EXPECT_SAYS(
      refusal_of("[fleet]\navailable = \"echo 4\"\nmin_ranks = 1\n[[phase]]\nfrom_step = 10\nparallel.dp = 2\n"),
      "here [[phase]] tables say what the layout is");
  EXPECT_SAYS(refusal_of("[[phase]]\nfrom_step = 10\nparallel.dp = 2\ntrain.objective = \"dpo\"\n"
                         "data.pairs = \"p.jsonl\"\n"),
              "let the one begin a step behind the other");
}

TEST(RecipePhases, TheLayoutOfAPhaseThatHasBegunMayChange) {
  const auto with = [](const std::string& layout) {
    return parse("[[phase]]\nfrom_step = 10\noptimizer.lr = 1e-4\n" + layout);
  };
  EXPECT_TRUE(phase_differences(with("parallel.dp = 2\n"), with("parallel.pp = 2\n"), 20).empty());
  EXPECT_TRUE(phase_differences(with("parallel.dp = 2\n"), with(""), 20).empty());
}

}  // namespace
}  // namespace weft
