// `weft plan`, `weft new` and `weft report` from the outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/models.h"
#include "apps/program.h"

namespace weft {
namespace {

using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

class Plan : public ::testing::Test {
 protected:
  Plan() {
    std::filesystem::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kTwoLayers);
    spill(dir_ / "r.toml", "[model]\npath = \"" + (dir_ / "model").string() +
                               "\"\ninit = \"random\"\n[data]\ntrain = [\"none.txt\"]\n[train]\nseq_length = 16\n"
                               "global_batch_size = 8\nmicro_batch_size = 2\n[run]\nbackend = \"ref\"\n");
  }
  Finished plan(std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", (dir_ / "r.toml").string()});
    return weft(more);
  }
  TempDir dir_;
};

TEST_F(Plan, TheScheduleOfOneStageStandsBesideTheMemory) {
  const Finished f = plan({"--schedule"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("parameters; "), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("schedule of stage 0: F0 B0 F1 B1 F2 B2 F3 B3\n"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("rank 0  F0B0--F1B1--F2B2--F3B3--\n"), std::string::npos) << f.out;
}

TEST_F(Plan, SaysWhatBlocksComputeAgainForABudget) {
  const auto with = [&](const std::string& recompute, const std::string& more) {
    const Finished f = plan({"parallel.pp=2", "parallel.recompute=" + recompute, "--json", more});
    EXPECT_EQ(f.status, 0) << f.err;
    return nlohmann::json::parse(f.out);
  };
  const auto bytes = [](const nlohmann::json& j) { return j["total_bytes"].get<int64_t>(); };
  const int64_t most = bytes(with("none", "parallel.memory_budget="));
  const std::string budget = "parallel.memory_budget=" + std::to_string(most - 1);
  const nlohmann::json chosen = with("budget", budget);
  EXPECT_LT(bytes(chosen), most);
  EXPECT_EQ(chosen["recompute"]["budget_bytes"], most - 1);
  EXPECT_EQ(chosen["recompute"]["blocks"].size(), 2u);
  ASSERT_EQ(chosen["recompute"]["stages"].size(), 2u);
  int64_t fullest = 0;
  for (const nlohmann::json& stage : chosen["recompute"]["stages"]) fullest = std::max(fullest, bytes(stage));
  EXPECT_EQ(fullest, bytes(chosen));
  EXPECT_SAYS(plan({"parallel.pp=2", "parallel.recompute=budget", budget}).out, " % arithmetic\nstage 1: ");
}

TEST_F(Plan, TheSchedulesOfStagesAreDrawn) {
  const std::string svg = (dir_ / "schedule.svg").string();
  const Finished f = plan({"parallel.pp=2", "parallel.pipeline_schedule=zb_h1", "--schedule", "--schedule-svg", svg});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.out.find("schedule of stage 0: F0 F1 D0 W0 F2 D1 W1 F3 D2 W2 D3 W3\nschedule of stage 1: F0 D0"), 0u)
      << f.out;
  EXPECT_NE(f.out.find("zb_h1, 2 stages, 4 micro-batches: 13 long, bubble 7.7 %"), std::string::npos) << f.out;
  EXPECT_EQ(slurp(svg).find("<svg "), 0u);
}

TEST_F(Plan, AScheduleSaysWhatItsActionsMove) {
  const std::vector<std::string> layout{"parallel.pp=2", "parallel.dp=2", "parallel.zero_stage=3", "--schedule"};
  const Finished f = plan(layout);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out,  // the largest rank, of the last stage
              "what the actions of rank 2 move:\n"
              "F of chunk 0, 2 times: receive, fetch blocks.1, prefetch head, release blocks.1\n"
              "B of chunk 0, 2 times: fetch head, prefetch blocks.1, reduce_gradients head, release head, ");
  EXPECT_SAYS(f.out, "fetch blocks.1, release blocks.1, send, reduce_gradients blocks.1\n");
  EXPECT_SAYS(plan({"--schedule"}).out, "the end, sums and update: nothing\n");
  EXPECT_SAYS(plan({"parallel.dp=2", "--schedule"}).out, "the end, sums and update: dp ");
  const Finished none = plan({"parallel.pp=3", "--schedule"});  // of two blocks
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_SAYS(none.out, "schedule of stage 2: F0 B0");
  EXPECT_SAYS(none.out, "what the actions move is not known: ");
}

TEST_F(Plan, InJsonAScheduleIsATextForEachStage) {
  const auto json = nlohmann::json::parse(plan({"parallel.pp=2", "--schedule", "--json"}).out);
  EXPECT_EQ(json["schedule"][0], "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(json["schedule"].size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(plan({"--schedule", "--json"}).out)["schedule"].size(), 1u);
}

TEST_F(Plan, EveryKindOfRankOfALayoutIsShownTheLargestInFull) {
  const std::vector<std::string> layout{"parallel.pp=2", "parallel.dp=512", "train.global_batch_size=2048"};
  const Finished f = plan(layout);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "stage 0 (512 ranks, as rank 0)");
  EXPECT_SAYS(f.out, "stage 1 (512 ranks, as rank 512)");
  EXPECT_SAYS(f.out, "the largest: stage ");
  EXPECT_SAYS(f.out, "communication of a step");
  std::vector<std::string> in_json = layout;
  in_json.push_back("--json");
  const auto json = nlohmann::json::parse(plan(in_json).out);
  EXPECT_EQ(json["world"], 1024);
  ASSERT_EQ(json["classes"].size(), 2u);
  EXPECT_EQ(json["classes"][0]["total_bytes"], json["total_bytes"]);
  EXPECT_EQ(json["classes"][1]["num_ranks"], 512);
  EXPECT_GT(json["communication"].size(), 0u);
}

TEST_F(Plan, UnequalSharesStandInTextAndJson) {
  const std::vector<std::string> layout{"parallel.dp=2", "parallel.micro_batches=[3,1]"};
  EXPECT_SAYS(plan(layout).out, "micro-batches of each data-parallel rank: [3, 1]\n");
  const auto in_json = [&](std::vector<std::string> more) {
    more.push_back("--json");
    return nlohmann::json::parse(plan(more).out);
  };
  EXPECT_EQ(in_json(layout)["micro_batches"], (std::vector<int64_t>{3, 1}));
  EXPECT_FALSE(in_json({"parallel.dp=2"}).contains("micro_batches"));
}

TEST_F(Plan, APictureThatWouldBeTooLargeIsRefused) {
  const Finished f = plan({"parallel.pp=1000000", "--schedule"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("too many to show"), std::string::npos) << f.err;
}

TEST_F(Plan, ALayoutHasAsManyBlocksAsTheModel) {
  EXPECT_EQ(plan({"parallel.pipeline_layout=[2]"}).status, 0);
  const Finished f = plan({"parallel.pipeline_layout=[3]"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("the counts add up to 3, and the model has 2 blocks"), std::string::npos) << f.err;
}

TEST_F(Plan, SaysHowTheModelAnswersOnDevices) {
  const auto serve = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--cluster", "H100-SXM", "--serve"});
    return plan(more);
  };
  const std::vector<std::string> load{"--ranks", "2", "--prompt-tokens", "16", "--max-tokens", "8", "--texts", "4"};
  const Finished f = serve(load);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "serving on 2 H100-SXM, prompts of 16 tokens and 8 behind them");
  std::vector<std::string> in_json = load;
  in_json.push_back("--json");
  const auto json = nlohmann::json::parse(serve(in_json).out);
  ASSERT_FALSE(json["layouts"].empty());
  std::vector<std::string> trained = in_json;  // how a recipe cuts its training is nothing to answers
  for (const char* key : {"parallel.dp=4", "parallel.zero_stage=3", "parallel.zero_shard_size=2", "parallel.pp=2",
                          "parallel.pipeline_schedule=zbv", "parallel.order=tp-cp-ep-pp-dp"})
    trained.insert(trained.begin(), key);
  const Finished other = serve(trained);
  ASSERT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(nlohmann::json::parse(other.out), json);
  for (const auto& l : json["layouts"]) {
    EXPECT_TRUE(l["price_per_million_tokens"].is_null() || l["price_per_million_tokens"] > 0) << l;
    EXPECT_EQ(l["tp"].get<int>() * l["pp"].get<int>() * l["replicas"].get<int>(), 2) << l;
    EXPECT_EQ(l["texts"], 4);
    EXPECT_GT(l["first_token_s"], 0);
    EXPECT_GT(l["memory_bytes"], l["cache_bytes"]);
  }
  EXPECT_SAYS(serve({"--ranks", "2..4"}).err, "--serve takes one number of devices");
  EXPECT_SAYS(serve({"--prompt-tokens", "99999999"}).err, "--prompt-tokens");
  EXPECT_SAYS(plan({"--ranks", "2", "--cluster", "H100-SXM"}).err, "it needs --search or --serve");
}

TEST_F(Plan, ReplacesNoFileUnasked) {
  const std::string file = (dir_ / "mine").string();
  const auto kept = [&](std::vector<std::string> args) {
    spill(file, "mine");
    const Finished f = weft(args);
    EXPECT_EQ(f.status, 2) << f.out;
    EXPECT_SAYS(f.err, file + ": is there already; name another file, or add --again");
    EXPECT_EQ(slurp(file), "mine");
    args.push_back("--again");
    EXPECT_EQ(weft(args).status, 0) << f.err;
    EXPECT_NE(slurp(file), "mine");
  };
  const std::string recipe = (dir_ / "r.toml").string(), rows = (dir_ / "rows.csv").string();
  spill(rows,
        "id,gpu,precision,n_layers,d_model,n_heads,ffn,vocab,seq_len,n_gpus,global_batch\n"
        "one,H100-80GB,bf16,2,64,2,128,1000,128,1,2\n");
  kept({"plan", recipe, "parallel.pp=2", "--schedule", "--schedule-svg", file});
  kept({"plan", recipe, "--cluster", "H100-SXM", "--search", "--ranks", "1", "--write", file});
  kept({"plan", "score", rows, "--out", file});
  kept({"plan", "score", rows, "--fit", file});
  spill(file, "");
  EXPECT_EQ(weft({"plan", "score", rows, "--out", file}).status, 0);  // nothing is lost
  EXPECT_SAYS(plan({"--again"}).err, "it needs one of them");
}

// What a job of several islands is told to write is one of them too.
TEST_F(Plan, WritesTheIslandsOfTheRecipe) {
  const std::string written = (dir_ / "w.toml").string();
  const Finished f =
      plan({"islands.count=2", "islands.number=1", "islands.address=127.0.0.1:7171", "islands.sync_every=1",
            "--cluster", "H100-SXM", "--search", "--ranks", "1", "--write", written});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(slurp(written), "\n[islands]\ncount = 2\nnumber = 1\n");
}

TEST_F(Plan, TakesThePrecisionThatTheDevicesHave) {
  const auto noted = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train.precision=auto", "run.backend=cpu"});
    const Finished f = plan(more);
    EXPECT_EQ(f.status, 0) << f.err;
    return f.err;
  };
  EXPECT_SAYS(noted({"--cluster", "V100-SXM2"}), "note: train.precision = \"auto\" takes fp16: 125 Tflop/s in 16 bits");
  EXPECT_SAYS(noted({"--cluster", "H100-SXM"}), "takes bf16: 989.4 Tflop/s in 16 bits");
  EXPECT_SAYS(noted({"--cluster", "H100-SXM"}), "weft does not train in the device's fp8 yet");
  const std::string written = (dir_ / "w.toml").string();
  noted({"--cluster", "V100-SXM2", "--search", "--ranks", "1", "--write", written});
  EXPECT_SAYS(slurp(written), "precision = \"fp16\"");
  EXPECT_SAYS(noted({}), "these cores ");
  EXPECT_EQ(plan({"train.precision=auto"}).err.find("takes"), std::string::npos);  // backend ref has but one
}

