// What a run writes for who looks at it: what its ranks send each other, traces, samples of text.
#include <set>

#include "support.h"
#include "train/golden.h"
#include "train/reference_machine.h"
#include "weft/page/trace_view.h"
#include "weft/page/traffic_map.h"
#include "weft/plan/run_plan.h"
#include "weft/records/metrics_log.h"
#include "weft/train/generate_texts.h"
#include "weft/train/run_samples.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class RunLooks : public ::testing::Test {
 protected:
  Recipe recipe_of(const std::string& run, const std::vector<std::string>& more) const {
    std::vector<std::string> all{"train.seq_length=8",  "train.global_batch_size=8",  "train.micro_batch_size=1",
                                 "train.train_iters=2", "train.log_grad_norms=false", "run.backend=ref",
                                 "run.threads=1",       "checkpoint.save_interval=0", "optimizer.lr_warmup_iters=1"};
    all.insert(all.end(), more.begin(), more.end());
    return testing::golden_recipe(fs::path(testing::kSourceDir) / "tests/golden/llama-gqa", dir_ / run, all);
  }
  nlohmann::json file_of(const std::string& run, const std::string& file) const {
    return nlohmann::json::parse(testing::slurp(dir_ / run / file));
  }
  testing::TempDir dir_;
};

using Layout = std::vector<std::string>;

// Of a file of traffic: bytes by axis, after it was compared with the plan of each rank.
std::map<std::string, double> sums_as_planned(const Recipe& recipe, const Machine& machine,
                                              const nlohmann::json& told) {
  std::map<std::string, double> of_axis;
  for (int rank = 0; rank < told["world"]; ++rank) {
    std::map<std::string, Traffic::Count> planned, sent;
    const RunPlan plan = plan_run(recipe, *machine.workspace_model, rank);
    for (const auto& [what, count] : plan.memory.traffic.counts()) {
      planned[what.first].calls += count.calls;
      planned[what.first].bytes += count.bytes;
    }
    for (const nlohmann::json& axis : told["axes"]) {
      Traffic::Count& c = sent[axis["axis"]];
      c.calls += axis["calls"][size_t(rank)].get<int64_t>();
      c.bytes += axis["collectives"][size_t(rank)].get<int64_t>();
      for (const nlohmann::json& message : axis["messages"])
        if (message[0] == rank) c.bytes += message[2].get<int64_t>();
    }
    for (const auto& [axis, count] : sent) of_axis[axis] += double(count.bytes);
    EXPECT_GE(sent["world"].bytes, planned["world"].bytes) << "what Trainer asks all ranks comes to it";
    planned.erase("world");
    sent.erase("world");
    EXPECT_EQ(planned, sent) << "rank " << rank << ": " << told;
  }
  return of_axis;
}

TEST_F(RunLooks, WhatRanksSendIsWhatWasPlannedByAxisAndRankAndTheMatrixAddsUpToIt) {
  for (const Layout& layout : {Layout{"parallel.dp=2", "parallel.tp=2"}, Layout{"parallel.pp=2", "parallel.dp=2"},
                               Layout{"parallel.cp=2", "parallel.dp=2", "parallel.zero_stage=3"}}) {
    const std::string run = layout[0] + layout[1];
    const Recipe recipe = recipe_of(run, layout);
    const Machine machine = testing::reference_machine(1);
    testing::train(recipe, machine);
    const nlohmann::json told = file_of(run, "traffic.json");
    EXPECT_EQ(told["step"], 1);
    EXPECT_GT(told["step_time_s"], 0);
    ASSERT_EQ(told["world"], 4);
    const std::map<std::string, double> of_axis = sums_as_planned(recipe, machine, told);
    EXPECT_GE(of_axis.size(), 3u);
    const nlohmann::json map = traffic_map(dir_ / run);
    ASSERT_EQ(map["axes"].size(), of_axis.size());
    for (const nlohmann::json& axis : map["axes"]) {
      double sum = 0;
      for (const nlohmann::json& row : axis["matrix"])
        for (const nlohmann::json& bytes : row) sum += bytes.get<double>();
      EXPECT_EQ(sum, of_axis.at(axis["axis"])) << axis;
      EXPECT_EQ(axis["bytes"], sum);
    }
  }
}

TEST_F(RunLooks, WhatRanksSendIsToldAgainAtEveryHundredthStepAndNotByOneRank) {
  const Recipe recipe =
      recipe_of("two", {"parallel.dp=2", "train.train_iters=101", "train.seq_length=2", "train.global_batch_size=2"});
  const Machine machine = testing::reference_machine(1);
  testing::train(recipe, machine);
  const nlohmann::json told = file_of("two", "traffic.json");
  EXPECT_EQ(told["step"], 100);
  sums_as_planned(recipe, machine, told);
  const Recipe one = recipe_of("one", {});
  testing::train(one, testing::reference_machine(1));
  EXPECT_FALSE(fs::exists(dir_ / "one/traffic.json"));
  EXPECT_EQ(traffic_map(dir_ / "one")["available"], false);
}

