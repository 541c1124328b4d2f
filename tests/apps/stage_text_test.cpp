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

}  // namespace
}  // namespace weft