TEST_F(Plan, FindsACutForUnequalDevices) {
  const std::string file = (dir_ / "unequal.toml").string();
  spill(file, "preset = \"H100-SXM\"\nnodes = 1\n[[others]]\nnodes = 1\npreset = \"A100-SXM-80GB\"\n");
  const auto on_both = [&](std::vector<std::string> more) {
    more.insert(more.end(),
                {"parallel.pp=2", "parallel.dp=4", "train.micro_batch_size=1", "run.backend=cpu", "--cluster", file});
    return plan(more);
  };
  const Finished text = on_both({});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_SAYS(text.out, "forecast on 8 devices, 8 H100-SXM:\n");
  EXPECT_SAYS(text.out, "better cut of the blocks");
  const Finished json = on_both({"--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  const nlohmann::json forecast = nlohmann::json::parse(json.out)["forecast"];
  EXPECT_EQ(forecast["stages"].size(), 2u);
  EXPECT_EQ(forecast["micro_batches"], (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(forecast["pipeline_layout"], (std::vector<int64_t>{1, 1}));
  EXPECT_SAYS(on_both({"--scale", "8..16"}).err, "no --serve or --scale");
  const std::string written = (dir_ / "unequal-best.toml").string();
  const Finished found = plan({"run.backend=cpu", "--cluster", file, "--search", "--ranks", "16", "--write", written});
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_SAYS(found.out, " layouts on 16 of 8 H100-SXM, 8 A100-SXM-80GB, by time");
  EXPECT_EQ(weft({"plan", written, "--cluster", file}).status, 0);  // what it writes is a recipe
  EXPECT_SAYS(plan({"--cluster", file, "--search", "--ranks", "17"}).err, "the cluster has 16");
  spill(file, "preset = \"V100-SXM2\"\nnodes = 1\n[[others]]\nnodes = 1\npreset = \"A100-SXM-80GB\"\n");
  EXPECT_SAYS(on_both({"train.precision=auto"}).err,
              "takes fp16 on V100-SXM2 and bf16 on A100-SXM-80GB; what works on both: train.precision = \"fp16\"");
}

TEST_F(Plan, SaysWhatALossCosts) {
  const auto loss = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "loss", (dir_ / "r.toml").string(), "--cluster", "H100-SXM", "--ranks", "1"});
    return weft(more);
  };
  const Finished f = loss({"--target", "3.5", "--deadline", "1h", "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  const nlohmann::json row = nlohmann::json::parse(f.out)["rows"][0];
  EXPECT_TRUE(row["to_target"]["run_s"].is_null()) << row;  // so small a model never has it
  EXPECT_GT(row["within_limits"]["loss"], 3.5);
  EXPECT_SAYS(loss({"--target", "3.5"}).out, "L = 1.817 + 482 / N^0.3478 + 2085 / D^0.3658\n  Besiroglu et al. 2024");
  EXPECT_SAYS(loss({}).err, "weft plan loss needs a question: --target 2.6");
  EXPECT_SAYS(loss({"--target", "3.5", "--runs", (dir_ / "none").string()}).err, "name the folder of a run");
  EXPECT_SAYS(loss({"--target", "3.5", "model.init=pretrained"}).err, "the nearest that works: model.init");
}

TEST_F(Plan, SaysWhatARunCostsOnRentedDevices) {
  spill(dir_ / "prices.toml",
        "[[offer]]\nprovider = \"somebody\"\ncluster = \"H100-SXM\"\ndevices = 1\n[[offer.price]]\n"
        "per_device_hour = 3.0\n");
  const std::vector<std::string> args{"plan",
                                      "rent",
                                      (dir_ / "r.toml").string(),
                                      "train.train_iters=1000",
                                      "--prices",
                                      (dir_ / "prices.toml").string()};
  const Finished f = weft(args);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "somebody, on demand\n");
  std::vector<std::string> in_json = args;
  in_json.push_back("--json");
  const nlohmann::json way = nlohmann::json::parse(weft(in_json).out)["ways"][0];
  EXPECT_NEAR(way["price"].get<double>(), way["run_s"].get<double>() / 3600 * 3, 1e-9);
  EXPECT_SAYS(weft({"plan", "rent", args[2], "--prices", "none.toml"}).err, "none.toml: cannot be read");
}

// `weft new`
class NewRecipes : public ::testing::Test {
 protected:
  NewRecipes() {
    std::filesystem::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kTwoLayers);
    spill(dir_ / "c.toml", "preset = \"H100-SXM\"\nnodes = 2\ndevices_per_node = 1\ndomain = 1\n");
  }
  std::string at(const std::string& name) { return (dir_ / name).string(); }
  // With these lines as standard input.
  Finished answer(const std::string& lines, const std::string& out) {
    spill(dir_ / "answers", lines);
    return testing::run(
        {.args = {"-c", "exec \"$0\" new --out \"$1\" <\"$2\"", testing::kProgram, at(out), at("answers")},
         .program = "/bin/sh"});
  }
  TempDir dir_;
};

TEST_F(NewRecipes, WhatEveryPurposeWritesCanBePlanned) {
  std::filesystem::create_directories(dir_ / "experts");
  nlohmann::json experts = nlohmann::json::parse(testing::kTwoLayers);
  experts.update({{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  spill(dir_ / "experts/config.json", experts.dump());
  for (const std::string purpose : {"pretrain", "finetune", "lora", "long-context", "experts", "many-devices"}) {
    SCOPED_TRACE(purpose);
    const std::string out = at(purpose + ".toml");
    const Finished f =
        weft({"new", at(purpose == "experts" ? "experts" : "model"), "--purpose", purpose, "--cluster", at("c.toml"),
              "--devices", purpose == "many-devices" ? "2" : "1", "--data", "book.txt", "--out", out});
    ASSERT_EQ(f.status, 0) << f.err;
    const Finished plan = weft({"plan", out, "--cluster", at("c.toml")});
    EXPECT_EQ(plan.status, 0) << plan.err;
    EXPECT_SAYS(plan.out, "where the step goes");
  }
}

TEST_F(NewRecipes, CalledBareItAsksFiveQuestions) {
  const Finished f = answer(at("model") + "\nlora\n" + at("c.toml") + "\n1\nnotes.jsonl, more.txt\n", "asked.toml");
  ASSERT_EQ(f.status, 0) << f.err;
  for (const char* question :
       {"Which model?", "What for?", "On which devices?", "How many of them? [2]", "Which data?"})
    EXPECT_SAYS(f.err, question);
  const std::string recipe = slurp(dir_ / "asked.toml");
  EXPECT_SAYS(recipe, "kind = \"lora\"");
  EXPECT_SAYS(recipe, "train = [\"notes.jsonl\", \"more.txt\"]");
  EXPECT_SAYS(recipe, "dp = 1");
}

TEST_F(NewRecipes, AsksAgainAfterAWrongAnswerAndTakesNothingForTheUsual) {
  const Finished f = answer(
      at("nowhere") + "\n" + at("model/config.json") + "\nfinetuning\n\nH100-SXN\n" + at("c.toml") + "\nx\n1\n\n",
      "again.toml");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "did you mean finetune?");
  EXPECT_SAYS(f.err, "\"x\" is no number of devices");
  EXPECT_SAYS(slurp(dir_ / "again.toml"), "path = \"" + at("model") + "\"");
  EXPECT_SAYS(slurp(dir_ / "again.toml"), "train = [\"train.txt\"]");
}

TEST_F(NewRecipes, WithoutAnAnswerNothingIsWritten) {
  const Finished f = answer(at("model") + "\nlora\n", "none.toml");
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "there is no answer to \"On which devices?");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "none.toml"));
}

