// Lines of records that several processes append to, and that crashes tear.
#include "weft/records/events.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::error_of;
using testing::lines_of;
using testing::slurp;
using testing::spill;
using testing::TempDir;

TEST(Events, ALineThatACrashToreSpoilsNoOther) {
  const TempDir dir;
  spill(dir / "events.jsonl", "{\"event\":\"sta");
  append_event(dir.path(), "started", {{"attempt", 1}});
  append_event(dir.path(), "ended", {{"attempt", 1}});
  const auto lines = lines_of(slurp(dir / "events.jsonl"));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(nlohmann::json::parse(lines[1])["event"], "started");
  EXPECT_EQ(nlohmann::json::parse(lines[2])["event"], "ended");
}

TEST(Events, WhatCannotBeWrittenIsAnErrorThatNamesTheFile) {
  const TempDir dir;
  EXPECT_SAYS(error_of<FileError>([&] { append_line(dir / "nowhere/events.jsonl", "x"); }), "nowhere/events.jsonl");
}

}  // namespace
}  // namespace weft
