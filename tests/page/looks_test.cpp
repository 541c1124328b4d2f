// What the page is told of the files that a run replaces or adds to for it: bytes between ranks, traces, samples.
#include <gtest/gtest.h>

#include "page/watched_runs.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::append_text;
using testing::asked;
using testing::make_run;
using testing::spill;
using testing::TempDir;
using testing::watched;

class PageLooks : public ::testing::Test {
 protected:
  TempDir dir_;
};

// Rank 0 gives 10 bytes to three others, who get 4, 3 and 3; rank 2 sends rank 1 five.
constexpr const char* kSent =
    R"({"step":100,"step_time_s":0.5,"world":4,"axes":[
{"axis":"dp","groups":[[0,1,2,3]],"calls":[1,0,0,0],"collectives":[10,0,0,0],"messages":[]},
{"axis":"pp","groups":[[0,3],[2,1]],"calls":[0,0,1,0],"collectives":[0,0,0,0],"messages":[[2,1,5]]},
{"axis":"pp","groups":[[0,3],[2,1]],"calls":[0,0,2,0],"collectives":[0,0,0,0],"messages":[[2,1,6]]}]})";

TEST_F(PageLooks, HasAMatrixOfWhatRanksSendByAxis) {
  const fs::path run = make_run(dir_ / "first");
  spill(run / "traffic.json", kSent);
  LivePage page(watched({run, make_run(dir_ / "second")}));
  const json told = asked(page, "/api/traffic");
  EXPECT_EQ(told["available"], true);
  EXPECT_EQ(told["step"], 100);
  EXPECT_EQ(told["step_time_s"], 0.5);
  ASSERT_EQ(told["axes"].size(), 2u);
  const json dp = told["axes"][0], pp = told["axes"][1];
  EXPECT_EQ(dp["matrix"], json::parse("[[0,4,3,3],[0,0,0,0],[0,0,0,0],[0,0,0,0]]"));
  EXPECT_EQ(dp["bytes"], 10);
  EXPECT_EQ(pp["matrix"], json::parse("[[0,0,0,0],[0,0,0,0],[0,11,0,0],[0,0,0,0]]"));
  EXPECT_EQ(pp["calls"], 3);
  EXPECT_EQ(pp["most_bytes"], 11);
  EXPECT_EQ(pp["from"], 2);
  EXPECT_EQ(pp["to"], 1);
  const json none = asked(page, "/api/traffic", {{"run", "1"}});
  EXPECT_EQ(none["available"], false);
}

TEST_F(PageLooks, AMatrixOfManyRanksHasCellsOfSeveral) {
  const fs::path run = make_run(dir_ / "first");
  const int world = 130;
  json axis{{"axis", "pp"}, {"groups", json::array()}, {"messages", {{0, 129, 7}, {1, 2, 5}}}};
  axis["calls"] = axis["collectives"] = std::vector<int>(size_t(world), 0);
  spill(run / "traffic.json",
        json{{"step", 1}, {"step_time_s", 1}, {"world", world}, {"axes", json::array({axis})}}.dump());
  LivePage page(watched({run}));
  const json told = asked(page, "/api/traffic");
  EXPECT_EQ(told["ranks_per_cell"], 3);
  ASSERT_EQ(told["axes"][0]["matrix"].size(), 44u);
  EXPECT_EQ(told["axes"][0]["matrix"][0][43], 7);
  EXPECT_EQ(told["axes"][0]["matrix"][0][0], 5);
}

TEST_F(PageLooks, AMatrixThatIsNoneIsToldAsSuch) {
  const fs::path run = make_run(dir_ / "first");
  LivePage page(watched({run}));
  const std::pair<std::string, std::string> spoilt[] = {{"\"world\":4", "\"world\":1000000000"},
                                                        {"[[0,1,2,3]]", "[[0,1,2,4]]"},
                                                        {"[[0,1,2,3]]", "[[0,1],[1,2]]"},
                                                        {"[[0,1,2,3]]", "[3]"},
                                                        {"[10,0,0,0]", "[10,0,0]"},
                                                        {"[10,0,0,0]", "[-1,0,0,0]"},
                                                        {"[[2,1,5]]", "[[2,1,-5]]"},
                                                        {"[[2,1,5]]", "[[2,1]]"},
                                                        {"[[2,1,5]]", "[[2,1,99999999999999999]]"},
                                                        {"\"axes\":[", "\"axes\":[3,"}};
  for (const auto& [right, wrong] : spoilt) {
    std::string text = kSent;
    text.replace(text.find(right), right.size(), wrong);
    spill(run / "traffic.json", text);
    const json told = asked(page, "/api/traffic");
    EXPECT_EQ(told["available"], false) << wrong;
    EXPECT_SAYS(told["reason"].get<std::string>(), "traffic.json");
  }
}