TEST_F(NewRecipes, NeverReplacesAFile) {
  spill(dir_ / "mine.toml", "mine");
  const Finished f = weft({"new", at("model"), "--cluster", "H100-SXM", "--out", at("mine.toml")});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "is there already, and stays");
  EXPECT_EQ(slurp(dir_ / "mine.toml"), "mine");
}

TEST_F(NewRecipes, NamesWhatIsMissing) {
  EXPECT_SAYS(weft({"new", at("model"), "--out", at("x.toml")}).err, "--cluster is missing: on which devices?");
  EXPECT_EQ(weft({"new", at("model"), "--cluster", "H100-SXM", "--devices", "0", "--out", at("x.toml")}).status, 2);
}

// `weft report`
class RunReports : public testing::RecipeTest {
 protected:
  RunReports() {
    std::filesystem::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kTwoLayers);
    spill(dir_ / "t.txt", std::string(2000, 'a'));
    spill(dir_ / "r.toml", testing::placed_in(dir_.path(),
                                              "[model]\npath = \"DIR/model\"\ninit = \"random\"\n[data]\ntrain = "
                                              "[\"DIR/t.txt\"]\n[train]\nseq_length = 16\nglobal_batch_size = 8\n"
                                              "micro_batch_size = 2\ntrain_iters = 4\n[run]\nthreads = 1\n"));
  }
  std::string at(const std::string& name) { return (dir_ / name).string(); }
};

