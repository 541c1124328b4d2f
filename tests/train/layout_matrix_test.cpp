// Every layout equals one rank: pairs of features and random combinations of all of them, in fp64.
#include "train/layout_matrix.h"

#include "train/machine_of_several.h"

namespace weft {
namespace {

using testing::Choice;
using testing::Feature;
using testing::kCuts;
using testing::kRuns;
using testing::seed_of_today;
using LayoutMatrixSlow = testing::LayoutMatrix;
// What a step leaves, the next one finds: two do, to be quick.
class LayoutMatrix : public testing::LayoutMatrix {
 protected:
  LayoutMatrix() { steps_ = 2; }
};

// A few of those below, always the same.
TEST_F(LayoutMatrix, SomeCombinationsEqualOneRank) {
  std::mt19937 gen(1);
  for (int judged = 0; judged < 6;) judged += judge(random_choice(gen));
}

// Ranks drop what one rank drops: each has heads of its own and, with a cut stream, tokens of its own, at positions of
// their own. With two key heads for four ranks, each attends to one of those that all have.
TEST_F(LayoutMatrix, TensorParallelRanksWithDropoutEqualOneRank) {
  Choice c = first_choice();
  c["model.hidden_dropout"] = "0.1";
  using Three = std::array<const char*, 3>;
  for (const auto& [model, tp, sequence_parallel] :
       {Three{"qwen2", "4", "true"}, Three{"llama-gqa", "3", "false"}, Three{"gpt2", "2", "true"},
        Three{"olmo2", "3", "true"}, Three{"olmo2", "6", "false"}, Three{"gemma2", "6", "true"}}) {
    c["model"] = model;
    c["parallel.tp"] = tp;
    c["parallel.sequence_parallel"] = sequence_parallel;
    EXPECT_TRUE(judge(c));
  }
}

// Its gradients are added, and its norm is counted once.
TEST_F(LayoutMatrix, ATiedTableOnTwoStagesIsOneWeight) {
  Choice c = first_choice();
  c["parallel.pp"] = "2";
  using Three = std::array<const char*, 3>;
  for (const auto& [model, dp, zero_stage] : {Three{"gpt2", "1", "0"}, Three{"llama-tied", "2", "2"}}) {
    c["model"] = model;
    c["parallel.dp"] = dp;
    c["parallel.zero_stage"] = zero_stage;
    EXPECT_TRUE(judge(c));
  }
}

// What an adapter adds is cut as the matrix beside it; the model's own weights are frozen on every rank.
TEST_F(LayoutMatrix, AdaptersEqualThoseOfOneRank) {
  Choice c = first_choice();
  using Eight = std::array<const char*, 8>;
  for (const auto& [model, dp, cp, tp, pp, zero_stage, recompute, schedule] :
       {Eight{"llama-gqa-lora", "2", "1", "3", "1", "1", "none", "1f1b"},
        Eight{"qwen2-lora", "1", "1", "4", "1", "0", "full", "1f1b"},
        Eight{"gpt2-lora", "2", "1", "2", "2", "2", "selective", "1f1b"},
        Eight{"phi3-lora", "2", "2", "3", "1", "3", "none", "1f1b"},
        Eight{"mixtral-lora", "2", "1", "1", "2", "3", "none", "zb_h1"},
        Eight{"qwen2-dora", "1", "1", "4", "1", "0", "full", "1f1b"},
        Eight{"gpt2-dora", "2", "1", "2", "2", "1", "selective", "zb_h1"}}) {
    c["model"] = model;
    c["parallel.dp"] = dp;
    c["parallel.cp"] = cp;
    c["parallel.tp"] = tp;
    c["parallel.pp"] = pp;
    c["parallel.zero_stage"] = zero_stage;
    c["parallel.recompute"] = recompute;
    c["parallel.pipeline_schedule"] = schedule;
    c["model.hidden_dropout"] = tp[0] == '1' ? "0" : "0.1";
    EXPECT_TRUE(judge(c));
  }
}

// Codes are cut where the matrix is, and under ZeRO 3 their bytes, wherever that falls in a block.
TEST_F(LayoutMatrix, BasesInCodesEqualThoseOfOneRank) {
  Choice c = first_choice();
  c["model"] = "llama-gqa-qlora";
  c["parallel.tp"] = "3";
  EXPECT_TRUE(judge(c));
  c["model"] = "gpt2-qlora";
  c["parallel.tp"] = "1";
  c["parallel.dp"] = "2";
  c["parallel.zero_stage"] = "3";
  EXPECT_TRUE(judge(c));
}
TEST_F(LayoutMatrixSlow, BasesInCodesEqualThoseOfOneRankOnMoreLayouts) {
  Choice c = first_choice();
  using Eight = std::array<const char*, 8>;
  for (const auto& [model, dp, cp, tp, pp, zero_stage, recompute, schedule] :
       {Eight{"llama-gqa-qlora", "2", "1", "3", "1", "1", "none", "1f1b"},
        Eight{"qwen2-qlora", "1", "1", "4", "1", "0", "full", "1f1b"},
        Eight{"gpt2-qlora", "2", "1", "2", "2", "2", "selective", "zb_h1"},
        Eight{"phi3-qlora", "2", "2", "3", "1", "3", "none", "1f1b"},
        Eight{"llama-gqa-qdora", "2", "1", "3", "2", "3", "full", "1f1b"},
        Eight{"gpt2-qdora", "2", "2", "2", "1", "1", "selective", "zb_h1"}}) {
    c["model"] = model;
    c["parallel.dp"] = dp;
    c["parallel.cp"] = cp;
    c["parallel.tp"] = tp;
    c["parallel.pp"] = pp;
    c["parallel.zero_stage"] = zero_stage;
    c["parallel.recompute"] = recompute;
    c["parallel.pipeline_schedule"] = schedule;
    EXPECT_TRUE(judge(c));
  }
}

// Latents are made by all ranks alike, or by each of its own tokens; heads are cut.
TEST_F(LayoutMatrix, LatentsAreMadeOfWhatEachRankHasOfTheStream) {
  Choice c = first_choice();
  c["model.hidden_dropout"] = "0.1";
  using Four = std::array<const char*, 4>;
  for (const auto& [model, tp, sequence_parallel, recompute] :
       {Four{"deepseek", "4", "true", "none"}, Four{"deepseek", "3", "false", "selective"},
        Four{"deepseek-lite", "2", "true", "selective"}, Four{"deepseek-lite", "3", "false", "none"}}) {
    c["model"] = model;
    c["parallel.tp"] = tp;
    c["parallel.sequence_parallel"] = sequence_parallel;
    c["parallel.recompute"] = recompute;
    EXPECT_TRUE(judge(c));
  }
}

// A down-projection is whole on every rank, so its adapter is too, and drops numbers of the stream as each rank has it.
TEST_F(LayoutMatrix, AdaptersOfLatentsEqualThoseOfOneRank) {
  Choice c = first_choice();
  set(c, {"deepseek-lora", "1", "1", "2", "true", "1", "1f1b", "0", "selective"});
  c["model.hidden_dropout"] = "0.1";
  EXPECT_TRUE(judge(c)) << testing::text_of(c);
}
TEST_F(LayoutMatrixSlow, AdaptersOfLatentsEqualThoseOfOneRankOnMoreLayouts) {
  Choice c = first_choice();
  for (const Cut& cut : {Cut{"deepseek-lora", "2", "1", "4", "false", "1", "1f1b", "1", "full"},
                         Cut{"deepseek-lora", "2", "2", "2", "true", "1", "zb_h1", "3", "none"},
                         Cut{"deepseek-lite-dora", "1", "1", "3", "true", "2", "1f1b", "0", "selective"},
                         Cut{"deepseek-lite-dora", "2", "2", "1", "true", "2", "zbv", "2", "full"},
                         Cut{"deepseek-lite-dora", "2", "1", "2", "true", "1", "zb_h1", "3", "none"},
                         Cut{"deepseek-qdora", "2", "2", "3", "true", "1", "1f1b", "3", "selective"},
                         Cut{"deepseek-qdora", "1", "1", "2", "false", "2", "1f1b", "0", "selective"}}) {
    set(c, cut);
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// What is dropped is dropped of the base's product too where that has lengths, which ranks of tp have columns of.
TEST_F(LayoutMatrix, DroppingAdaptersWithLengthsEqualThoseOfOneRank) {
  Choice c = first_choice();
  set(c, {"llama-gqa-dora", "2", "1", "2", "true", "1", "1f1b", "1", "selective"});
  c["model.hidden_dropout"] = "0.1";
  EXPECT_TRUE(judge(c)) << testing::text_of(c);
}

// The rows of a table's A are cut as the table is, and the head's B as the head; the other two are whole.
TEST_F(LayoutMatrix, AdaptersOfTheTableAndTheHeadEqualThoseOfOneRank) {
  Choice c = first_choice();
  set(c, {"llama-ends-lora", "1", "1", "3", "true", "2", "1f1b", "0", "none"});
  c["model.hidden_dropout"] = "0.1";
  EXPECT_TRUE(judge(c)) << testing::text_of(c);
}
TEST_F(LayoutMatrixSlow, AdaptersOfTheTableAndTheHeadEqualThoseOfOneRankOnMoreLayouts) {
  Choice c = first_choice();
  for (const Cut& cut : {Cut{"llama-ends-lora", "2", "1", "3", "false", "1", "1f1b", "1", "full"},
                         Cut{"llama-ends-lora", "2", "2", "2", "true", "1", "zb_h1", "3", "none"},
                         Cut{"llama-ends-lora", "3", "1", "1", "true", "2", "zbv", "2", "selective"},
                         Cut{"llama-ends-qlora", "2", "2", "2", "true", "2", "zb_h1", "3", "none"}}) {
    set(c, cut);
    c["train.numerics"] = cut.zero_stage[0] == '2' ? "invariant" : "fast";
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// Each rank has a share of the inner width of every expert, and with a cut stream routes tokens of its own.
TEST_F(LayoutMatrix, ExpertsOnTensorParallelRanksEqualOneRank) {
  Choice c = first_choice();
  c["train.micro_batch_size"] = "2";
  using Four = std::array<const char*, 4>;
  for (const auto& [model, tp, sequence_parallel, recompute] :
       {Four{"mixtral", "3", "true", "full"}, Four{"qwen2-moe", "2", "false", "selective"},
        Four{"qwen3-moe", "2", "true", "none"}, Four{"deepseek-v3-moe", "3", "true", "full"},
        Four{"gpt-oss", "3", "true", "selective"}}) {
    c["model"] = model;
    c["parallel.tp"] = tp;
    c["parallel.sequence_parallel"] = sequence_parallel;
    c["parallel.recompute"] = recompute;
    EXPECT_TRUE(judge(c));
  }
}

// Ranks of dp and cp have experts of their own, to which the others' tokens go and come back; with more data ranks
// than that, gradients of experts are summed over those that have the same.
TEST_F(LayoutMatrix, ExpertsOnRanksOfTheirOwnEqualOneRank) {
  Choice c = first_choice();
  c["model.hidden_dropout"] = "0.1";
  using Six = std::array<const char*, 6>;
  for (const auto& [model, ep, dp, tp, zero_stage, recompute] :
       {Six{"mixtral", "2", "2", "1", "0", "none"}, Six{"mixtral", "4", "4", "2", "1", "selective"},
        Six{"qwen3-moe", "2", "4", "1", "3", "none"}, Six{"deepseek-v3-moe", "2", "2", "1", "0", "full"},
        Six{"gpt-oss", "2", "2", "2", "0", "none"}}) {
    c["model"] = model;
    c["parallel.ep"] = ep;
    c["parallel.dp"] = dp;
    c["parallel.tp"] = tp;
    c["parallel.zero_stage"] = zero_stage;
    c["parallel.recompute"] = recompute;
    EXPECT_TRUE(judge(c));
  }
}

// Scores and values learn in full beside the adapter, on the last stage; with QLoRA they are no codes.
TEST_F(LayoutMatrix, AdaptersBesideScoresEqualThoseOfOneRank) {
  Choice c = first_choice();
  set(c, {"llama-gqa-qlora", "2", "1", "2", "true", "1", "1f1b", "3", "full"});
  for (const char* objective : {"reward", "ppo"}) {
    c["train.objective"] = objective;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}
TEST_F(LayoutMatrixSlow, AdaptersBesideScoresEqualThoseOfOneRankOnMoreLayouts) {
  Choice c = first_choice();
  for (const Cut& cut : {Cut{"llama-gqa-lora", "2", "1", "3", "true", "1", "1f1b", "3", "full"},
                         Cut{"gpt2-qlora", "1", "2", "1", "true", "2", "zbv", "0", "none"},
                         Cut{"llama-gqa-qlora", "2", "2", "2", "false", "1", "zb_h1", "2", "selective"},
                         Cut{"qwen2-dora", "2", "1", "2", "true", "2", "1f1b", "1", "none"},
                         Cut{"mixtral-lora", "2", "1", "2", "true", "2", "1f1b", "3", "full"}})
    for (const char* objective : {"reward", "ppo"}) {
      set(c, cut);
      c["train.objective"] = objective;
      c["parallel.ep"] = cut.model[0] == 'm' ? "2" : "1";
      EXPECT_TRUE(judge(c)) << testing::text_of(c);
    }
}

// Ranks of cp have parts of each sequence, whose load is that of all of them.
TEST_F(LayoutMatrix, ExpertsOfRanksThatShareSequencesEqualOneRank) {
  Choice c = first_choice();
  c["train.micro_batch_size"] = "2";
  using Four = std::array<const char*, 4>;
  for (const auto& [model, ep, dp, tp] :
       {Four{"mixtral", "1", "1", "1"}, Four{"mixtral", "4", "2", "2"}, Four{"qwen2-moe", "1", "2", "1"},
        Four{"qwen3-moe", "2", "1", "1"}, Four{"deepseek-v3-moe", "2", "1", "2"}, Four{"gpt-oss", "2", "1", "1"}}) {
    c["model"] = model;
    c["parallel.cp"] = "2";
    c["parallel.ep"] = ep;
    c["parallel.dp"] = dp;
    c["parallel.tp"] = tp;
    EXPECT_TRUE(judge(c));
  }
}

// Each rank has the correction of its layers' routers, and moves it by what all ranks did.
TEST_F(LayoutMatrix, CorrectionsAreMovedByTheLoadOfTheWholeBatch) {
  Choice c = first_choice();
  c["model"] = "deepseek-v3-moe";
  c["parallel.dp"] = "2";
  c["parallel.pp"] = "2";
  for (const char* stage : {"0", "3"}) {
    c["parallel.zero_stage"] = stage;
    EXPECT_TRUE(judge(c));
  }
}

// The module lies on the last stage and uses the embedding of the first; it looks a token further than a rank of cp
// has them in a row.
TEST_F(LayoutMatrix, MultiTokenPredictionEqualsOneRank) {
  Choice c = first_choice();
  c["data.mask"] = "some";
  using Six = std::array<const char*, 6>;
  for (const auto& [model, dp, cp, tp, pp, zero_stage] :
       {Six{"deepseek-mtp", "1", "1", "1", "2", "0"}, Six{"deepseek-mtp", "2", "1", "2", "1", "3"},
        Six{"deepseek-mtp", "1", "3", "1", "2", "2"}, Six{"deepseek-v3-mtp-moe", "2", "2", "1", "1", "3"},
        Six{"deepseek-v3-mtp-moe", "2", "1", "2", "2", "1"}}) {
    c["model"] = model;
    c["parallel.dp"] = dp;
    c["parallel.cp"] = cp;
    c["parallel.tp"] = tp;
    c["parallel.pp"] = pp;
    c["parallel.zero_stage"] = zero_stage;
    c["parallel.ep"] = model == std::string("deepseek-v3-mtp-moe") ? "2" : "1";
    c["parallel.recompute"] = zero_stage == std::string("3") ? "selective" : "none";
    c["train.numerics"] =
        pp == std::string("2") && cp == std::string("1") && tp == std::string("1") ? "invariant" : "fast";
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
    c["model.hidden_dropout"] = c["model.hidden_dropout"] == "0" ? "0.1" : "0";
  }
}

// The sequences of a pair are cut over cp, their stages score them, and the reference is cut as the model is.
TEST_F(LayoutMatrix, PreferencesAndRewardsEqualOneRank) {
  Choice c = first_choice();
  using Nine = std::array<const char*, 9>;
  for (const auto& [objective, model, dp, cp, tp, pp, schedule, zero_stage, recompute] :
       {Nine{"dpo", "llama-gqa", "2", "1", "1", "1", "1f1b", "3", "none"},
        Nine{"kto", "llama-tied", "1", "1", "1", "2", "zbv", "0", "selective"},
        Nine{"kto", "gpt2", "1", "3", "1", "1", "1f1b", "1", "none"},
        Nine{"grpo", "qwen3", "2", "2", "2", "1", "1f1b", "2", "full"},
        Nine{"grpo", "mixtral", "2", "1", "1", "2", "zb_h1", "1", "none"},
        Nine{"dpo", "deepseek-v3-moe", "2", "2", "1", "1", "1f1b", "0", "selective"}}) {
    c["model"] = model;
    c["parallel.dp"] = dp;
    c["parallel.cp"] = cp;
    c["parallel.tp"] = tp;
    c["parallel.pp"] = pp;
    c["parallel.pipeline_schedule"] = schedule;
    c["parallel.zero_stage"] = zero_stage;
    c["parallel.recompute"] = recompute;
    c["parallel.ep"] = std::string(model).ends_with("moe") || model == std::string("mixtral") ? "2" : "1";
    c["train.numerics"] = cp == std::string("1") && c["parallel.ep"] == "1" ? "invariant" : "fast";
    c["train.micro_batch_size"] = c["train.micro_batch_size"] == "1" ? "2" : "1";
    c["train.objective"] = objective;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// A teacher of another size is cut as the student is; its head lies on the last stage, and under ZeRO is fetched for
// the student's loss; distributions of cut vocabularies are compared without gathering them.
TEST_F(LayoutMatrix, StudentsEqualThoseOfOneRank) {
  Choice c = first_choice();
  c["train.objective"] = "distill";
  for (const Cut& cut : {Cut{"llama-tied", "2", "1", "2", "true", "1", "1f1b", "3", "full"},
                         Cut{"gpt2", "2", "1", "3", "false", "2", "zbv", "1", "selective"},
                         Cut{"mixtral", "2", "2", "1", "true", "2", "zb_h1", "3", "none"},
                         Cut{"llama-gqa-lora", "1", "2", "2", "true", "1", "1f1b", "0", "none"}}) {
    const std::string model = cut.model;
    set(c, cut);
    c["parallel.ep"] = model == "mixtral" ? "2" : "1";
    c["train.numerics"] = model == "gpt2" ? "invariant" : "fast";
    c["data.mask"] = model == "gpt2" ? "some" : "none";
    c["model.hidden_dropout"] = cut.tp[0] == '1' ? "0" : "0.1";
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// A frozen model's weights are divided among data ranks by themselves: under a student of any ZeRO stage, by groups,
// not at all where the student's are; and its experts dealt out where the student has none. So is a reference's.
TEST_F(LayoutMatrix, FrozenModelsWithShardsAndExpertsOfTheirOwnEqualThoseOfOneRank) {
  Choice c = first_choice();
  struct Frozen {
    Cut cut;
    const char *objective, *shards, *ep;
  };
  for (const auto& [cut, objective, shards, ep] :
       {Frozen{{"llama-tied", "2", "2", "1", "true", "2", "zb_h1", "0", "none"}, "distill", "2", "0"},
        Frozen{{"qwen2", "4", "1", "1", "true", "1", "1f1b", "1", "none"}, "distill", "4", "2"},
        Frozen{{"gpt2", "2", "1", "2", "true", "1", "1f1b", "3", "none"}, "distill", "1", "0"},
        Frozen{{"qwen3", "2", "1", "1", "true", "1", "1f1b", "2", "none"}, "dpo", "2", "0"}}) {
    set(c, cut);
    c["train.objective"] = objective;
    c["parallel.frozen_shard_size"] = shards;
    c["parallel.frozen_ep"] = ep;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}
TEST_F(LayoutMatrixSlow, FrozenModelsWithShardsAndExpertsOfTheirOwnEqualThoseOfOneRankOnRandomLayouts) {
  std::mt19937 gen(seed_of_today());
  for (int judged = 0; judged < 12;) {
    Choice c = random_choice(gen);
    c["train.objective"] = std::array{"distill", "dpo", "kto", "grpo"}[gen() % 4];
    c["parallel.frozen_shard_size"] = fmt::format("{}", gen() % 7);
    c["parallel.frozen_ep"] = fmt::format("{}", gen() % 4);
    judged += judge(c);
  }
}

// What is stored comes with each micro-batch, and each rank of cp has that of its tokens.
TEST_F(LayoutMatrix, StudentsOfStoredLogitsEqualThoseOfOneRank) {
  Choice c = first_choice();
  c["train.objective"] = "distill";
  c["teacher"] = "stored";
  for (const Cut& cut : {Cut{"llama-tied", "2", "2", "2", "true", "1", "1f1b", "3", "full"},
                         Cut{"gpt2", "2", "1", "3", "false", "2", "zbv", "1", "selective"}}) {
    const std::string model = cut.model;
    set(c, cut);
    c["train.numerics"] = model == "gpt2" ? "invariant" : "fast";
    c["train.micro_batch_size"] = model == "gpt2" ? "1" : "2";
    c["data.mask"] = model == "gpt2" ? "some" : "none";
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// Each rank of a cut stream scores its tokens with a whole weight, on the last stage, beside the head or in its place.
TEST_F(LayoutMatrix, ScoresEqualOneRank) {
  Choice c = first_choice();
  for (const Cut& cut : {Cut{"llama-tied", "2", "2", "2", "true", "1", "1f1b", "3", "full"},
                         Cut{"gpt2", "2", "1", "2", "false", "2", "zbv", "1", "selective"},
                         Cut{"gemma2", "1", "3", "1", "true", "2", "zb_h1", "0", "none"}}) {
    const std::string model = cut.model;
    set(c, cut);
    c["train.numerics"] = model == "gpt2" ? "invariant" : "fast";
    for (const std::string objective : {"reward", "ppo"}) {
      if (model == (objective == "ppo" ? "gpt2" : "gemma2")) continue;  // to be quick
      c["train.objective"] = objective;
      EXPECT_TRUE(judge(c)) << testing::text_of(c);
    }
  }
}

// Code blocks are of whole matrices: of each expert, of q apart from k, however ep, tp and ZeRO cut them.
TEST_F(LayoutMatrixSlow, MomentsIn8BitsHaveTheCodesOfOneRank) {
  Choice c = first_choice();
  c["optimizer.name"] = "adamw8bit";
  using Five = std::array<const char*, 5>;
  for (const auto& [model, dp, tp, ep, zero_stage] :
       {Five{"mixtral", "2", "2", "2", "2"}, Five{"gpt-oss", "4", "1", "2", "3"},
        Five{"deepseek-lite", "2", "3", "1", "1"}, Five{"gpt2", "3", "2", "1", "3"},
        Five{"gemma3", "2", "3", "1", "2"}}) {
    c["model"] = model;
    c["parallel.dp"] = dp;
    c["parallel.tp"] = tp;
    c["parallel.ep"] = ep;
    c["parallel.zero_stage"] = zero_stage;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// Stages choose for themselves, of each kind of block; ranks of tp, cp, dp and ep come to the same.
TEST_F(LayoutMatrix, BlocksChosenForABudgetEqualOneRank) {
  Choice c = first_choice();
  c["model.hidden_dropout"] = "0.1";
  for (const auto& [cut, ep] :
       {std::pair{Cut{"gemma2", "1", "1", "2", "true", "2", "interleaved_1f1b", "0", "budget"}, "1"},
        std::pair{Cut{"qwen2-moe", "2", "1", "1", "true", "2", "zb_h1", "3", "budget"}, "2"},
        std::pair{Cut{"deepseek-lora", "1", "2", "2", "true", "1", "1f1b", "0", "budget"}, "1"}}) {
    set(c, cut);
    c["parallel.ep"] = ep;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}
TEST_F(LayoutMatrixSlow, BlocksChosenForABudgetEqualOneRankOnMoreLayouts) {
  Choice c = first_choice();
  for (const auto& [cut, ep] :
       {std::pair{Cut{"llama-tied", "2", "1", "3", "false", "1", "1f1b", "1", "budget"}, "1"},
        std::pair{Cut{"mistral", "1", "2", "1", "true", "3", "1f1b", "0", "budget"}, "1"},
        std::pair{Cut{"deepseek-v3-mtp-moe", "2", "1", "2", "true", "2", "zbv", "1", "budget"}, "2"},
        std::pair{Cut{"gpt-oss", "4", "1", "1", "true", "2", "zb_h1", "3", "budget"}, "4"},
        std::pair{Cut{"mixtral", "2", "2", "1", "true", "1", "gpipe", "2", "budget"}, "4"},
        std::pair{Cut{"gpt2-qlora", "2", "1", "2", "true", "2", "1f1b", "3", "budget"}, "1"},
        std::pair{Cut{"qwen3", "2", "3", "1", "true", "2", "interleaved_1f1b", "3", "budget"}, "1"}}) {
    set(c, cut);
    c["parallel.ep"] = ep;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// Ranks that share sequences drop what one rank drops; windows end in another rank's tokens.
TEST_F(LayoutMatrix, ContextParallelRanksWithDropoutEqualOneRank) {
  Choice c = first_choice();
  c["model.hidden_dropout"] = "0.1";
  using Three = std::array<const char*, 3>;
  for (const auto& [model, cp, how] :
       {Three{"mistral", "2", "all_gather"}, Three{"qwen3", "3", "a2a"}, Three{"gpt2", "2", "a2a"},
        Three{"mistral", "3", "p2p"}, Three{"gpt2", "2", "p2p"}, Three{"deepseek", "2", "a2a"},
        Three{"deepseek", "2", "p2p"}, Three{"gpt2", "6", "a2a+p2p"}}) {
    c["model"] = model;
    c["parallel.cp"] = cp;
    c["parallel.cp_comm_type"] = how;
    EXPECT_TRUE(judge(c));
  }
}

// As on a GPU: the host must wait before it looks.
TEST_F(LayoutMatrix, SomeCombinationsEqualOneRankOnADeviceThatIsLate) {
  std::mt19937 gen(2);
  for (int judged = 0; judged < 2;) judged += judge_on(testing::late, random_choice(gen));
}

// What those above leave out, to be quick.
TEST_F(LayoutMatrixSlow, MoreModelsOnTheseLayoutsEqualOneRank) {
  const char *kModel = "model", *kDp = "parallel.dp", *kCp = "parallel.cp", *kTp = "parallel.tp", *kEp = "parallel.ep";
  const char *kStream = "parallel.sequence_parallel", *kZero = "parallel.zero_stage", *kAgain = "parallel.recompute";
  const char *kHow = "parallel.cp_comm_type", *kDropout = "model.hidden_dropout", *kMicro = "train.micro_batch_size";
  for (const Choice& change : {
           Choice{{kModel, "gpt-oss-lora"},
                  {kDp, "2"},
                  {kTp, "3"},
                  {kZero, "3"},
                  {kDropout, "0.1"},
                  {"parallel.pipeline_schedule", "zb_h1"}},
           Choice{{kModel, "phi3-dora"}, {kDp, "2"}, {kCp, "2"}, {kTp, "3"}, {kZero, "3"}, {kDropout, "0.1"}},
           Choice{{kModel, "deepseek-v2-moe"}, {kTp, "2"}, {kAgain, "selective"}, {kMicro, "2"}},
           Choice{{kModel, "deepseek-v3-moe"}, {kTp, "2"}, {kStream, "false"}, {kMicro, "2"}},
           Choice{{kModel, "gpt-oss"}, {kTp, "2"}, {kStream, "false"}, {kMicro, "2"}},
           Choice{{kModel, "qwen2-moe"}, {kEp, "6"}, {kDp, "6"}, {kAgain, "full"}, {kDropout, "0.1"}},
           Choice{
               {kModel, "qwen3-moe"}, {kEp, "3"}, {kDp, "6"}, {kZero, "2"}, {kAgain, "selective"}, {kDropout, "0.1"}},
           Choice{{kModel, "gpt-oss"}, {kEp, "4"}, {kDp, "4"}, {kZero, "3"}, {kAgain, "selective"}, {kDropout, "0.1"}},
           Choice{{kModel, "qwen2"}, {kCp, "3"}, {kHow, "all_gather"}, {kDropout, "0.1"}},
           Choice{{kModel, "deepseek"}, {kCp, "2"}, {kHow, "all_gather"}, {kDropout, "0.1"}},
           Choice{{kModel, "gemma2"}, {kCp, "2"}, {kHow, "p2p"}, {kDropout, "0.1"}},
           Choice{{kModel, "deepseek"}, {kCp, "6"}, {kHow, "a2a+p2p"}, {kDropout, "0.1"}},
       }) {
    Choice c = first_choice();
    for (const auto& [key, value] : change) c[key] = value;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

TEST_F(LayoutMatrixSlow, EveryPairOfFeaturesEqualsOneRank) {
  std::mt19937 gen(seed_of_today());
  using Value = std::pair<std::string, std::string>;
  std::set<std::pair<Value, Value>> seen;
  const auto mark = [&](const Choice& c) {
    for (const auto& a : c)
      for (const auto& b : c) seen.insert({a, b});
  };
  std::vector<Feature> features = kRuns;
  features.insert(features.end(), kCuts.begin(), kCuts.end());
  std::vector<Choice> judged;
  // Another cut of a run that was judged, where one has these values: the one rank beside it has been trained already.
  const auto run_as_before = [&](Choice& c, const Value& a, const Value& b) {
    std::vector<const Choice*> fit;
    for (const Choice& before : judged) {
      const auto has = [&](const Value& v) {
        return std::none_of(kRuns.begin(), kRuns.end(), [&](const Feature& f) { return f.key == v.first; }) ||
               before.at(v.first) == v.second;
      };
      if (has(a) && has(b)) fit.push_back(&before);
    }
    if (fit.empty()) return;
    const Choice& before = *fit[gen() % fit.size()];
    for (const Feature& f : kRuns) c[f.key] = before.at(f.key);
  };
  for (const Feature& f : features) {
    for (const Feature& g : features) {
      for (const std::string& x : f.values) {
        for (const std::string& y : g.values) {
          if (f.key >= g.key || seen.count({{f.key, x}, {g.key, y}})) continue;
          for (int attempt = 0; attempt < 30; ++attempt) {
            Choice c = random_choice(gen);
            if (attempt < 10) run_as_before(c, {f.key, x}, {g.key, y});
            c[f.key] = x, c[g.key] = y;
            c = testing::heeded(c);
            if (c[f.key] != x || c[g.key] != y || !judge(c)) continue;
            judged.push_back(c);
            mark(c);
            break;
          }
        }
      }
    }
  }
  std::cout << judged.size() << " layouts beside " << references_.size() << " runs of one rank\n";
  EXPECT_GE(judged.size(), 20u);
}

TEST_F(LayoutMatrixSlow, EveryPrecisionGivesTheLossesOfOneRank) { judge_precisions("cpu", 8, seed_of_today()); }

TEST_F(LayoutMatrixSlow, RandomCombinationsEqualOneRank) {
  std::mt19937 gen(seed_of_today());
  for (int judged = 0; judged < 40;) judged += judge(random_choice(gen));
}

TEST_F(LayoutMatrixSlow, RandomCombinationsEqualOneRankOnADeviceThatIsLate) {
  std::mt19937 gen(seed_of_today());
  for (int judged = 0; judged < 12;) judged += judge_on(testing::late, random_choice(gen));
}

TEST_F(LayoutMatrixSlow, RandomCombinationsEqualOneRankOnADeviceWithMemoryOfItsOwn) {
  std::mt19937 gen(seed_of_today());
  for (int judged = 0; judged < 5;) judged += judge_on(testing::apart, random_choice(gen));
}

TEST_F(LayoutMatrixSlow, RandomCombinationsEqualOneRankOnSeveralDevices) {
  std::mt19937 gen(seed_of_today());
  const auto several = [](const Machine& machine) {
    return testing::on_several(machine, std::make_shared<testing::SeveralDevices>(3, testing::the_next));
  };
  for (int judged = 0; judged < 5;) judged += judge_on(several, random_choice(gen));
}

}  // namespace
}  // namespace weft
