#include "weft/data/teacher_logits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::TempDir;

constexpr int64_t kTop = 2, kTokens = 3, kSamples = 4;

TeacherLogitsSpec a_spec() {
  return {.top = kTop,
          .seq_length = kTokens,
          .num_samples = kSamples,
          .vocab_size = 50,
          .temperature = 2,
          .teacher = "a teacher",
          .samples = "some tokens"};
}

struct TopOfSample {
  std::vector<int32_t> ids = std::vector<int32_t>(kTop * kTokens);
  std::vector<float> logits = std::vector<float>(kTop * kTokens), lse = std::vector<float>(kTokens);
  TopRows rows() { return {.ids = ids, .logits = logits, .lse = lse}; }
  bool operator==(const TopOfSample&) const = default;
};
TopOfSample top_of_sample(int64_t sample) {
  TopOfSample all;
  for (int i = 0; i < kTokens * kTop; ++i) {
    all.ids[size_t(i)] = int32_t(10 * sample + i);
    all.logits[size_t(i)] = 0.5f * float(i) - float(sample);
  }
  for (int i = 0; i < kTokens; ++i) all.lse[size_t(i)] = 5 + float(i);
  return all;
}

// Out of order, in pieces, by two ranks.
std::filesystem::path write_file(const std::filesystem::path& file) {
  TeacherLogitsWriter leader(file, a_spec(), true), other(file, a_spec(), false);
  for (const int64_t sample : {2, 0, 3, 1}) {
    TopOfSample all = top_of_sample(sample);
    const TopRows rows = all.rows();
    leader.write(sample, 1, {rows.ids.subspan(kTop), rows.logits.subspan(kTop), rows.lse.subspan(1)});
    other.write(sample, 0, {rows.ids.first(kTop), rows.logits.first(kTop), rows.lse.first(1)});
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  leader.commit();
  return file;
}

TEST(TeacherLogits, AreReadAsTheyWereWritten) {
  const TempDir dir;
  const TeacherLogits logits(write_file(dir / "top"));
  EXPECT_EQ(logits.spec(), a_spec());
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    TopOfSample read;
    logits.read(sample, read.rows());
    EXPECT_EQ(read, top_of_sample(sample)) << sample;
  }
}

TEST(TeacherLogits, AFileThatIsNotFinishedLeavesNothing) {
  const TempDir dir;
  { const TeacherLogitsWriter writer(dir / "top", a_spec(), true); }
  EXPECT_TRUE(std::filesystem::is_empty(dir / ""));
  EXPECT_SAYS(testing::error_of<FileError>([&] { TeacherLogitsWriter(dir / "none/top", a_spec(), true); }),
              "choose another place");
}

TEST(TeacherLogits, WhatIsNotWholeIsRefused) {
  const TempDir dir;
  const std::string good = testing::slurp(write_file(dir / "top"));
  const auto refused = [&](const std::string& content, const std::string& part) {
    testing::spill(dir / "bad", content);
    EXPECT_SAYS(testing::error_of<FileError>([&] { TeacherLogits(dir / "bad"); }), part);
  };
  refused(good.substr(0, good.size() - 1), "it is not whole; make it again: `weft teacher-logits`");
  refused(good + "x", "it is not whole");
  refused(good.substr(0, 100), "has no header");
  refused("", "has no header");
  std::string other = good;
  other.replace(other.find("logits 1"), 8, "logits 9");
  refused(other, "\"format\": expected");
  std::string many = good;
  many.replace(many.find("\"top\":2"), 7, "\"top\":9");
  refused(many, "with 9 logits each");
}

TEST(TeacherLogits, WhatCannotBeIsRefusedWithItsPlace) {
  const TempDir dir;
  const std::string good = testing::slurp(write_file(dir / "top"));
  const auto refused = [&](int64_t number, auto value, const std::string& part) {  // the number-th of sample 1
    std::string bad = good;
    std::memcpy(bad.data() + a_spec().sample_begin(1) + 4 * number, &value, 4);
    testing::spill(dir / "bad", bad);
    TopOfSample read;
    const std::string error = testing::error_of<FileError>([&] { TeacherLogits(dir / "bad").read(1, read.rows()); });
    EXPECT_SAYS(error, "sample 1, token ");
    EXPECT_SAYS(error, part);
  };
  refused(0, int32_t(11), "token 0: its ids do not ascend");  // as the second
  refused(5, int32_t(50), "token 2: its ids do not ascend");
  refused(kTop * kTokens, 1e9f, "token 0: a logit is larger than the sum over all");
  refused(kTop * kTokens, std::numeric_limits<float>::quiet_NaN(), "token 0: a logit");
  refused(2 * kTop * kTokens + 1, std::numeric_limits<float>::infinity(), "token 1: the sum over all logits is not");
}

}  // namespace
}  // namespace weft
