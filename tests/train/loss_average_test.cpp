// The loss of a step as a mean over documents of each one's mean, train.loss_average = "document".
#include "token_files.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

struct Conversations {
  std::vector<std::vector<int32_t>> ids;
  std::string mask;  // of all, one after the other

  void add(uint64_t number, int64_t size, int64_t first_answer) {
    const uint64_t key = rng_key(rng_key(7, "conversations"), number);
    ids.emplace_back(size_t(size), 0);
    for (size_t j = 0; j < ids.back().size(); ++j) ids.back()[j] = int32_t(random_bits(key, j) % 64);
    for (int64_t j = 0; j < size; ++j) mask.push_back(char(j >= first_answer - 1 && j + 1 < size));
  }
  std::string write(const std::filesystem::path& prefix) const {
    testing::write_megatron_tokens(prefix, ids, "uint16");
    testing::spill(prefix.string() + ".mask", mask);
    return prefix.string();
  }
};

struct AverageOutcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;  // at the end
};

using Overrides = std::vector<std::string>;

AverageOutcome train_conversations(const std::string& data, const std::filesystem::path& run, const Overrides& more,
                                   const std::vector<Recipe::Phase>& phases = {}) {
  Overrides all{"data.train=" + data,
                "data.packing=first-fit",
                "data.attn_mask_type=block_causal",
                "optimizer.lr_warmup_iters=0",
                "train.micro_batch_size=1",
                "train.global_batch_size=1",
                "train.train_iters=1",
                "run.threads=1",
                "run.backend=ref",
                "checkpoint.keep_latest=0"};
  all.insert(all.end(), more.begin(), more.end());
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  Recipe recipe = testing::golden_recipe(folder, run, all);
  recipe.phases = phases;
  testing::train(recipe, machine_for(recipe));
  AverageOutcome out;
  for (const StepRecord& step : read_metrics(run / "metrics.jsonl").steps) out.losses.push_back(step.loss);
  const auto last = run / fmt::format("checkpoints/step-{}/model.safetensors", recipe.train.train_iters);
  const SafetensorsFile file = SafetensorsFile::open(last);
  for (const SafetensorsEntry& entry : file.tensors()) {
    std::vector<double> values(size_t(entry.num_elements()));
    WEFT_CHECK(entry.dtype == FileDType::f64, "{} is not f64", entry.name);
    std::memcpy(values.data(), file.bytes(entry).data(), file.bytes(entry).size());
    out.weights[entry.name] = std::move(values);
  }
  return out;
}

const Overrides kPlainSgd = {"optimizer.name=sgd", "optimizer.lr=0.5", "optimizer.min_lr=0.5",
                             "optimizer.weight_decay=0", "optimizer.clip_grad=0"};

// A step of SGD goes by the gradient of the loss, which of a mean is the mean of theirs.
TEST(LossAverage, ByDocumentIsTheMeanOfWhatEachConversationGivesAlone) {
  const testing::TempDir dir;
  Conversations both, first, second;
  both.add(1, 7, 4), both.add(2, 12, 2);
  first.add(1, 7, 4), second.add(2, 12, 2);
  const auto with = [](Overrides more) {
    more.insert(more.begin(), kPlainSgd.begin(), kPlainSgd.end());
    return more;
  };
  const AverageOutcome a = train_conversations(first.write(dir / "first"), dir / "a", with({"train.seq_length=12"})),
                       b = train_conversations(second.write(dir / "second"), dir / "b", with({"train.seq_length=12"}));
  const double expected = (a.losses.at(0) + b.losses.at(0)) / 2;
  const std::string data = both.write(dir / "both");
  // In one sample; each in its own, on one rank and on two.
  const std::vector<Overrides> ways = {{"train.seq_length=20"},
                                       {"train.seq_length=12", "train.global_batch_size=2"},
                                       {"train.seq_length=12", "train.global_batch_size=2", "parallel.dp=2"}};
  for (size_t i = 0; i < ways.size(); ++i) {
    Overrides alike = with(ways[i]), by_token = alike;
    alike.emplace_back("train.loss_average=document");
    const AverageOutcome all = train_conversations(data, dir / fmt::format("all{}", i), alike);
    EXPECT_NEAR(all.losses.at(0), expected, 1e-12) << i;
    for (const auto& [name, values] : all.weights)
      for (size_t j = 0; j < values.size(); ++j)
        ASSERT_NEAR(values[j], (a.weights.at(name)[j] + b.weights.at(name)[j]) / 2, 1e-12) << i << " " << name;
    if (i > 0) continue;
    const AverageOutcome tokens = train_conversations(data, dir / "tokens", by_token);
    EXPECT_NEAR(tokens.losses.at(0), (3 * a.losses.at(0) + 10 * b.losses.at(0)) / 13, 1e-12) << "weighed by token";
    EXPECT_GT(std::abs(tokens.losses.at(0) - expected), 1e-3);
  }
}