class TracedRun : public RunLooks {
 protected:
  using Slices = std::vector<nlohmann::json>;
  // Slices of a rank's track, in the order of time.
  static Slices slices_of(const nlohmann::json& trace, int rank, int track) {
    Slices all;
    for (const nlohmann::json& e : trace["traceEvents"])
      if (e["ph"] == "X" && e["pid"] == rank && e["tid"] == track) all.push_back(e);
    return all;
  }
  static double end_of(const nlohmann::json& slice) { return slice["ts"].get<double>() + slice["dur"].get<double>(); }
  // Of the instructions of a micro-batch's actions of a kind.
  static std::map<int64_t, nlohmann::json> by_micro_batch(const Slices& slices, const std::string& kind) {
    std::map<int64_t, nlohmann::json> all;
    for (const nlohmann::json& s : slices)
      if (s["cat"] == kind) all.emplace(s["args"]["micro_batch"].get<int64_t>(), s);
    return all;
  }
};

TEST_F(TracedRun, HasEveryActionOfEveryRankItsInstructionsAndTheirOpsByOneClock) {
  const Recipe recipe = recipe_of("traced", {"parallel.pp=2", "train.trace_interval=2", "train.train_iters=3"});
  const Machine machine = testing::reference_machine(1);
  testing::train(recipe, machine);
  const nlohmann::json trace = file_of("traced", "trace.json");
  EXPECT_EQ(trace["traceEvents"][0]["args"]["step"], 2);
  for (int rank = 0; rank < 2; ++rank) {
    const Slices actions = slices_of(trace, rank, 0), instructions = slices_of(trace, rank, 1),
                 ops = slices_of(trace, rank, 2);
    std::string schedule;
    for (size_t i = 0; i + 1 < actions.size(); ++i)
      schedule += (i > 0 ? " " : "") + actions[i]["name"].get<std::string>();
    EXPECT_EQ(schedule, to_string(plan_run(recipe, *machine.workspace_model, rank).step.schedule));
    EXPECT_EQ(actions.back()["cat"], "update");
    const auto within = [&](const nlohmann::json& inner, const Slices& of) {
      return std::any_of(of.begin(), of.end(), [&](const nlohmann::json& outer) {
        return outer["ts"] <= inner["ts"] && end_of(inner) <= end_of(outer) + 1e-3 &&
               outer.value("args", nlohmann::json()) == inner.value("args", nlohmann::json());
      });
    };
    for (const nlohmann::json& i : instructions)
      if (i.contains("args")) { EXPECT_TRUE(within(i, actions)) << i; }
    std::set<std::string> products;
    for (const nlohmann::json& op : ops) {
      EXPECT_TRUE(within(op, instructions)) << op;
      if (op["name"].get<std::string>().starts_with("matmul")) products.insert(op["name"]);
    }
    EXPECT_GT(products.size(), 3u);
  }
  // Where one stage waits for the other: what is received was sent before.
  const auto sent = by_micro_batch(slices_of(trace, 0, 1), "send"),
             received = by_micro_batch(slices_of(trace, 1, 1), "receive");
  ASSERT_EQ(sent.size(), 8u);
  ASSERT_EQ(received.size(), 8u);
  for (const auto& [micro_batch, s] : sent) EXPECT_LE(s["ts"], end_of(received.at(micro_batch))) << micro_batch;
}

