#include "weft/recipe/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "support.h"
#include "weft/base/error.h"
#include "weft/recipe/recipe_hints.h"
#include "weft/recipe/recipe_keys.h"

namespace weft {
namespace {

const std::string kSmall = "[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n";

std::string error_of(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return testing::error_of<Error>([&] { check_supported(parse_recipe(toml, "r.toml", overrides)); });
}
Recipe with(const std::vector<std::string>& overrides) { return parse_recipe(kSmall, "r.toml", overrides); }

// Another value than the default that the key allows.
struct OtherValue {
  const Allowed& allowed;
  std::string operator()(const std::string& now) const {
    for (const auto& choice : allowed.choices)
      if (choice != now) return "\"" + choice + "\"";
    return "\"other \\\"\\\\\\u0001\\u007F\\t\xc3\xa9\"";
  }
  std::string operator()(const ChoiceField& now) const {
    return "\"" + std::string(now.names[now.get() == 0 ? 1 : 0]) + "\"";
  }
  std::string operator()(int64_t now) const { return std::to_string(now == 2 ? 3 : 2); }
  std::string operator()(double now) const {
    return now == 0.000123456789012345678 ? "0.5" : "0.000123456789012345678";
  }
  std::string operator()(bool now) const { return now ? "false" : "true"; }
  std::string operator()(const std::vector<std::string>&) const {
    return allowed.choices.empty() ? "[\"a\", \"b c\"]" : "[\"" + allowed.choices.back() + "\"]";
  }
  std::string operator()(const std::vector<double>&) const { return "[0.25, 3]"; }
  std::string operator()(const std::vector<int64_t>&) const { return "[2]"; }
  std::string operator()(const std::optional<double>&) const { return allowed.min > 0 ? "1.5" : "1e-9"; }
};

// Every key with a value that is not its default, each alone: fields cannot be mixed up without being seen.
TEST(Recipe, EveryKeyIsReadIntoItsOwnFieldAndPrintedBack) {
  Recipe fallback;
  for (const RecipeKey& key : recipe_keys(fallback)) {
    const OtherValue other{key.allowed};
    const std::string value = std::visit(
        [&](const auto& field) {
          if constexpr (std::is_pointer_v<std::decay_t<decltype(field)>>)
            return other(*field);
          else
            return other(field);
        },
        key.field);
    std::vector<std::string> given = {key.name + "=" + value};
    if (key.name == "data.weights") given.push_back("data.train=[\"a\", \"b\"]");
    if (key.name == "train.initial_loss_scale") given.push_back("train.min_loss_scale=1e-5");
    if (key.name == "train.global_batch_size") given.push_back("train.micro_batch_size=1");
    if (key.name == "train.eval_interval") given.push_back("data.valid=v");
    if (key.name.starts_with("train.sample_")) given = {"train.sample_interval=2", "train.sample_prompts=[\"a\"]"};
    if (key.section() == "eval" && key.name != "eval.tasks") given.push_back("eval.tasks=piqa=p.jsonl");
    if (key.name == "train.objective") given.push_back("data.pairs=p");
    if (key.name == "train.epochs") given.push_back("train.train_iters=0");
    if (key.name == "checkpoint.keep_best") given.insert(given.end(), {"data.valid=v", "train.eval_interval=2"});
    const bool of_data_ranks = key.name == "parallel.zero_shard_size" || key.name.starts_with("parallel.frozen_");
    if (of_data_ranks || key.name == "parallel.ep") given.push_back("parallel.dp=2");
    if (key.name == "parallel.virtual_pipeline_parallel_size") given.push_back("parallel.pipeline_schedule=zbv");
    if (key.name == "train.rampup_batch_size") given = {"train.rampup_batch_size=[4, 4, 9]"};
    if (key.name == "parallel.order") given = {"parallel.order=pp-dp-ep-cp-tp"};
    if (key.name == "parallel.cp_a2a_size")
      given = {"parallel.cp_a2a_size=2", "parallel.cp_comm_type=a2a+p2p", "parallel.cp=4"};
    if (key.name == "parallel.micro_batches") given = {"parallel.micro_batches=[12, 4]", "parallel.dp=2"};
    if (key.name == "parallel.memory_budget") given = {"parallel.memory_budget=2MiB", "parallel.recompute=budget"};
    if (key.name == "run.backend") given = {"run.backend=cuda"};
    if (key.name == "fleet.min_ranks" || key.name == "fleet.max_ranks" || key.name == "fleet.cluster")
      given.push_back("fleet.available=\"echo 1\"");
    if (key.name == "fleet.hosts") given.push_back("run.ranks=mpi");
    Recipe r = with(given), small = with({});
    EXPECT_EQ(parse_recipe(to_toml(r), "again.toml", {}), r) << given[0];
    const auto fields = recipe_keys(r), others = recipe_keys(small);
    for (size_t i = 0; i < fields.size(); ++i) {
      const bool meant = std::any_of(given.begin(), given.end(),
                                     [&](const std::string& g) { return g.starts_with(fields[i].name + "="); });
      EXPECT_EQ(value_of(fields[i]) != value_of(others[i]), meant) << given[0] << " and " << fields[i].name;
    }
  }
}

TEST(Recipe, NumbersReadBackToTheLastBit) {
  for (double v : {3e-4, 0.1 + 0.2, 1e-300, 5e-324, 1e22, 123456789.125, std::numeric_limits<double>::max()}) {
    Recipe r = with({});
    r.optimizer.lr = v;
    EXPECT_EQ(parse_recipe(to_toml(r), "again.toml", {}).optimizer.lr, v);
  }
  const Recipe r = with({"train.seed=9223372036854775807"});
  EXPECT_EQ(parse_recipe(to_toml(r), "again.toml", {}).train.seed, std::numeric_limits<int64_t>::max());
}

TEST(Recipe, TheRecipesOfTheRepositoryAreRead) {
  const std::filesystem::path root = testing::kSourceDir;
  int found = 0;
  for (const char* folder : {"examples", "bench"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      if (entry.path().extension() != ".toml") continue;
      EXPECT_NO_THROW(check_supported(parse_recipe_file(entry.path().string(), {}))) << entry.path();
      ++found;
    }
  }
  EXPECT_GE(found, 2);
  for (const char* page : {"README.md", "docs/formats/recipe.md"}) {
    const std::string text = testing::slurp(root / page), fence = "```toml\n";
    const size_t begin = text.find(fence);
    ASSERT_NE(begin, std::string::npos) << page;
    const std::string toml = text.substr(begin + fence.size(), text.find("```\n", begin + 1) - begin - fence.size());
    EXPECT_NO_THROW(check_supported(parse_recipe(toml, page, {})));
  }
}

// --- overrides ---

TEST(Recipe, OverridesAreTomlOrPlainText) {
  const Recipe r = with({"data.train=x.bin", "run.backend=ref", "optimizer.lr=1", "data.shuffle=false",
                         "run.dir=runs/a=b c", "model.path=\"quoted\"", "data.weights=2"});
  EXPECT_EQ(r.data.train, std::vector<std::string>{"x.bin"});
  EXPECT_EQ(r.data.weights, std::vector<double>{2});
  EXPECT_EQ(r.run.dir, "runs/a=b c");
  EXPECT_EQ(r.model.path, "quoted");
  EXPECT_EQ(r.optimizer.lr, 1);
  EXPECT_FALSE(r.data.shuffle);
  EXPECT_EQ(with({"data.train=[\"x.bin\", \"y.bin\"]"}).data.train, (std::vector<std::string>{"x.bin", "y.bin"}));
  EXPECT_EQ(with({"optimizer.lr=0.5", "optimizer.lr=0.25"}).optimizer.lr, 0.25) << "the last one counts";
}

TEST(Recipe, AListOfTextsThatLacksQuotesIsRefusedInTheseWords) {
  EXPECT_SAYS(error_of(kSmall, {"data.train=[nothere.txt]"}),
              "command line: data.train=[nothere.txt]: expected quotes around each text of a list, and single ones "
              "around it all, as in 'data.train=[\"nothere.txt\"]'");
  EXPECT_SAYS(error_of(kSmall, {"data.valid=[a.txt, \"b.txt]"}), "'data.valid=[\"a.txt\", \"b.txt\"]'");
  EXPECT_EQ(with({"data.train='[odd].txt'"}).data.train, std::vector<std::string>{"[odd].txt"});
  EXPECT_EQ(with({"data.train=[odd].txt"}).data.train, std::vector<std::string>{"[odd].txt"});
  EXPECT_EQ(with({"run.dir=[odd]"}).run.dir, "[odd]");
}

TEST(Recipe, WhereTextIsWantedAnyPlainWordIsText) {
  const Recipe r = with({"run.dir=2024", "model.path=true", "data.train=2024-01-01", "data.text_key=1.5"});
  EXPECT_EQ(r.run.dir, "2024");
  EXPECT_EQ(r.model.path, "true");
  EXPECT_EQ(r.data.train, std::vector<std::string>{"2024-01-01"});
  EXPECT_EQ(r.data.text_key, "1.5");
}

TEST(Recipe, NothingBehindTheEqualsSignIsNoText) {
  EXPECT_EQ(with({"data.loss_mask="}).data.loss_mask, "");
  EXPECT_TRUE(with({"data.valid=v.bin", "data.valid="}).data.valid.empty());
  EXPECT_SAYS(error_of(kSmall, {"train.seed="}), "command line: train.seed = \"\": expected a whole number");
}

TEST(Recipe, TheReferenceBackendComputesInFp64) {
  EXPECT_EQ(with({"run.backend=ref"}).train.precision, PrecisionChoice::f64);
  EXPECT_EQ(with({"run.backend=ref", "train.precision=bf16"}).train.precision, PrecisionChoice::f64);
  EXPECT_EQ(error_of(kSmall, {"run.backend=ref"}), "");
}

// --- what is wrong, where, and what would be right ---

TEST(Recipe, AnUnknownKeyNamesTheNearest) {
  const std::vector<std::array<std::string, 2>> cases = {
      {"train.seq_lenght", "train.seq_length"},
      {"train.lr", "optimizer.lr"},
      {"trian.seed", "train.seed"},
      {"lr", "optimizer.lr"},
      {"optimizer.beta1", "optimizer.adam_beta1"},
      {"optimizer.warmup", "optimizer.lr_warmup_iters"},
      {"parallel.micro_batch", "parallel.micro_batches"},
      {"models.path", "model.path"},
      {"train.iters", "train.train_iters or train.eval_iters"},
      {"run.backends", "run.backend"},
      {"checkpoints.keep_latest", "checkpoint.keep_latest"},
      {"train.batch_size", "train.global_batch_size or train.micro_batch_size"},
  };
  for (const auto& [unknown, nearest] : cases) {
    EXPECT_SAYS(error_of(kSmall, {unknown + "=1"}),
                fmt::format("command line: no recipe key {} (= 1); did you mean {}", unknown, nearest));
  }
  EXPECT_SAYS(error_of(kSmall, {"train.zzzzzz=1"}), "no recipe key train.zzzzzz (= 1); `weft train --help-recipe`");
}

TEST(Recipe, ErrorsNameFileLineAndColumn) {
  EXPECT_SAYS(error_of(kSmall + "[train]\n  seq_lenght = 8\n"),
              "r.toml:6:3: no recipe key train.seq_lenght (= 8); did you mean train.seq_length?");
  EXPECT_SAYS(error_of(kSmall + "[train]\nseed = 1.5\n"), "r.toml:6:8: train.seed = 1.5: expected a whole number");
  EXPECT_SAYS(error_of(kSmall + "[train]\nglobal_batch_size = 6\n"),
              "r.toml:6:21: train.global_batch_size = 6: expected a multiple of train.micro_batch_size x parallel.dp");
  EXPECT_SAYS(error_of("[train]\nseed = \n"), "r.toml:2:");
  EXPECT_SAYS(error_of("[train]\nseed = 1\nseed = 2\n"), "r.toml:3:");
}

TEST(Recipe, AnUnknownSectionNamesTheNearest) {
  EXPECT_SAYS(error_of(kSmall + "[trian]\n"), "r.toml:5:2: no recipe key trian (= {}); did you mean [train]?");
  EXPECT_SAYS(error_of("train = 3\n" + kSmall), "r.toml:1:1: train = 3: expected a section, [train]");
  EXPECT_SAYS(error_of(kSmall + "[[train]]\nseed = 1\n"), "train = [ { seed = 1 } ]: expected a section, [train]");
  EXPECT_SAYS(error_of(kSmall + "[[train]]\nseed = [0.05, -2, \"a\", [], {}]\n"),
              "train = [ { seed = [ 0.05, -2, \"a\", [], {} ] } ]: expected");
  EXPECT_SAYS(error_of(kSmall + "[train.deeper]\nseed = 1\n"), "no recipe key train.deeper");
  EXPECT_SAYS(error_of("seed = 3\n" + kSmall), "no recipe key seed (= 3); did you mean train.seed?");
}

TEST(Recipe, EveryProblemIsReportedAtOnceInTheOrderOfTheFile) {
  const std::string e =
      error_of("[train]\nseed = \"x\"\nmicro_batch_size = 0\n[optimizer]\nadam_beta1 = 1.0\nlr = -1\n", {"run.x=1"});
  size_t at = 0;
  for (const char* part : {"7 problems", "r.toml:2:8: train.seed = \"x\"", "r.toml:3:20: train.micro_batch_size = 0",
                           "r.toml:5:14: optimizer.adam_beta1 = 1.0: expected a number from 0 to below 1",
                           "r.toml:6:6: optimizer.lr = -1: expected a number of at least 0"}) {
    const size_t found = e.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\n" << e;
    at = found;
  }
  for (const char* part : {"command line: no recipe key run.x", "r.toml: model.path is missing",
                           "as in [model] path =", "r.toml: data.train is missing"})
    EXPECT_SAYS(e, part);
}

TEST(Recipe, WhatIsToldAlreadyIsNotToldAgain) {
  const std::string e = error_of(kSmall, {"train.micro_batch_size=many", "model.path=[1]"});
  EXPECT_EQ(e.find("multiple"), std::string::npos) << e;
  EXPECT_EQ(e.find("missing"), std::string::npos) << e;
}

TEST(Recipe, ValuesOutOfRangeAreRefused) {
  for (const char* o : {"train.seq_length=0",
                        "train.micro_batch_size=-1",
                        "train.train_iters=0",
                        "train.log_interval=0",
                        "train.global_batch_size=2147483648",
                        "train.seed=-1",
                        "parallel.dp=0",
                        "parallel.zero_stage=4",
                        "optimizer.lr=-1e-9",
                        "optimizer.lr=nan",
                        "optimizer.lr=inf",
                        "optimizer.adam_beta2=1",
                        "optimizer.adam_eps=0",
                        "optimizer.momentum=1.5",
                        "optimizer.weight_decay=-0.1",
                        "optimizer.clip_grad=-1",
                        "adapter.alpha=0",
                        "adapter.alpha=1e30",
                        "model.hidden_dropout=1.0",
                        "model.attention_dropout=-0.1",
                        "data.valid_fraction=1.0",
                        "data.weights=[-1]",
                        "run.threads=5000"}) {
    const std::string text = o, key = text.substr(0, text.find('='));
    EXPECT_SAYS(error_of(kSmall, {o}), "command line: " + key + " = ");
    EXPECT_SAYS(error_of(kSmall, {o}), ": expected a ");
  }
  EXPECT_SAYS(error_of(kSmall, {"train.seq_length=3000000000"}), "of at least 1 and at most 2147483647");
  EXPECT_EQ(error_of(kSmall, {"optimizer.lr=0", "optimizer.adam_beta1=0", "model.hidden_dropout=0"}), "");
}

TEST(Recipe, ValuesOfAnotherTypeAreRefused) {
  for (const char* o : {"train.train_iters=1.0", "train.train_iters=true", "train.seed=\"1\"", "optimizer.lr=\"1\"",
                        "data.shuffle=1", "data.shuffle=yes", "data.train=[1]", "data.train=[\"\"]", "data.weights=x",
                        "model.path=[\"m\"]", "run.dir=\"a\\u0000b\"", "train.seed=[1]", "train.seed={a=1}"})
    EXPECT_SAYS(error_of(kSmall, {o}), "expected");
  EXPECT_SAYS(error_of(kSmall, {"run.dir=\xff"}), "expected text");
  EXPECT_SAYS(error_of(kSmall, {"train.precision=fp32"}),
              "expected one of \"f32\", \"bf16\", \"fp16\", \"f64\", \"auto\"; did you mean \"f32\"?");
}

TEST(Recipe, NamesOfOtherProgramsGetAHintAndAreNotTaken) {
  for (const auto& [given, says] : std::initializer_list<std::pair<const char*, const char*>>{
           {"optimizer.learning_rate=1e-3",
            "no recipe key optimizer.learning_rate (= 0.001); did you mean optimizer.lr?"},
           {"learning_rate=1e-3", "did you mean optimizer.lr?"},
           {"--learning-rate=1e-3", "did you mean optimizer.lr?"},
           {"train.max_steps=5", "did you mean train.train_iters?"},
           {"num_train_epochs=3", "did you mean train.epochs?"},
           {"train.gradient_accumulation_steps=4", "did you mean train.global_batch_size? a step of so many samples"},
           {"tensor_model_parallel_size=2", "did you mean parallel.tp?"},
           {"train.bf16=true", "did you mean train.precision? it is one of"},
           {"output_dir=x", "did you mean run.dir?"},
           {"training.steps=5", "did you mean train.train_iters?"},
           {"activation_checkpoint.mode=full", "did you mean parallel.recompute?"},
           {"tokenizer_model=x", "did you mean data.tokenizer?"},
           {"optimizer=adam",
            "optimizer = \"adam\": expected a section, [optimizer], as in [optimizer] name = \"adamw\": "
            "with optimizer.weight_decay = 0 it is Adam"},
           {"model=dir", "expected a section, [model], as in [model] path = \"dir\""},
           {"optimizer.name=Adam", "did you mean \"adamw\"? with optimizer.weight_decay = 0"},
           {"optimizer.name=adamw_torch", "did you mean \"adamw\"?"},
           {"optimizer.name=paged_adamw_8bit", "did you mean \"adamw8bit\"? matrices of optimizer.min_8bit_size"},
           {"train.precision=bfloat16", "did you mean \"bf16\"?"},
           {"optimizer.lr_decay_style=constant_with_warmup", "did you mean \"constant\"? optimizer.lr_warmup_iters"}})
    EXPECT_SAYS(error_of(kSmall, {given}), says);
  EXPECT_SAYS(error_of("optimizer = \"adam\"\n", {}), "as in [optimizer] name = \"adamw\"");
}

TEST(Recipe, HintsNameKeysAndValuesThatThereAre) {
  for (const char* name : {"model_name_or_path", "packing_strategy", "deepspeed", "resume_from_checkpoint", "betas",
                           "load_best_model_at_end", "num_layers", "lora_r"}) {
    const std::string hint = hint_of_key(name), key = hint.substr(13, hint.find('?') - 13);
    EXPECT_TRUE(std::ranges::any_of(recipe_help(), [&](const KeyHelp& k) { return k.key == key; })) << hint;
  }
  for (const KeyHelp& key : recipe_help()) EXPECT_EQ(hint_of_key(key.key), "") << "a key of weft's";
}

TEST(Recipe, ALengthIsInStepsOrInEpochs) {
  EXPECT_EQ(with({"train.epochs=1.5"}).train.train_iters, 0);
  EXPECT_EQ(with({"train.epochs=1.5", "train.train_iters=0"}).train.epochs, 1.5);
  EXPECT_EQ(with({}).train.train_iters, 1000);
  EXPECT_SAYS(error_of(kSmall, {"train.epochs=2", "train.train_iters=10"}),
              "train.epochs = 2.0: expected 0 beside train.train_iters = 10: one of them says how long the run is");
  EXPECT_SAYS(error_of(kSmall, {"train.train_iters=0"}), "of at least 1, or train.epochs above 0");
  EXPECT_SAYS(error_of(kSmall, {"train.epochs=-1"}), "expected a number of at least 0");
  const Recipe r = with({"train.epochs=2", "optimizer.lr_warmup_iters=5000"});  // judged when the steps are known
  EXPECT_EQ(parse_recipe(to_toml(r), "again", {}), r);
}

TEST(Recipe, ValuesThatDoNotFitEachOtherAreRefused) {
  EXPECT_SAYS(error_of(kSmall, {"train.global_batch_size=6"}), "command line: train.global_batch_size = 6: expected");
  EXPECT_SAYS(error_of(kSmall, {"train.micro_batch_size=48"}),
              "r.toml: train.global_batch_size = 64 (its default): expected a multiple");
  EXPECT_SAYS(error_of(kSmall, {"train.micro_batch_size=65536", "parallel.dp=2147483647"}), "a multiple");
  EXPECT_SAYS(error_of(kSmall, {"optimizer.lr_warmup_iters=1001"}), "expected at most train.train_iters = 1000");
  EXPECT_SAYS(error_of(kSmall, {"optimizer.lr_warmup_iters=9", "optimizer.lr_decay_iters=8"}), "lr_decay_iters = 8");
  EXPECT_SAYS(error_of(kSmall, {"optimizer.min_lr=1"}), "expected at most optimizer.lr");
  EXPECT_SAYS(error_of(kSmall, {"optimizer.lr_decay_style=wsd"}), "optimizer.lr_wsd_decay_iters = 0");
  EXPECT_SAYS(error_of(kSmall, {"optimizer.lr_decay_style=wsd", "optimizer.lr_wsd_decay_iters=901",
                                "optimizer.lr_warmup_iters=100"}),
              "1000 - 100");
  EXPECT_SAYS(error_of(kSmall, {"train.eval_interval=5"}), "set data.valid");
  EXPECT_SAYS(error_of(kSmall, {"data.weights=[1, 2]"}), "one number for each of the 1 entries");
  EXPECT_SAYS(error_of(kSmall, {"data.weights=[0]"}), "above 0");
  EXPECT_SAYS(error_of(kSmall, {"data.valid=v", "data.valid_fraction=0.1"}), "use one of them");
  EXPECT_SAYS(error_of(kSmall, {"data.loss_mask=m", "data.train=[\"a\", \"b\"]"}), "there are 2");
  EXPECT_EQ(error_of(kSmall, {"optimizer.lr_decay_style=wsd", "optimizer.lr_wsd_decay_iters=900",
                              "optimizer.lr_warmup_iters=100", "optimizer.lr=0", "optimizer.min_lr=0"}),
            "");
}

// A setting that is refused, what is advised instead, and other settings.
TEST(Recipe, WhatDoesNotFitIsRefusedWithTheNearestThatWorks) {
  const std::vector<std::vector<std::string>> cases = {
      {"parallel.dp=3", "parallel.dp = 2"},
      {"parallel.dp=7", "parallel.dp = 8"},
      {"parallel.dp=2147483647", "parallel.dp = 16"},
      {"parallel.dp=13", "parallel.dp = 16", "train.micro_batch_size=2"},
      {"parallel.dp=3", "parallel.dp = 4", "parallel.zero_stage=1", "parallel.zero_shard_size=4"},
      {"train.global_batch_size=6", "train.global_batch_size = 8", "train.micro_batch_size=8"},
      {"train.global_batch_size=35", "train.global_batch_size = 32", "train.micro_batch_size=8", "parallel.dp=2"},
      {"parallel.zero_shard_size=3", "parallel.zero_shard_size = 2", "parallel.dp=4", "parallel.zero_stage=1"},
      {"parallel.zero_shard_size=9", "parallel.zero_shard_size = 4", "parallel.dp=4", "parallel.zero_stage=1"},
      {"parallel.zero_shard_size=3", "parallel.zero_shard_size = 0", "parallel.dp=4"},
      {"parallel.frozen_shard_size=3", "parallel.frozen_shard_size = 2", "parallel.dp=4", "train.objective=distill",
       "objective.teacher=t"},
      {"parallel.frozen_shard_size=3", "parallel.frozen_shard_size = 0", "train.objective=distill",
       "objective.teacher=t"},
      {"parallel.frozen_ep=3", "parallel.frozen_ep = 2", "parallel.dp=4", "train.objective=distill",
       "objective.teacher=t"},
      {"parallel.pipeline_layout=[2, 2]", "parallel.pipeline_layout = []", "parallel.pp=3"},
      {"parallel.order=tp-dp-dp-xx", "parallel.order = \"tp-dp-cp-ep-pp\""},
      {"parallel.order=PP-DP-EP-CP-TP", "parallel.order = \"pp-dp-ep-cp-tp\""}};
  for (const auto& one : cases) {
    std::vector<std::string> given(one.begin() + 2, one.end());
    given.push_back(one[0]);
    const std::string said = error_of(kSmall, given);
    EXPECT_SAYS(said, one[0].substr(0, one[0].find('=')) + " = ");
    EXPECT_TRUE(said.ends_with("; the nearest that works: " + one[1])) << said;
    std::string better = one[1];
    given.push_back(better.replace(better.find(" = "), 3, "="));
    EXPECT_EQ(error_of(kSmall, given), "") << said;
  }
}

TEST(Recipe, ALayoutHasABoundedNumberOfRanks) {
  const std::vector<std::string> many = {"parallel.dp=1073741824", "parallel.pp=4",
                                         "train.global_batch_size=1073741824"};
  EXPECT_SAYS(error_of(kSmall, many),
              "parallel.dp = 1073741824: expected a layout of at most 1048576 ranks (dp 1073741824 x pp 4 x cp 1 x tp "
              "1); the nearest that works: parallel.dp = 262144");
  EXPECT_SAYS(error_of(kSmall, {"parallel.tp=2147483647", "parallel.pp=2147483647", "parallel.dp=2147483647"}),
              "the nearest that works: parallel.dp = 1 and parallel.tp = 1 and parallel.pp = 1048576");
  EXPECT_EQ(error_of(kSmall, {"parallel.dp=16", "parallel.tp=128", "parallel.pp=512"}), "");
  EXPECT_EQ(fewer_ranks(with({"parallel.dp=16", "parallel.tp=128", "parallel.pp=4"}), 4096), "parallel.tp = 64");
}

TEST(Recipe, APipelineHasAsManyChunksAsItsScheduleAndLayoutSay) {
  EXPECT_SAYS(error_of(kSmall, {"parallel.virtual_pipeline_parallel_size=2"}),
              "expected 1 for schedule \"1f1b\", or 0");
  EXPECT_SAYS(error_of(kSmall, {"parallel.virtual_pipeline_parallel_size=1", "parallel.pipeline_schedule=zbv"}),
              "expected 2 for schedule \"zbv\", or 0");
  EXPECT_SAYS(
      error_of(kSmall, {"parallel.virtual_pipeline_parallel_size=1", "parallel.pipeline_schedule=interleaved_1f1b"}),
      "expected at least 2 for schedule \"interleaved_1f1b\", or 0");
  EXPECT_SAYS(error_of(kSmall, {"parallel.pipeline_layout=[2, 2]"}), "expected 1 x 1 numbers");
  EXPECT_SAYS(error_of(kSmall, {"parallel.pp=2", "parallel.pipeline_layout=[2, 2]", "parallel.pipeline_schedule=zbv"}),
              "expected 2 x 2 numbers");
  EXPECT_SAYS(error_of(kSmall, {"parallel.pipeline_layout=[2.5]"}), "expected a list of whole numbers");
  EXPECT_SAYS(error_of(kSmall, {"parallel.pipeline_layout=[-1]"}), "each of at least 0");
  EXPECT_EQ(with({"parallel.pp=2", "parallel.pipeline_layout=[2, 3]"}).parallel.pipeline_layout,
            (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(with({"parallel.pp=2", "parallel.pipeline_schedule=interleaved_1f1b",
                  "parallel.virtual_pipeline_parallel_size=3", "parallel.pipeline_layout=[1, 1, 2, 2, 1, 0]"})
                .parallel.virtual_pipeline_parallel_size,
            3);
}

TEST(Recipe, WhatThisVersionCannotRunIsRefusedWithTheNearestThatWorks) {
  EXPECT_SAYS(error_of(kSmall, {"train.precision=f64"}), "train.precision = \"f64\" cannot run: ");
  EXPECT_SAYS(error_of(kSmall, {"train.precision=f64"}), "; the nearest that works: ");
  const std::string both =
      error_of(kSmall, {"parallel.ep=2", "parallel.dp=2", "run.backend=cuda", "train.numerics=invariant"});
  EXPECT_SAYS(both, "train.numerics = \"invariant\" cannot run: parallel.ep = 2");
  EXPECT_SAYS(error_of(kSmall, {"parallel.ep=4", "parallel.dp=6"}),
              "expected a divisor of parallel.dp x parallel.cp = 6 x 1");
  EXPECT_SAYS(error_of(kSmall, {"parallel.ep=4", "parallel.dp=6"}), "parallel.ep = 3");
  EXPECT_EQ(error_of(kSmall, {"parallel.ep=6", "parallel.dp=2", "parallel.cp=3", "train.seq_length=12"}), "");
  EXPECT_SAYS(error_of(kSmall, {"moe.capacity_factor=0.9"}), "at least 1");
  EXPECT_SAYS(error_of(kSmall, {"train.loss_average=document"}),
              "train.loss_average = \"document\" cannot run: data.packing = \"concatenate-and-split\" cuts documents");
  EXPECT_EQ(error_of(kSmall, {"train.loss_average=document", "data.packing=first-fit"}), "");
  EXPECT_SAYS(error_of(kSmall, {"train.loss_average=document", "data.packing=first-fit", "train.mtp_loss_coef=0.1"}),
              "train.loss_average = \"document\" cannot run: train.mtp_loss_coef = 0.1");
  EXPECT_SAYS(error_of(kSmall, {"train.loss_average=document", "data.packing=first-fit", "train.objective=distill",
                                "objective.teacher=t"}),
              "train.loss_average = \"document\" has no effect: train.objective = \"distill\" has no such setting");
  EXPECT_EQ(error_of(kSmall, {"train.mtp_loss_coef=0.3", "adapter.kind=lora"}),
            "train.mtp_loss_coef = 0.3 cannot run: adapter.kind = \"lora\": a module of multi-token prediction is not "
            "trained beside adapters yet; the nearest that works: train.mtp_loss_coef = 0");
  EXPECT_EQ(error_of(kSmall, {"train.mtp_loss_coef=0.3"}), "");
  EXPECT_SAYS(error_of(kSmall, {"moe.overflow=drop"}), "moe.overflow = \"drop\" has no effect");
  EXPECT_EQ(error_of(kSmall, {"moe.overflow=drop", "moe.capacity_factor=1.25"}), "");
  EXPECT_EQ(error_of(kSmall, {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.zero_stage=3"}), "");
  EXPECT_SAYS(error_of(kSmall, {"parallel.dp=4", "parallel.zero_shard_size=3"}), "a divisor of parallel.dp = 4");
  EXPECT_SAYS(error_of(kSmall, {"parallel.cp=4", "parallel.zero_stage=1", "parallel.zero_shard_size=3"}),
              "a divisor of parallel.dp x parallel.cp = 1 x 4");
  EXPECT_SAYS(error_of(kSmall, {"parallel.cp=3", "train.seq_length=16"}),
              "expected a multiple of 2 x parallel.cp = 2 x 3");
  EXPECT_SAYS(error_of(kSmall, {"parallel.cp=3", "train.seq_length=16"}), "train.seq_length = 18");
  const auto by_groups = [&](const std::string& cp, const std::string& size, const std::string& how = "a2a+p2p") {
    return error_of(kSmall, {"train.seq_length=48", "parallel.cp=" + cp, "parallel.cp_comm_type=" + how,
                             "parallel.cp_a2a_size=" + size});
  };
  EXPECT_EQ(by_groups("6", "3"), "");
  EXPECT_SAYS(by_groups("6", "4"), "a divisor of parallel.cp = 6 between 1 and that");
  EXPECT_SAYS(by_groups("6", "0"), "parallel.cp_a2a_size = 2");
  EXPECT_SAYS(by_groups("3", "3"), "parallel.cp_comm_type = \"p2p\" and parallel.cp_a2a_size = 0");
  EXPECT_SAYS(by_groups("6", "3", "a2a"), "0 unless parallel.cp_comm_type = \"a2a+p2p\"");
  EXPECT_SAYS(error_of(kSmall, {"parallel.cp=2", "train.seq_length=16", "train.numerics=invariant"}),
              "train.numerics = \"invariant\" cannot run: parallel.cp = 2");
  EXPECT_SAYS(both, "train.numerics = \"invariant\" cannot run: products of a GPU's library");
  EXPECT_SAYS(both, "; the nearest that works: train.numerics = \"fast\"");
  EXPECT_EQ(error_of(kSmall, {"run.backend=cuda"}), "");
  EXPECT_EQ(error_of(kSmall, {"train.grad_reduce_dtype=bf16"}), "");
  EXPECT_SAYS(error_of(kSmall, {"train.grad_reduce_dtype=bf16", "run.backend=ref"}),
              "train.grad_reduce_dtype = \"f32\"");
  EXPECT_SAYS(error_of(kSmall, {"run.backend=cpu", "train.numerics=nondeterministic"}),
              "train.numerics = \"nondeterministic\" cannot run: the kernels of cores repeat to the bit");
  EXPECT_EQ(error_of(kSmall, {"run.backend=cuda", "train.numerics=nondeterministic"}), "");
  EXPECT_SAYS(error_of(kSmall, {"train.grad_reduce_dtype=bf16", "train.numerics=invariant"}),
              "\"f32\" with train.numerics = \"invariant\"");
}

TEST(Recipe, ASettingWithoutEffectIsRefusedByName) {
  const std::vector<std::vector<std::string>> idle = {
      {"parallel.zero_shard_size = 2", "parallel.dp=4"},
      {"parallel.zero_shard_size = 1", "parallel.dp=4", "parallel.zero_stage=3"},
      {"parallel.frozen_shard_size = 2", "parallel.dp=4"},
      {"parallel.frozen_ep = 2", "parallel.dp=4"},
      {"parallel.frozen_shard_size = 1", "parallel.dp=4", "train.objective=distill", "objective.teacher=t"},
      {"train.loss_scale = 1024", "train.precision=bf16"},
      {"optimizer.lr_wsd_decay_iters = 5", "optimizer.lr_decay_style=cosine"}};
  for (std::vector<std::string> given : idle) {
    const std::string setting = given[0], key = setting.substr(0, setting.find(' '));
    given[0].erase(std::remove(given[0].begin(), given[0].end(), ' '), given[0].end());
    EXPECT_SAYS(error_of(kSmall, given), setting + " has no effect: ");
    EXPECT_SAYS(error_of(kSmall, given), "; the nearest that works: " + key + " = 0");
    given.push_back(key + "=0");
    EXPECT_EQ(error_of(kSmall, given), "");
  }
  const std::pair<const char*, const char*> settings[] = {
      {"min_8bit_size = 100", "adamw8bit"}, {"momentum = 0.5", "sgd"},      {"muon_momentum = 0.5", "muon"},
      {"muon_nesterov = false", "muon"},    {"muon_ns_steps = 3", "muon"},  {"muon_scale = \"original\"", "muon"},
      {"adam_eps = 0.5", "not sgd"},        {"adam_beta1 = 0.5", "not sgd"}};
  for (const auto& [last, owner] : settings) {
    const std::string setting = std::string("optimizer.") + last;
    std::string given = setting;
    given.erase(std::remove(given.begin(), given.end(), ' '), given.end());
    for (const std::string name : {"adamw", "adamw8bit", "sgd", "muon"}) {
      const std::string refused = fmt::format("{} has no effect: optimizer.name = \"{}\" has no such", setting, name);
      const std::string error = error_of(kSmall, {given, "optimizer.name=" + name});
      const bool heeded = name == owner || (std::string(owner) == "not sgd" && name != "sgd");
      EXPECT_EQ(error.starts_with(refused), !heeded) << given << " beside " << name << ": " << error;
    }
  }
  EXPECT_EQ(error_of(kSmall, {"parallel.dp=4", "parallel.zero_stage=1", "parallel.zero_shard_size=2"}), "");
  EXPECT_EQ(error_of(kSmall, {"train.precision=fp16", "train.loss_scale=1024", "run.backend=ref"}), "");
}

TEST(Recipe, TheLeastLossScaleIsAtMostTheFirst) {
  EXPECT_EQ(error_of(kSmall, {"train.precision=fp16", "train.initial_loss_scale=0.5", "train.min_loss_scale=0.5"}), "");
  EXPECT_SAYS(error_of(kSmall, {"train.initial_loss_scale=0.5"}), "at most train.initial_loss_scale = 0.5");
  EXPECT_SAYS(error_of(kSmall, {"train.min_loss_scale=0"}), "train.min_loss_scale");
}

TEST(Recipe, WhatIsTheSameOnOneRankIsAccepted) {
  for (const char* o : {"parallel.zero_stage=3", "parallel.sequence_parallel=true", "parallel.sequence_parallel=false",
                        "parallel.pipeline_schedule=gpipe", "parallel.pipeline_schedule=zb_h1"})
    EXPECT_EQ(error_of(kSmall, {o}), "");
}

// --- hostile files ---

TEST(Recipe, HostileTextIsRefusedWithoutACrash) {
  const std::string deep = [] {
    std::string s = "a";
    for (int i = 0; i < 400000; ++i) s += ".a";
    return s;
  }();
  EXPECT_SAYS(error_of("[model\npath = 1"), "r.toml:1:");
  EXPECT_SAYS(error_of(kSmall + "[$ata]\n"), "r.toml: not valid TOML");  // an assertion of the library
  EXPECT_FALSE(error_of(std::string("a\0b", 3)).empty());
  EXPECT_FALSE(error_of(kSmall + std::string("[run]\ndir = \"a\0b\"", 18)).empty());
  EXPECT_FALSE(error_of("\xff\xfe[\0m\0").empty());
  EXPECT_FALSE(error_of("x = " + std::string(100000, '[')).empty());
  EXPECT_FALSE(error_of("model = 3\ndata = []\n").empty());
  EXPECT_SAYS(error_of("\n" + deep + " = 1\n"), "r.toml:2: a key of more than 17 parts");
  EXPECT_SAYS(error_of("[" + deep + "]\nx = 1\n"), "a key of more than 17 parts");
  EXPECT_SAYS(error_of("x = {" + deep + " = 1}\n"), "a key of more than 17 parts");
  EXPECT_SAYS(error_of(kSmall, {"nonsense"}), "command line: \"nonsense\": expected section.key=value");
  EXPECT_FALSE(error_of(kSmall, {"=1", deep + "=1", "train.seed={" + deep + "=1}"}).empty());
}

// In quotes and comments any letter may stand.
TEST(Recipe, LettersBeyondAsciiAreTextOrAnErrorOfTheirLine) {
  EXPECT_SAYS(error_of("\n\xD8\xA7 = 1\n"), "r.toml:2:1");
  EXPECT_SAYS(error_of("[run]\ndir = 2x\"\xD1\x8B\n\"\n"), "r.toml:2:");
  EXPECT_SAYS(error_of("[run]\ndir = 2x{\"\xD1\x8B\n\"\n"), "r.toml:2:");
  EXPECT_SAYS(error_of("[run]\ndir = 2x=\"\xD1\x8B\"\n"), "r.toml:2:");
  EXPECT_SAYS(error_of("[data]\ntrain = [\"a\", 2x=\"\xD1\x8B\"]\n"), "r.toml:2:");
  EXPECT_SAYS(error_of("[run]\ndir = \xEF\xBB\x99\n"), "r.toml:2:7");
  EXPECT_SAYS(error_of("[run]\ndir = \"\"\"\\\u00e9\"\"\"\n"), "r.toml:2:");
  EXPECT_SAYS(error_of("[data]\ntrain = [ \u2028 ]\n"), "r.toml");
  const std::string dir = "\xEF\xBB\xBF" + kSmall + "# \xD8\xA7\n[run]\ndir = ";
  EXPECT_EQ(error_of(dir + "\"\xD8\xA7\"\n"), "");
  EXPECT_EQ(error_of(dir + "\"\"\"\\\n  \u00e9t\u00e9\"\"\"\n"), "");
  EXPECT_EQ(with({"run.dir=\"\"\"\\\n \u00e9\"\"\""}).run.dir, "\u00e9");
  EXPECT_EQ(with({"run.dir=\xD8\xA7"}).run.dir, "\xD8\xA7");
}

TEST(Recipe, DotsInTextAndCommentsAreNotKeys) {
  const std::string dots(100, '.');
  EXPECT_EQ(error_of(kSmall + "# it's " + dots + "\n[run]\ndir = \"\\\"" + dots + "\" # \"" + dots + "\n"), "");
  EXPECT_EQ(error_of(kSmall + "[run]\ndir = '''\n'" + dots + "''''\n"), "");
  EXPECT_EQ(with({"data.train=[\"" + dots + "\", '" + dots + "']"}).data.train.size(), 2u);
}

TEST(Recipe, ManyProblemsMakeAShortMessageInAShortTime) {
  std::string text = kSmall + "[train]\n";
  for (int i = 0; i < 60000; ++i) text += fmt::format("seed{} = {}\n", i, i);
  const auto began = std::chrono::steady_clock::now();
  const std::string e = error_of(text);
  EXPECT_SAYS(e, "60000 problems");
  EXPECT_SAYS(e, "and 59980 more");
  EXPECT_LT(e.size(), 4000u);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST(Recipe, AFileThatCannotBeARecipeIsRefused) {
  const testing::TempDir dir;
  testing::spill(dir / "large.toml", kSmall + std::string(2 << 20, '\n'));
  testing::spill(dir / "good.toml", kSmall);
  EXPECT_THROW(parse_recipe_file((dir / "large.toml").string(), {}), ConfigError);
  EXPECT_THROW(parse_recipe_file((dir / "none.toml").string(), {}), FileError);
  EXPECT_THROW(parse_recipe_file(dir.path().string(), {}), FileError);
  EXPECT_EQ(parse_recipe_file((dir / "good.toml").string(), {}), with({}));
}

TEST(Recipe, DifferencesLeaveOutWhatMayChangeOnResume) {
  const Recipe a = with({}),
               b = with({"run.threads=2", "optimizer.lr=1.0", "checkpoint.keep_latest=5", "checkpoint.save_interval=9",
                         "train.log_interval=3", "train.eval_iters=7", "model.hidden_dropout=0.5"});
  EXPECT_EQ(recipe_differences(a, b), (std::vector<std::string>{"model.hidden_dropout: not set there, 0.5 here",
                                                                "optimizer.lr: 0.0003 there, 1.0 here"}));
  EXPECT_TRUE(recipe_differences(a, a).empty());
  EXPECT_TRUE(recipe_differences(with({"optimizer.muon_momentum=0.5"}), a).empty()) << "no other optimizer has it";
  EXPECT_FALSE(recipe_differences(a, with({"train.train_iters=2000"})).empty()) << "the learning rate depends on it";
}

}  // namespace
}  // namespace weft
