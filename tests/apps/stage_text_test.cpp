// What `weft data run` says while it is at work.
#include "weft/apps/stage_text.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// A filter stage, a quarter done, with the reasons of a real pipeline.
StageProgress::View quarter_done() {
  StageProgress::View v;
  v.stage = "filter";
  v.work = 400'000'000;
  v.work_done = v.bytes = 100'000'000;
  v.counts.documents_in = 14490;
  v.counts.documents_out = 14255;
  v.counts.dropped = {{"gopher_quality.min_alphabetic_words", 73},
                      {"gopher_repetition.repeated_5grams", 79},
                      {"length.min_words", 60},
                      {"language.min_share", 23}};
  return v;
}

TEST(StageText, TellsTheTimeLeftBeforeTheReasonsAndTheseByTheirCounts) {
  EXPECT_EQ(format_stage_progress(quarter_done(), 2.5e6, 1000),
            "filter 25%: 14490 documents, 2.5 MB/s, ETA 2:00, kept 14255, dropped 235: "
            "gopher_repetition.repeated_5grams 79, gopher_quality.min_alphabetic_words 73, length.min_words 60, "
            "language.min_share 23");
}

TEST(StageText, IsAsWideAsTheTerminalAndSaysHowManyReasonsAreLeftOut) {
  EXPECT_EQ(format_stage_progress(quarter_done(), 2.5e6, 150),
            "filter 25%: 14490 documents, 2.5 MB/s, ETA 2:00, kept 14255, dropped 235: "
            "gopher_repetition.repeated_5grams 79, +3 more");
  EXPECT_EQ(format_stage_progress(quarter_done(), 2.5e6, 79),
            "filter 25%: 14490 documents, 2.5 MB/s, ETA 2:00, kept 14255, dropped 235");
  EXPECT_EQ(format_stage_progress(quarter_done(), 2.5e6, 50), "filter 25%: 14490 documents, 2.5 MB/s, ETA 2:00");
  for (size_t width = 0; width < 250; ++width)
    EXPECT_LE(format_stage_progress(quarter_done(), 2.5e6, width).size(), width);
}

TEST(StageText, SaysOfALongStageHowItBeginsAndThenALineAMinute) {
  StageTeller teller(false);
  StageProgress::View v = quarter_done();
  std::vector<double> told;
  for (double now_s = 1000; now_s <= 1130; now_s += 0.5)
    if (!teller.look(v, now_s, 1000).empty()) told.push_back(now_s - 1000);
  EXPECT_EQ(told, (std::vector<double>{5, 65, 125}));
  EXPECT_NE(teller.look(v, 3000, 1000), "");  // as after a stop
  v.stage = "dedup";
  EXPECT_EQ(teller.look(v, 3100, 1000), "");
  v.stage = "tokens";  // dedup was short
  EXPECT_EQ(teller.look(v, 3104, 1000), "");
  EXPECT_EQ(teller.look(v, 3108, 1000), "");
  v.bytes += 25'000'000;
  EXPECT_NE(teller.look(v, 3114, 1000).find(", 2.5 MB/s, ETA 2:00,"), std::string::npos);
}

TEST(StageText, ChangesAtEachLookOnATerminal) {
  StageTeller teller(true);
  teller.look(quarter_done(), 10, 80);
  EXPECT_NE(teller.look(quarter_done(), 10.5, 80), "");
  EXPECT_NE(teller.look(quarter_done(), 11, 80), "");
}

}  // namespace
}  // namespace weft