Conversations many_conversations() {
  Conversations all;
  for (uint64_t i = 0; i < 24; ++i) all.add(i, 3 + int64_t(i * 5 % 13), 2 + int64_t(i % 2));
  return all;
}

void expect_losses_of_one_rank(const std::vector<Overrides>& layouts, int steps) {
  const testing::TempDir dir;
  const std::string data = many_conversations().write(dir / "data");
  const auto losses = [&](const std::string& run, Overrides more) {
    more.insert(more.begin(), {"train.seq_length=16", "train.global_batch_size=4", "train.loss_average=document",
                               fmt::format("train.train_iters={}", steps)});
    return train_conversations(data, dir / run, more).losses;
  };
  const std::vector<double> one = losses("one", {});
  for (const Overrides& layout : layouts) {
    const std::vector<double> here = losses(layout.back(), layout);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(here.at(i), one[i], 1e-12) << layout.back();
  }
}

TEST(LossAverage, ByDocumentIsTheSameWhereverItsTokensAre) {
  expect_losses_of_one_rank({{"train.micro_batch_size=2", "parallel.dp=2", "parallel.cp=2"}}, 1);
}
TEST(LossAverageSlow, ByDocumentIsTheSameOnAnyLayout) {
  expect_losses_of_one_rank({{"train.micro_batch_size=2", "parallel.dp=2", "parallel.zero_stage=3"},
                             {"parallel.cp=4"},
                             {"train.micro_batch_size=4", "parallel.tp=2"},
                             {"parallel.dp=2", "parallel.pp=2", "parallel.pipeline_schedule=zb_h1"}},
                            3);
}

TEST(LossAverage, APhaseAveragesAsItSaysAndNotAsTheRunBeganTo) {
  const testing::TempDir dir;
  const std::string data = many_conversations().write(dir / "data");
  const auto losses = [&](const std::string& average, const std::vector<Recipe::Phase>& phases = {}) {
    const Overrides still{"train.seq_length=16", "train.global_batch_size=2", "train.train_iters=2",
                          "optimizer.lr=0",      "optimizer.min_lr=0",        "train.loss_average=" + average};
    return train_conversations(data, dir / fmt::format("{}{}", average, phases.size()), still, phases).losses;
  };
  const auto with = [](const char* average) { return Recipe::Phase{1, {{"train.loss_average", average}}, {}}; };
  const std::vector<double> token = losses("token"), document = losses("document"),
                            first_token = losses("token", {with("\"document\"")}),
                            first_document = losses("document", {with("\"token\"")});
  EXPECT_NE(token, document);
  EXPECT_EQ(first_token, (std::vector<double>{token[0], document[1]}));
  EXPECT_EQ(first_document, (std::vector<double>{document[0], token[1]}));
}

TEST(LossAverage, AResumedRunGoesOnByDocumentAndNotByToken) {
  const testing::TempDir dir;
  const std::string data = many_conversations().write(dir / "data");
  const auto steps = [&](const std::string& run, const Overrides& last) {
    Overrides all{"train.seq_length=16", "train.train_iters=2", "checkpoint.save_interval=1",
                  "train.loss_average=document"};
    all.insert(all.end(), last.begin(), last.end());
    return train_conversations(data, dir / run, all);
  };
  const AverageOutcome whole = steps("whole", {});
  steps("resumed", {});
  std::filesystem::remove_all(dir / "resumed/checkpoints/step-2");
  EXPECT_SAYS(testing::error_of([&] { steps("resumed", {"train.loss_average=token"}); }), "train.loss_average");
  const AverageOutcome resumed = steps("resumed", {});
  EXPECT_EQ(resumed.losses, whole.losses);
  EXPECT_EQ(resumed.weights, whole.weights);
}

}  // namespace
}  // namespace weft
