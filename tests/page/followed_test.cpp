// Files that grow, are cut and replaced while they are read; records as numbers; curves that are thinned.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "page/watched_runs.h"
#include "weft/page/followed_file.h"
#include "weft/page/metrics_follower.h"
#include "weft/page/record_numbers.h"
#include "weft/page/thinned_curve.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::append_text;
using testing::spill;
using testing::TempDir;

constexpr int64_t kAll = int64_t(1) << 40;  // bytes, or steps

struct Heard {
  std::vector<std::string> lines = {};
  std::vector<int64_t> begins = {};
  int anew = 0, too_long = 0;
  FollowedFile::Hearer hearer() {
    return {.anew = [this] { ++anew, lines.clear(), begins.clear(); },
            .line = [this](std::string_view text, int64_t begin) { lines.emplace_back(text), begins.push_back(begin); },
            .too_long = [this] { ++too_long; }};
  }
};

TEST(FollowedFile, HearsWholeLinesAsTheyCome) {
  TempDir dir;
  FollowedFile file({.file = dir / "f"});
  Heard heard;
  file.poll(heard.hearer(), kAll);  // it is not there yet
  spill(dir / "f", "one\ntw");
  file.poll(heard.hearer(), kAll);
  EXPECT_EQ(heard.lines, (std::vector<std::string>{"one"}));
  append_text(dir / "f", "o\n\nfour\n");
  file.poll(heard.hearer(), kAll);
  EXPECT_EQ(heard.lines, (std::vector<std::string>{"one", "two", "", "four"}));
  EXPECT_EQ(heard.begins, (std::vector<int64_t>{0, 4, 8, 9}));
  EXPECT_EQ(heard.anew, 0);
  std::vector<std::string> again;
  file.read_again(4, [&](std::string_view line) { return again.emplace_back(line), again.size() < 2; });
  EXPECT_EQ(again, (std::vector<std::string>{"two", ""}));
}

TEST(FollowedFile, HearsAllAnewWhereItWasCutAndIsLongerAgain) {
  TempDir dir;
  FollowedFile file({.file = dir / "f"});
  Heard heard;
  spill(dir / "f", "1\n2\n3\n");
  file.poll(heard.hearer(), kAll);
  fs::resize_file(dir / "f", 2);
  append_text(dir / "f", "2b\n3b\n4b\n");
  file.poll(heard.hearer(), kAll);
  EXPECT_EQ(heard.anew, 1);
  EXPECT_EQ(heard.lines, (std::vector<std::string>{"1", "2b", "3b", "4b"}));
}

TEST(FollowedFile, HearsAllAnewWhereItIsAnotherFileOrGone) {
  TempDir dir;
  FollowedFile file({.file = dir / "f"});
  Heard heard;
  spill(dir / "f", "1\n2\n");
  file.poll(heard.hearer(), kAll);
  spill(dir / "g", "1\n2\n3\n");
  fs::rename(dir / "g", dir / "f");
  file.poll(heard.hearer(), kAll);
  EXPECT_EQ(heard.anew, 1);
  EXPECT_EQ(heard.lines.size(), 3u);
  fs::remove(dir / "f");
  file.poll(heard.hearer(), kAll);
  EXPECT_EQ(heard.anew, 2);
  EXPECT_TRUE(heard.lines.empty());
}

