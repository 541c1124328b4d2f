#include "weft/records/metrics_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

using testing::slurp;
using testing::spill;
using testing::TempDir;

StepRecord step_at(int64_t step) {
  return {.step = step, .loss = 10.0 / 3 / double(step + 1), .memory_bytes = 1 << 20};
}

// The steps that a file holds, evaluations as negative numbers.
std::vector<int64_t> steps_of(const std::filesystem::path& file) {
  std::istringstream lines(slurp(file));
  std::vector<int64_t> steps;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    steps.push_back(json.contains("eval") ? -json["step"].get<int64_t>() : json["step"].get<int64_t>());
  }
  return steps;
}

void write_five_steps(const std::filesystem::path& file) {
  MetricsLog log(file, -1);
  for (int64_t step = 1; step <= 5; ++step) {
    log.append(step_at(step));
    if (step % 2 == 0) log.append(EvalRecord{.step = step, .loss = 1, .perplexity = std::exp(1.0), .tokens = 7});
  }
}

TEST(MetricsLog, ALineHasTheDocumentedFieldsInOrder) {
  const StepRecord record{.step = 3,
                          .loss = 2.5,
                          .aux_loss = 0.25,
                          .grad_norm = 1.5,
                          .lr = 3e-4,
                          .tokens_per_s = 1e4,
                          .step_time_s = 0.125,
                          .mfu = 0.5,
                          .memory_bytes = 5'000'000'000};
  EXPECT_EQ(to_json(record),
            R"({"step":3,"loss":2.5,"aux_loss":0.25,"grad_norm":1.5,"lr":0.0003,"tokens_per_s":10000.0,)"
            R"("step_time_s":0.125,"mfu":0.5,"memory_bytes":5000000000})");
  StepRecord scaled = record;
  scaled.loss_scale = 65536, scaled.skipped_steps = 2;
  EXPECT_TRUE(to_json(scaled).ends_with(R"("memory_bytes":5000000000,"loss_scale":65536.0,"skipped_steps":2})"));
  EXPECT_EQ(to_json(EvalRecord{.step = 4, .loss = 1.5, .perplexity = 4.5, .tokens = 99}),
            R"({"step":4,"eval":{"loss":1.5,"perplexity":4.5,"tokens":99}})");
}

TEST(MetricsLog, TermsOfAnObjectiveStandBesideTheLossAndReadBack) {
  TempDir dir;
  const StepRecord record{.step = 1, .loss = 0.5, .loss_scale = 2, .terms = {{"margin", -0.25}, {"accuracy", 0.75}}};
  EXPECT_TRUE(to_json(record).ends_with(R"("skipped_steps":0,"margin":-0.25,"accuracy":0.75})"));
  MetricsLog(dir / "metrics.jsonl", -1).append(record);
  EXPECT_EQ(read_metrics(dir / "metrics.jsonl").steps.at(0), record);
}

TEST(MetricsLog, WhereTimeWentReadsBackAndIsNoTermOfAnObjective) {
  TempDir dir;
  const StepRecord record{.step = 1, .data_s = 0.25, .waits_s = {{"tp", 0.5}, {"world", 0}}, .eval_s = 2, .save_s = 3};
  EXPECT_TRUE(to_json(record).ends_with(
      R"("memory_bytes":0,"data_s":0.25,"waits_s":{"tp":0.5,"world":0.0},"eval_s":2.0,"save_s":3.0})"));
  MetricsLog(dir / "metrics.jsonl", -1).append(record);
  EXPECT_EQ(read_metrics(dir / "metrics.jsonl").steps.at(0), record);
}

TEST(MetricsLog, SpikesAndTheBatchOfAStepReadBackAndAreNoTermsOfAnObjective) {
  TempDir dir;
  const StepRecord record{.step = 41, .spikes = 1, .batch = 45, .terms = {{"margin", 0.5}}};
  EXPECT_TRUE(to_json(record).ends_with(R"("memory_bytes":0,"spikes":1,"batch":45,"margin":0.5})"));
  MetricsLog(dir / "metrics.jsonl", -1).append(record);
  EXPECT_EQ(read_metrics(dir / "metrics.jsonl").steps.at(0), record);
  EXPECT_EQ(to_json(StepRecord()).find("spikes"), std::string::npos);
}

TEST(MetricsLog, ResultsOfTasksReadBackAndAreCutWithTheirStep) {
  TempDir dir;
  const TasksRecord first{.step = 1, .results = {{"piqa.acc", 0.5}, {"piqa.acc_stderr", 0.25}}},
      second{.step = 2, .results = {{"piqa.acc", 1}}};
  EXPECT_EQ(to_json(first), R"({"step":1,"tasks":{"piqa.acc":0.5,"piqa.acc_stderr":0.25}})");
  {
    MetricsLog log(dir / "metrics.jsonl", -1);
    log.append(step_at(1)), log.append(first), log.append(step_at(2)), log.append(second);
  }
  MetricsLog(dir / "metrics.jsonl", 1);
  const Metrics metrics = read_metrics(dir / "metrics.jsonl");
  EXPECT_EQ(metrics.tasks, std::vector<TasksRecord>{first});
  EXPECT_EQ(metrics.steps.size(), 1u);
  EXPECT_EQ(metrics.damaged_lines, 0);
}

TEST(MetricsLog, EveryFiniteNumberReadsBackToTheSameBits) {
  TempDir dir;
  std::vector<StepRecord> written;
  {
    MetricsLog log(dir / "metrics.jsonl", -1);
    for (int64_t i = 0; i < 2000; ++i) {
      double any;  // every finite double, denormal and huge ones included
      const uint64_t bits = random_bits64(7, uint64_t(i));
      std::memcpy(&any, &bits, sizeof any);
      if (!std::isfinite(any)) any = 0.1;
      const double as_float = double(float(random_normal(8, uint64_t(i))));
      written.push_back({.step = i, .loss = any, .grad_norm = as_float, .lr = 1.0 / double(i + 3)});
      log.append(written.back());
    }
  }
  EXPECT_EQ(read_metrics(dir / "metrics.jsonl").steps, written);
}

TEST(MetricsLog, NumbersThatJsonCannotSayAreNull) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(to_json(StepRecord{.step = 1, .loss = std::nan(""), .grad_norm = inf}));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());

  TempDir dir;
  spill(dir / "m", json.dump() + "\n");
  EXPECT_TRUE(std::isnan(read_metrics(dir / "m").steps.at(0).loss));
}