TEST_F(TracedRun, LearnsTheSameToTheBitAndAnotherStepIsNotTraced) {
  const std::vector<std::string> layout{"parallel.dp=2", "parallel.zero_stage=3", "train.train_iters=3"};
  auto traced = layout;
  traced.push_back("train.trace_interval=2");
  for (const auto& [run, settings] : {std::pair("plain", layout), {"traced", traced}}) {
    const Recipe recipe = recipe_of(run, settings);
    testing::train(recipe, testing::reference_machine(1));
  }
  const auto a = read_metrics(dir_ / "plain/metrics.jsonl").steps,
             b = read_metrics(dir_ / "traced/metrics.jsonl").steps;
  ASSERT_EQ(a.size(), 3u);
  ASSERT_EQ(b.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(std::pair(a[i].loss, a[i].grad_norm), std::pair(b[i].loss, b[i].grad_norm));
  EXPECT_FALSE(fs::exists(dir_ / "plain/trace.json"));
  EXPECT_EQ(file_of("traced", "trace.json")["traceEvents"][0]["args"]["step"], 2);
}

TEST_F(TracedRun, ThePageShowsWholeStepsThinnedAndEveryOpWhenItLooksCloser) {
  const Recipe recipe = recipe_of("traced", {"parallel.pp=2", "train.trace_interval=2"});
  testing::train(recipe, testing::reference_machine(1));
  const Slices ops = slices_of(file_of("traced", "trace.json"), 1, 2);
  TraceView view(dir_ / "traced");
  const nlohmann::json whole = view.json({});
  EXPECT_EQ(whole["step"], 2);
  EXPECT_EQ(whole["ranks"], nlohmann::json({0, 1}));
  ASSERT_EQ(whole["rows"].size(), 6u);
  int64_t told = 0;
  for (const nlohmann::json& slice : whole["rows"][5]["slices"]) told += slice[5].get<int64_t>();
  EXPECT_EQ(told, int64_t(ops.size()));
  const nlohmann::json& op = ops[ops.size() / 2];
  const nlohmann::json near = view.json({.from_us = op["ts"].get<double>() - 1, .to_us = end_of(op) + 1, .rank = 1});
  ASSERT_EQ(near["rows"].size(), 3u);
  const auto is_it = [&](const nlohmann::json& s) {
    return s[0] == op["ts"] && s[1] == op["dur"] && s[2] >= 0 && near["names"][s[2].get<size_t>()] == op["name"] &&
           s[4] == op.value("args", nlohmann::json({{"micro_batch", -1}}))["micro_batch"];
  };
  const nlohmann::json& slices = near["rows"][2]["slices"];
  EXPECT_TRUE(std::any_of(slices.begin(), slices.end(), is_it)) << op << " in " << near;
}

TEST_F(RunLooks, SamplesAreWhatTheCheckpointsOfThoseStepsWriteOnLayouts) {
  const std::vector<std::string> prompts{"of ", "What is"};
  for (const std::string layout : {"parallel.dp=1", "parallel.dp=2", "parallel.pp=2"}) {
    const Recipe recipe =
        recipe_of(layout, {layout, "train.seq_length=32", "train.train_iters=5", "train.sample_interval=2",
                           "optimizer.lr=0.01", R"(train.sample_prompts=["of ", "What is"])", "data.tokenizer=byte",
                           "checkpoint.save_interval=2", "checkpoint.keep_latest=0"});
    const Machine machine = testing::reference_machine(1);
    testing::train(recipe, machine);
    std::istringstream lines(testing::slurp(dir_ / layout / "samples.jsonl"));
    std::string line;
    for (const int64_t step : {2, 4}) {
      ASSERT_TRUE(std::getline(lines, line));
      const nlohmann::json told = nlohmann::json::parse(line);
      EXPECT_EQ(told["step"], step);
      ASSERT_EQ(told["samples"].size(), 2u);
      const auto folder = dir_ / layout / fmt::format("checkpoints/step-{}", step);
      const auto tokenizer = open_tokenizer("byte", folder, 512);
      for (size_t i = 0; i < 2; ++i) {
        Tokens ids;
        tokenizer->encode(prompts[i], ids);
        // All of a text fits into what the model sees; the longest prompt leaves 25 tokens.
        TextGenerator generator(
            folder, {.machine = machine, .precision = kF64, .texts = {{.prompt = int64_t(ids.size()), .all = 32}}});
        const Tokens behind = generate_texts(
            generator,
            {.prompts = {ids}, .how = {.temperature = 0}, .max_tokens = 25, .ends = [&](int64_t, int32_t token) {
               return token == tokenizer->end_of_document() ? TextEnds::before_token : TextEnds::no;
             }})[0];
        EXPECT_EQ(told["samples"][i]["prompt"], prompts[i]);
        const std::string text = tokenizer->decode(behind, Tokenizer::Specials::kShown);
        const std::string as_told = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        EXPECT_EQ(told["samples"][i]["text"].dump(), nlohmann::json::parse(as_told).dump()) << layout << ", " << step;
      }
    }
    EXPECT_FALSE(std::getline(lines, line));
  }
}

TEST_F(RunLooks, SamplesNeedPromptsThatLeaveRoom) {
  const auto refused = [&](const std::vector<std::string>& more) {
    return testing::error_of([&] { judge_samples(recipe_of("refused", more)); });
  };
  EXPECT_SAYS(refused({"train.sample_interval=2"}), "train.sample_prompts");
  EXPECT_SAYS(refused({R"(train.sample_prompts=["a"])"}), "train.sample_interval");
  EXPECT_SAYS(refused({"train.sample_interval=2", R"(train.sample_prompts=["12345678"])", "data.tokenizer=byte"}),
              "from 1 to 7 leave room");
  EXPECT_SAYS(refused({"train.sample_interval=2", R"(train.sample_prompts=[""])", "data.tokenizer=byte"}),
              "expected a list of texts in quotes");
}

}  // namespace
}  // namespace weft