TEST(FollowedFile, ReadsALongFileInPortions) {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i) + "\n";
  spill(dir / "f", text);
  FollowedFile file({.file = dir / "f"});
  Heard heard;
  file.poll(heard.hearer(), 1);
  EXPECT_TRUE(file.has_more());
  EXPECT_LT(heard.lines.size(), 100'000u);
  while (file.has_more()) file.poll(heard.hearer(), 1);
  EXPECT_EQ(heard.lines.size(), 100'000u);
  EXPECT_EQ(heard.lines.back(), "99999");
  EXPECT_EQ(heard.anew, 0);
}

TEST(FollowedFile, PassesOverLinesThatAreTooLong) {
  TempDir dir;
  FollowedFile file({.file = dir / "f", .longest_line = 1000});
  Heard heard;
  spill(dir / "f", "a\n" + std::string(2000, 'x') + "\nb\n" + std::string(600'000, 'y'));
  file.poll(heard.hearer(), kAll);
  append_text(dir / "f", "yy\nc\n");
  file.poll(heard.hearer(), kAll);
  EXPECT_EQ(heard.lines, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(heard.too_long, 2);
}

TEST(FollowedFile, DoesNotWaitForAPipeOrFollowALink) {
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  spill(dir / "secret", "secret\n");
  fs::create_symlink(dir / "secret", dir / "link");
  fs::create_directory(dir / "folder");
  for (const char* name : {"pipe", "link", "folder"}) {
    FollowedFile file({.file = dir / name});
    Heard heard;
    file.poll(heard.hearer(), kAll);
    EXPECT_TRUE(heard.lines.empty()) << name;
    EXPECT_SAYS(file.problem(), "not read");
  }
}

std::map<std::string, double> numbers_of(const std::string& line) {
  RecordNumbers record;
  EXPECT_TRUE(read_record(line, record)) << line;
  return {record.numbers.begin(), record.numbers.end()};
}

TEST(RecordNumbers, HaveTheNamesThatThePageGivesThem) {
  const auto step =
      numbers_of(R"({"step":3,"loss":2.5,"grad_norm":null,"waits_s":{"tp":0.25,"world":1},"expert_load":[[1,3],[2,2]],)"
                 R"("router_entropy":[0.5,0.75],"text":"x","deep":{"a":{"b":1}},"list":[1]})");
  EXPECT_EQ(step.at("loss"), 2.5);
  EXPECT_TRUE(std::isnan(step.at("grad_norm")));
  EXPECT_EQ(step.at("waits_s.tp"), 0.25);
  EXPECT_EQ(step.at("waits_s.world"), 1);
  EXPECT_EQ(step.at("expert_load.0.max_over_mean"), 1.5);
  EXPECT_EQ(step.at("expert_load.0.min_over_mean"), 0.5);
  EXPECT_EQ(step.at("expert_load.1.max_over_mean"), 1);
  EXPECT_EQ(step.at("router_entropy.1"), 0.75);
  EXPECT_EQ(step.at("list.0"), 1);
  EXPECT_EQ(step.size(), 11u);
  const auto eval = numbers_of(R"({"step":3,"eval":{"loss":2,"tokens":64}})");
  EXPECT_EQ(eval, (std::map<std::string, double>{{"held_out.loss", 2}, {"held_out.tokens", 64}}));
  EXPECT_EQ(numbers_of(R"({"step":3,"tasks":{"piqa.acc":0.5}})"), (std::map<std::string, double>{{"piqa.acc", 0.5}}));
}

TEST(RecordNumbers, TakeNoCopiesOfLongNamesAndNoneWithoutAName) {
  const std::string longest(kLongestKey, 'k'), too_long(kLongestKey + 1, 'k');
  std::string line = "{\"step\":3,\"" + too_long + "\":{";
  for (int i = 0; i < 5000; ++i) line += (i > 0 ? ",\"a" : "\"a") + std::to_string(i) + "\":1";
  line += "},\"b\":{\"" + too_long + "\":1,\"c\":2},\"" + too_long + "\":[[1,2],[3,4]],\"" + longest +
          "\":5,\"\":6,\"d\":{\"\":7}}";
  EXPECT_EQ(numbers_of(line), (std::map<std::string, double>{{"b.c", 2}, {longest, 5}}));
}

TEST(RecordNumbers, TakeListsOfExpertsOfAnyType) {
  EXPECT_EQ(numbers_of(R"({"step":1,"expert_load":3})"), (std::map<std::string, double>{{"expert_load", 3}}));
  EXPECT_EQ(numbers_of(R"({"step":1,"expert_load":{"a":[1,3],"b":2}})"),
            (std::map<std::string, double>{{"expert_load.b", 2}}));
  EXPECT_TRUE(numbers_of(R"({"step":1,"expert_load":[["x",{"y":1},[2]],[0,0],[]],"router_entropy":"x"})").empty());
  const auto some = numbers_of(R"({"step":1,"expert_load":[[1,null,3]]})");
  EXPECT_TRUE(some.empty() || std::isnan(some.at("expert_load.0.max_over_mean"))) << "a part of it is not known";
}

TEST(RecordNumbers, RefusesWhatIsNoRecord) {
  RecordNumbers record;
  for (const char* line :
       {"", "{", "{}", "[1]", "3", "null", R"({"step":"3"})", R"({"step":-1})", R"({"step":1.5})", R"({"step":1e300})",
        R"({"loss":1})", R"({"step":1} x)", "{\"step\":1,\"a\":\"\xff\"}", R"({"step":1,"loss":1e999})"})
    EXPECT_FALSE(read_record(line, record)) << line;
  const std::string deep = R"({"step":1,"a":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_TRUE(read_record(deep, record));
}

TEST(ThinnedCurve, KeepsExtremesAndNeverExceeds) {
  ThinnedCurve curve(64);
  const auto value = [](int64_t step) {
    return step == 7777 ? 100.0 : step == 31'234 ? -100.0 : std::sin(double(step) / 500);
  };
  for (int64_t step = 1; step <= 50'000; ++step) curve.add(step, value(step));
  for (const size_t most : {4u, 16u, 1000u}) {
    const CurveWindow all = curve.window(0, kAll, most);
    EXPECT_LE(all.points.size(), most);
    EXPECT_TRUE(all.thinned);
    bool has_high = false, has_low = false;
    int64_t last = 0;
    for (const CurvePoint& p : all.points) {
      EXPECT_EQ(p.value, value(p.step));
      EXPECT_GT(p.step, last);
      last = p.step;
      has_high |= p.value == 100;
      has_low |= p.value == -100;
    }
    EXPECT_TRUE(has_high && has_low) << most;
  }
  EXPECT_LE(curve.bytes(), 64 * ThinnedCurve::kBucketBytes);
  for (const CurvePoint& p : curve.window(10'000, 20'000, 1000).points)
    EXPECT_TRUE(p.step >= 10'000 && p.step <= 20'000);
  EXPECT_TRUE(curve.window(50'001, kAll, 1000).points.empty());
  EXPECT_TRUE(curve.window(5, 4, 1000).points.empty());
  EXPECT_EQ(curve.last().step, 50'000);
}

TEST(ThinnedCurve, HasEveryPointWhereThereIsRoom) {
  ThinnedCurve curve(64);
  for (int64_t step = 10; step <= 30; ++step) curve.add(step, step == 20 ? std::nan("") : double(step));
  const CurveWindow window = curve.window(15, 25, 11);
  EXPECT_FALSE(window.thinned);
  ASSERT_EQ(window.points.size(), 11u);
  for (size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(window.points[i].step, int64_t(15 + i));
    const double value = window.points[i].value;
    EXPECT_TRUE(window.points[i].step == 20 ? std::isnan(value) : value == double(15 + i)) << value;
  }
}

TEST(ThinnedCurve, ShowsThatNothingFiniteWasRecorded) {
  ThinnedCurve curve(4);
  for (int64_t step = 1; step <= 64; ++step) curve.add(step, step > 32 ? std::nan("") : 1);
  const CurveWindow window = curve.window(1, 64, 8);
  ASSERT_FALSE(window.points.empty());
  EXPECT_EQ(window.points.front().value, 1);
  EXPECT_TRUE(std::isnan(window.points.back().value));
}

std::vector<double> values_of(const MetricsFollower& m, const std::string& name, int64_t from = 0, int64_t to = kAll) {
  std::vector<double> values;
  const auto windows = m.windows({name}, from, to, kMostCurvePoints, false);
  for (const CurvePoint& p : windows[0].points) values.push_back(p.value);
  return values;
}

TEST(MetricsFollower, ReadsAgainFromTheStepThatARunWentBackTo) {
  TempDir dir;
  const auto record = [](int64_t step, double loss) {
    return StepRecord{.step = step, .loss = loss, .step_time_s = 0.5, .waits_s = {{"tp", 0.125}}};
  };
  MetricsFollower metrics(dir.path());
  {
    MetricsLog log(dir / "metrics.jsonl", 0);
    for (int64_t step = 1; step <= 6; ++step) log.append(record(step, 10));
    log.append(EvalRecord{.step = 6, .loss = 1});
  }
  metrics.poll(kAll);
  EXPECT_EQ(metrics.generation(), 1);
  EXPECT_EQ(metrics.last_step(), 6);
  EXPECT_EQ(metrics.best_evaluation()->loss, 1);
  MetricsLog log(dir / "metrics.jsonl", 2);
  for (int64_t step = 3; step <= 9; ++step) log.append(record(step, 20));
  metrics.poll(kAll);
  EXPECT_EQ(metrics.generation(), 2);
  EXPECT_EQ(metrics.last_step(), 9);
  EXPECT_EQ(values_of(metrics, "loss"), (std::vector<double>{10, 10, 20, 20, 20, 20, 20, 20, 20}));
  EXPECT_FALSE(metrics.best_evaluation().has_value());
  EXPECT_EQ(metrics.sums().steps, 9);
  EXPECT_DOUBLE_EQ(metrics.sums().step_s, 4.5);
  EXPECT_DOUBLE_EQ(metrics.sums().waits_s.at("tp"), 1.125);
}

TEST(MetricsFollower, ShowsEveryPointOfAShortWindowOfALongRunInBoundedMemory) {
  TempDir dir;
  const auto lines = [](int64_t from, int64_t to) {
    std::string text;
    for (int64_t step = from; step <= to; ++step)
      text += "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(step % 977) + "}\n";
    return text;
  };
  spill(dir / "metrics.jsonl", lines(1, 20'000));
  MetricsFollower metrics(dir.path());
  metrics.poll(kAll);
  const std::vector<double> values = values_of(metrics, "loss", 5000, 5999);
  ASSERT_EQ(values.size(), 1000u);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], double((5000 + i) % 977));
  EXPECT_LE(values_of(metrics, "loss").size(), kMostCurvePoints);
  const size_t before = metrics.bytes();
  append_text(dir / "metrics.jsonl", lines(20'001, 40'000));
  metrics.poll(kAll);
  EXPECT_EQ(metrics.last_step(), 40'000);
  EXPECT_LE(metrics.bytes(), before + (4 << 10));  // marks of places in the file
  EXPECT_LT(metrics.bytes(), size_t(400 << 10));
}

TEST(MetricsFollower, HasTheNewestPointsInMemory) {
  TempDir dir;
  std::string text;
  for (int step = 1; step <= 20'000; ++step) text += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, step % 977);
  spill(dir / "metrics.jsonl", text);
  MetricsFollower metrics(dir.path());
  metrics.poll(kAll);
  fs::remove(dir / "metrics.jsonl");  // nothing can be read again
  const std::vector<double> values = values_of(metrics, "loss", 20'001 - int64_t(kNewestKept));
  ASSERT_EQ(values.size(), kNewestKept);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], double((20'001 - kNewestKept + i) % 977));
  EXPECT_TRUE(values_of(metrics, "loss", 20'001).empty());
}

TEST(MetricsFollower, BoundsTheNamesOfARun) {
  TempDir dir;
  std::string line = "{\"step\":1";
  for (int i = 0; i < 1000; ++i) line += ",\"n" + std::to_string(i) + "\":1";
  spill(dir / "metrics.jsonl", line + "}\n");
  MetricsFollower metrics(dir.path());
  metrics.poll(kAll);
  EXPECT_EQ(metrics.curves().size(), kMostCurves);
  EXPECT_EQ(metrics.names_left_out(), int64_t(1000 - kMostCurves));
}

TEST(NormMap, HasTheGreatestNormOfEachColumn) {
  TempDir dir;
  std::string text;
  for (int step = 1; step <= 4000; ++step)
    text += "{\"grad_norm\":{\"a\":" + std::to_string(step % 100) + ",\"b\":" + (step == 1234 ? "null" : "0.5") +
            "},\"step\":" + std::to_string(step) + "}\n";
  spill(dir / "grad_norms.jsonl", text + "nonsense\n[1]\n{\"step\":5000}\n{\"step\":4000,\"grad_norm\":{\"" +
                                      std::string(1 << 20, 'k') + "\":1}}\n");
  NormMap map(dir.path(), kMapKinds[0]);
  map.poll(kAll);
  const NormMap::Columns columns = map.columns(0, kAll, 40);
  EXPECT_EQ(columns.names, (std::vector<std::string>{"a", "b"}));
  ASSERT_LE(columns.steps.size(), 40u);
  EXPECT_EQ(columns.steps.front(), 1);
  EXPECT_EQ(columns.ends.back(), 4000);
  int bad = 0;
  for (size_t c = 0; c < columns.steps.size(); ++c) {
    EXPECT_EQ(columns.values[0][c], 99) << c;  // of 100 steps and more
    bad += std::isnan(columns.values[1][c]);
    EXPECT_EQ(columns.ends[c] + 1, c + 1 < columns.steps.size() ? columns.steps[c + 1] : 4001) << c;
  }
  EXPECT_EQ(bad, 1);
  EXPECT_EQ(map.columns(1, 4, 400).steps.size(), 1u);  // four steps are one stretch by now
}

std::string weight_line(int64_t step, double norm, const std::string& ratio) {
  return "{\"step\":" + std::to_string(step) + ",\"update_ratio\":{\"a\":" + ratio +
         "},\"weight_norm\":{\"a\":" + std::to_string(norm) + "}}\n";
}

TEST(NormMap, HasAColumnForEachRecordHoweverFarApartTheyAre) {
  TempDir dir;
  std::string text = weight_line(1, 1, "null");
  for (int64_t step = 100; step <= 1000; step += 100) text += weight_line(step, double(step), "0.5");
  spill(dir / "weight_norms.jsonl", text);
  NormMap norms(dir.path(), kMapKinds[1]), ratios(dir.path(), kMapKinds[2]);
  norms.poll(kAll);
  ratios.poll(kAll);
  const NormMap::Columns all = norms.columns(0, kAll, 400);
  EXPECT_EQ(all.steps, (std::vector<int64_t>{1, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000}));
  EXPECT_EQ(all.ends, all.steps);
  EXPECT_EQ(all.values[0], (std::vector<double>{1, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000}));
  const NormMap::Columns of_ratios = ratios.columns(0, 250, 400);
  EXPECT_TRUE(std::isnan(of_ratios.values.at(0).at(0)));
  EXPECT_EQ(of_ratios.values[0].at(2), 0.5);

  const NormMap::Columns two = norms.columns(0, kAll, 2);
  EXPECT_EQ(two.steps, (std::vector<int64_t>{1, 500}));
  EXPECT_EQ(two.ends, (std::vector<int64_t>{400, 1000}));
  EXPECT_EQ(two.values[0], (std::vector<double>{400, 1000}));

  EXPECT_EQ(norms.columns(150, 350, 400).steps, (std::vector<int64_t>{200, 300}));
  EXPECT_TRUE(norms.columns(120, 180, 400).steps.empty()) << "no step between was recorded";
}

TEST(NormMap, HasTheLaterLineOfAStepThatRanTwice) {
  TempDir dir;
  std::string text;
  for (int64_t step = 10; step <= 50; step += 10) text += weight_line(step, 1, "0.5");
  spill(dir / "weight_norms.jsonl", text);
  NormMap map(dir.path(), kMapKinds[1]);
  map.poll(kAll);
  testing::append_text(dir / "weight_norms.jsonl", weight_line(25, 3, "0.5") + weight_line(30, 0.5, "0.5"));
  map.poll(kAll);
  const NormMap::Columns columns = map.columns(0, kAll, 400);
  EXPECT_EQ(columns.values[0], (std::vector<double>{1, 3, 0.5, 1, 1})) << "the greatest of steps 20 and 25";
  EXPECT_EQ(columns.steps, (std::vector<int64_t>{10, 20, 30, 40, 50}));
  EXPECT_EQ(columns.ends, (std::vector<int64_t>{10, 25, 30, 40, 50}));
}

TEST(LongRunSlow, AMillionStepsTakeLittleMemory) {
  TempDir dir;
  MetricsFollower metrics(dir.path());
  int64_t step = 0;
  for (int part = 0; part < 50; ++part) {
    std::string text;
    for (int i = 0; i < 20'000; ++i) {
      ++step;
      text += fmt::format(
          R"({{"step":{},"loss":{},"aux_loss":0.0,"grad_norm":1.5,"lr":0.0003,"tokens_per_s":1e4,"step_time_s":0.01,)"
          R"("mfu":0.5,"memory_bytes":5000000000,"data_s":0.001,"waits_s":{{"tp":0.001,"world":0.002}}}})"
          "\n",
          step, step == 654'321 ? 99.0 : 2.5);
    }
    append_text(dir / "metrics.jsonl", text);
    metrics.poll(kAll);
  }
  EXPECT_EQ(metrics.num_records(), 1'000'000);
  EXPECT_LT(metrics.bytes(), size_t(5 << 20));
  const auto loss = values_of(metrics, "loss");
  EXPECT_LE(loss.size(), kMostCurvePoints);
  EXPECT_EQ(*std::max_element(loss.begin(), loss.end()), 99);
  EXPECT_EQ(values_of(metrics, "loss", 654'000, 655'000).size(), 1001u);
}

}  // namespace
}  // namespace weft