TEST(MetricsLog, ARecordIsInTheFileWhenAppendReturns) {
  TempDir dir;
  MetricsLog log(dir / "m", -1);
  log.append(step_at(1));
  EXPECT_EQ(steps_of(dir / "m"), (std::vector<int64_t>{1}));
  log.sync_to_disk();
}

TEST(MetricsLog, ResumingKeepsEarlierRecordsByteForByteAndDropsLaterOnes) {
  TempDir dir;
  write_five_steps(dir / "m");
  const std::string whole = slurp(dir / "m");
  {
    MetricsLog log(dir / "m", 4);
    EXPECT_EQ(steps_of(dir / "m"), (std::vector<int64_t>{1, 2, -2, 3, 4, -4}));
    log.append(step_at(5));
  }
  EXPECT_EQ(slurp(dir / "m"), whole);
}

TEST(MetricsLog, ResumingAtTheLastStepChangesNothing) {
  TempDir dir;
  write_five_steps(dir / "m");
  const std::string whole = slurp(dir / "m");
  MetricsLog log(dir / "m", 5);
  EXPECT_EQ(slurp(dir / "m"), whole);
}

TEST(MetricsLog, AFreshStartKeepsNothing) {
  TempDir dir;
  write_five_steps(dir / "m");
  MetricsLog log(dir / "m", -1);
  EXPECT_EQ(slurp(dir / "m"), "");
}

TEST(MetricsLog, ALastLineTornAnywhereIsDropped) {
  TempDir dir;
  write_five_steps(dir / "m");
  const std::string whole = slurp(dir / "m");
  const size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t size = last_line; size < whole.size(); ++size) {
    spill(dir / "m", whole.substr(0, size));
    EXPECT_EQ(read_metrics(dir / "m").steps.size(), 4u) << "torn at byte " << size;
    MetricsLog log(dir / "m", 5);
    EXPECT_EQ(slurp(dir / "m"), whole.substr(0, last_line)) << "torn at byte " << size;
  }
  spill(dir / "m", whole + std::string(4096, '\0') + "\n");  // a power cut can leave a block of zeros
  MetricsLog log(dir / "m", 5);
  EXPECT_EQ(slurp(dir / "m"), whole);
}

TEST(MetricsLog, ADamagedLineBeforeTheEndIsPassedOverCountedAndKept) {
  TempDir dir;
  for (const char* bad : {"garbage", "[1]", "{\"step\":\"2\"}", "{\"loss\":2}", "", "{\"step\":2,\"loss\":\"low\"}",
                          "{\"step\":2,\"eval\":3}"}) {
    const std::string text = "{\"step\":1}\n" + std::string(bad) + "\n{\"step\":3}\n";
    spill(dir / "m", text + "{\"step\":6}\n");
    EXPECT_EQ(read_metrics(dir / "m").damaged_lines, 1) << bad;
    EXPECT_EQ(read_metrics(dir / "m").steps.size(), 3u) << bad;
    const MetricsLog log(dir / "m", 5);
    EXPECT_EQ(log.damaged_lines(), 1) << bad;
    EXPECT_EQ(log.first_damaged_line(), 2) << bad;
    EXPECT_EQ(slurp(dir / "m"), text) << bad;
  }
}

TEST(MetricsLog, AnAbsentFolderIsNamed) {
  TempDir dir;
  EXPECT_THROW(MetricsLog(dir / "none" / "m", -1), FileError);
  EXPECT_THROW(read_metrics(dir / "none"), FileError);
}

// The process's file size limit stands in for a full disk: write() comes up short, then fails.
TEST(MetricsLog, AFullDiskLeavesTheFileEndingWithAWholeRecord) {
  TempDir dir;
  MetricsLog log(dir / "m", -1);
  log.append(step_at(1));
  const std::string before = slurp(dir / "m");

  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit tight{.rlim_cur = before.size() + 10, .rlim_max = old.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  EXPECT_THROW(log.append(step_at(2)), FileError);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);

  EXPECT_EQ(slurp(dir / "m"), before);
  log.append(step_at(2));
  EXPECT_EQ(steps_of(dir / "m"), (std::vector<int64_t>{1, 2}));
}

}  // namespace
}  // namespace weft
