#include "weft/schedule/draw.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

struct Drawn {
  Pipeline pipeline;
  int64_t m;
  Timeline timeline = simulate(pipeline, schedules_of(pipeline, m), uniform_times(pipeline, 1, 1, 1));
  std::string text(int columns = 100) const { return draw_text(pipeline, timeline, columns); }
  std::string svg() const { return draw_svg(pipeline, timeline, "in forwards"); }
};

size_t count(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

TEST(Draw, ATextHasARowForEachRankAndDotsWhereItIdles) {
  EXPECT_EQ((Drawn{pipeline_named("1f1b", 2), 3}.text()),
            "1f1b, 2 stages, 3 micro-batches: 12 long, bubble 25.0 %\n"
            "time    0\n"
            "rank 0  F0F1....B0--F2B1--..B2--\n"
            "rank 1  ..F0B0--F1B1--F2B2--....\n"
            "F forward, B backward, D dgrad, W wgrad, of a micro-batch; . idle\n");
}

TEST(Draw, FurtherChunksAreSmallLetters) {
  EXPECT_EQ((Drawn{pipeline_named("zbv", 2), 2}.text()),
            "zbv, 2 stages of 2 chunks, 2 micro-batches: 14 long, bubble 14.3 %\n"
            "time    0\n"
            "rank 0  F0F1..f0d0w0f1d1w1D0W0..D1W1\n"
            "rank 1  ..F0f0F1f1d0w0D0W0d1w1D1W1..\n"
            "F forward, B backward, D dgrad, W wgrad, of a micro-batch; small letters: further chunks; . idle\n");
}

TEST(Draw, WhatIsTooLongForTheTerminalGoesOnBelow) {
  EXPECT_EQ((Drawn{pipeline_named("1f1b", 2), 3}.text(21)),
            "1f1b, 2 stages, 3 micro-batches: 12 long, bubble 25.0 %\n"
            "time    0\n"
            "rank 0  F0F1....B0--\n"
            "rank 1  ..F0B0--F1B1\n"
            "time    6\n"
            "rank 0  F2B1--..B2--\n"
            "rank 1  --F2B2--....\n"
            "F forward, B backward, D dgrad, W wgrad, of a micro-batch; . idle\n");
}

TEST(Draw, AStepOfOneRankHasNoBubble) {
  EXPECT_EQ((Drawn{pipeline_named("1f1b", 1), 1}.text()),
            "1f1b, 1 stage, 1 micro-batch: 3 long, bubble 0.0 %\n"
            "time    0\n"
            "rank 0  F0B0--\n"
            "F forward, B backward, D dgrad, W wgrad, of a micro-batch; . idle\n");
}

TEST(Draw, AnSvgHasALabelledBoxForEveryActionInTheColourOfItsKindAndChunk) {
  for (const std::string_view name : kScheduleNames) {
    const Drawn drawn{pipeline_named(name, 3), 120};
    const std::string svg = drawn.svg();
    const size_t passes = size_t(drawn.pipeline.num_virtual_stages()) * 120;
    const bool split = count(svg, "<rect class=\"D") > 0;
    EXPECT_EQ(count(svg, "</title></rect>"), passes * (split ? 3 : 2)) << name;
    EXPECT_EQ(count(svg, "class=\"a\">") + count(svg, "class=\"b\">"), passes * (split ? 3 : 2)) << name;
    EXPECT_EQ(count(svg, "<rect class=\"Fb\"") > 0, drawn.pipeline.num_chunks > 1) << name;
    EXPECT_EQ(count(svg, "<rect class=\"idle\""), 3u + 1) << name;  // a ground for each rank, and the legend
    EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
    EXPECT_NE(svg.find(headline(drawn.pipeline, drawn.timeline)), std::string::npos);
    EXPECT_NE(svg.find("time, in forwards"), std::string::npos);
  }
}

TEST(Draw, AStepWithoutMicroBatchesIsDrawnEmpty) {
  const Drawn drawn{pipeline_named("1f1b", 2), 0};
  EXPECT_EQ(count(drawn.text(), "\n"), 2u);
  EXPECT_EQ(count(drawn.svg(), "nan"), 0u);
}

}  // namespace
}  // namespace weft