TEST_F(PageLooks, HasTheNewestTraceWhereThereIsOne) {
  const fs::path run = make_run(dir_ / "first");
  LivePage page(watched({run}));
  const auto trace = [&](const LivePage::Params& params = {}) { return asked(page, "/api/trace", params); };
  EXPECT_SAYS(trace()["reason"].get<std::string>(), "train.trace_interval");
  const auto slice = [](int rank, int track, double ts, double dur, const std::string& name) {
    return fmt::format(R"({{"name":"{}","cat":"op","ph":"X","pid":{},"tid":{},"ts":{},"dur":{}}})", name, rank, track,
                       ts, dur) +
           ",\n";
  };
  // A long slice, 1,000 short ones, and a long one.
  std::string text = "{\"traceEvents\":[\n{\"name\":\"step\",\"ph\":\"M\",\"args\":{\"step\":7}},\n";
  text += slice(3, 2, 0, 500'000, "first");
  for (int i = 0; i < 1000; ++i) text += slice(3, 2, 500'000 + i, 0.5, fmt::format("op {}", i));
  text += slice(3, 2, 501'000, 499'000, "last") + "]}\n";
  spill(run / "trace.json", text);
  const json whole = trace();
  EXPECT_EQ(whole["step"], 7);
  EXPECT_EQ(whole["end_us"], 1e6);
  ASSERT_EQ(whole["rows"].size(), 1u);
  EXPECT_EQ(whole["rows"][0]["rank"], 3);
  const json slices = whole["rows"][0]["slices"];
  ASSERT_EQ(slices.size(), 3u) << slices;
  EXPECT_EQ(slices[1], json::parse("[500000.0,999.5,-1,0,-1,1000]"));
  EXPECT_EQ(whole["names"][slices[2][2].get<size_t>()], "last");
  const json near = trace({{"from_us", "500100"}, {"to_us", "500110"}});
  ASSERT_EQ(near["rows"][0]["slices"].size(), 11u) << near;
  EXPECT_EQ(near["names"][near["rows"][0]["slices"][3][2].get<size_t>()], "op 103");
  EXPECT_EQ(trace({{"rank", "1"}})["rows"], json::array());
  EXPECT_EQ(page.answer("/api/trace", {{"from_us", "x"}}).status, 400);
  EXPECT_EQ(page.answer("/api/trace", {{"from_us", "nan"}}).status, 400);
  spill(run / "trace.json", "{\"traceEvents\":[\n{\"name\":3},\n{\"ph\":\"X\",\"pid\":-1}\n]}\n");
  EXPECT_EQ(trace()["available"], false);
}

TEST_F(PageLooks, HasTheSamplesOfTheLastSteps) {
  const fs::path run = make_run(dir_ / "first");
  LivePage page(watched({run}));
  EXPECT_EQ(asked(page, "/api/run")["samples"], json::array());
  const auto line = [](int step, const std::string& text) {
    return json{{"step", step}, {"samples", {{{"prompt", "<b>"}, {"text", text}}}}}.dump() + "\n";
  };
  append_text(run / "samples.jsonl", line(10, "a") + "nonsense\n" + line(20, "b") + line(10, "again"));
  const json told = asked(page, "/api/run")["samples"];
  EXPECT_EQ(told, json::parse(R"([{"step":10,"samples":[{"prompt":"<b>","text":"again"}]},
                                  {"step":20,"samples":[{"prompt":"<b>","text":"b"}]}])"));
  for (int step = 30; step < 60; ++step) append_text(run / "samples.jsonl", line(step, "c"));
  EXPECT_EQ(asked(page, "/api/run")["samples"].size(), 20u);
  EXPECT_EQ(asked(page, "/api/run")["samples"][19]["step"], 59);
}

}  // namespace
}  // namespace weft