TEST_F(RunReports, OfARunOnTwoRanksSaysWhereItsTimeWent) {
  const Finished trained = run("train", {"parallel.tp=2", "checkpoint.save_interval=2"}, "two");
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::vector<nlohmann::json> steps = steps_of("two");
  ASSERT_EQ(steps.size(), 4u);
  for (const nlohmann::json& s : steps) {
    EXPECT_GT(s["data_s"], 0) << s;
    EXPECT_GT(s["waits_s"]["tp"], 0) << s;
    double waits = 0;
    for (const auto& [axis, seconds] : s["waits_s"].items()) waits += seconds.get<double>();
    EXPECT_LT(waits + s["data_s"].get<double>(), s["step_time_s"]) << s;
    EXPECT_EQ(s.contains("save_s"), s["step"] == 3) << s;  // the save behind the last step has no record
  }
  const Finished text = weft({"report", at("two"), "--cluster", "H100-SXM"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_SAYS(text.out, "4 of 4 steps; on 2 ranks: dp 1, tp 2");
  EXPECT_SAYS(text.out, "exposed tp ");
  EXPECT_SAYS(text.out, "checkpoints ");
  EXPECT_SAYS(text.out, "what bound the run, of ");
  const auto json = nlohmann::json::parse(weft({"report", at("two"), "--cluster", "H100-SXM", "--json"}).out);
  EXPECT_GT(json["parts"]["computing"]["measured_s"], 0);
  double wall = 0;
  for (size_t i = 1; i < steps.size(); ++i)
    wall += (steps[i]["step_time_s"].get<double>() + steps[i].value("save_s", 0.0)) / double(steps.size() - 1);
  EXPECT_NEAR(json["wall_s_per_step"].get<double>(), wall, 1e-6);
  double parts = 0;
  for (const auto& [name, p] : json["parts"].items()) parts += p["measured_s"].get<double>();
  EXPECT_NEAR(parts, json["measured"]["step_s"].get<double>(), 1e-9);
  double bound = 0;
  for (const nlohmann::json& cause : json["bound_by"]) bound += cause["part"].get<double>();
  EXPECT_NEAR(bound, 1, 1e-9);
}

TEST_F(RunReports, OfSeveralRunsIsATableOfScaling) {
  ASSERT_EQ(run("train", {}, "one").status, 0);
  ASSERT_EQ(run("train", {"parallel.dp=2"}, "strong").status, 0);
  const Finished f = weft({"report", at("strong"), at("one")});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "strong  " + at("strong") + ", dp 2, micro-batch 2\n");
  EXPECT_EQ(weft({"report", at("strong"), at("one"), "--cluster", "H100-SXN"}).status, 2);
}

TEST_F(RunReports, NamesWhatItCannotReport) {
  const auto error = [](const Finished& f) {
    EXPECT_EQ(f.status, 2) << f.out;
    return f.err;
  };
  EXPECT_SAYS(weft({"report", at("nowhere"), "--cluster", "H100-SXM"}).err, "is not there; name the folder of a run");
  EXPECT_SAYS(weft({"report", at("model"), "--cluster", "H100-SXM"}).err,
              "no run folder: there is no recipe.toml in it");
  std::filesystem::create_directories(dir_ / "empty");
  std::filesystem::copy(dir_ / "r.toml", dir_ / "empty/recipe.toml");
  EXPECT_SAYS(error(weft({"report", at("empty"), "--cluster", "H100-SXM"})), "the run has trained no step yet");
  spill(dir_ / "empty/metrics.jsonl", "{\"step\":1,\"loss\":1.0,\"step_time_s\":0.5}\n");
  EXPECT_SAYS(error(weft({"report", at("empty")})), "a report needs a forecast: name what the run was on");
  EXPECT_SAYS(error(weft({"report", at("empty"), "--cluster", "H100-SXN"})), "H100-SXM");
}

}  // namespace
}  // namespace weft
