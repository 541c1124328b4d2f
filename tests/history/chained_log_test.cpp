// A log whose lines carry hashes.
#include "weft/history/chained_log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::error_of;
using testing::lines_of;
using testing::slurp;
using testing::spill;

class ChainedLog : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* what : {"one", "two", "three", "four"}) head_ = append_to_log(file_, {{"what", what}});
    lines_ = lines_of(slurp(file_));
  }
  std::string fault_of(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    spill(file_, text);
    return check_log(file_).fault;
  }
  testing::TempDir dir_;
  const std::filesystem::path file_ = dir_ / "new/log.jsonl";
  std::string head_;
  std::vector<std::string> lines_;
};

TEST_F(ChainedLog, IsWholeAndKnowsEachOfItsHashes) {
  const LogCheck check = check_log(file_, nlohmann::json::parse(lines_.at(1))["hash"].get<std::string>());
  EXPECT_EQ(check.fault, "");
  EXPECT_EQ(check.lines, 4);
  EXPECT_EQ(check.head, head_);
  EXPECT_TRUE(check.has_hash);
  EXPECT_FALSE(check_log(file_, std::string(64, 'a')).has_hash);
}

TEST_F(ChainedLog, NamesTheLineThatWasChanged) {
  for (const size_t at : {size_t{1}, size_t{3}}) {  // the last one too, which no line follows
    auto lines = lines_;
    lines[at].replace(lines[at].find("\"what\""), 6, "\"When\"");
    EXPECT_SAYS(fault_of(lines), "line " + std::to_string(at + 1) + ": is not what its hash says");
  }
}

TEST_F(ChainedLog, NamesWhereALineWasTakenOutOrPutIn) {
  EXPECT_SAYS(fault_of({lines_[0], lines_[2], lines_[3]}), "line 2: is entry 3: what stood before it was taken out");
  EXPECT_SAYS(fault_of({lines_[1], lines_[2]}), "line 1: is entry 2");
  EXPECT_SAYS(fault_of({lines_[0], lines_[1], lines_[1], lines_[2]}), "line 3: is entry 2 once more");
}

// With hashes of its own that are right: only the chain tells.
TEST_F(ChainedLog, NamesALineOfAnotherLog) {
  const auto other = dir_ / "other.jsonl";
  for (const char* what : {"one", "TWO"}) append_to_log(other, {{"what", what}, {"by", "another"}});
  EXPECT_SAYS(fault_of({lines_[0], lines_of(slurp(other)).at(1), lines_[2], lines_[3]}),
              "line 2: does not follow line 1");
}

TEST_F(ChainedLog, IsNotAppendedToWhereItsLastLineIsTorn) {
  const std::string whole = slurp(file_);
  spill(file_, whole.substr(0, whole.size() - 9));
  EXPECT_SAYS(error_of<FileError>([&] { append_to_log(file_, {{"what", "five"}}); }), "its last line is torn");
  spill(file_, whole.substr(0, whole.size() - 1));  // as an editor leaves it
  append_to_log(file_, {{"what", "five"}});
  EXPECT_EQ(check_log(file_).fault, "");
  EXPECT_EQ(check_log(file_).lines, 5);
}

TEST_F(ChainedLog, WritersWaitForEachOther) {
  constexpr int kWriters = 4, kEach = 15;
  std::vector<pid_t> children;
  for (int i = 0; i < kWriters; ++i) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    for (int n = 0; n < kEach; ++n) append_to_log(file_, {{"what", "more"}, {"by", i}});
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const LogCheck check = check_log(file_);
  EXPECT_EQ(check.fault, "");
  EXPECT_EQ(check.lines, 4 + kWriters * kEach);
}

}  // namespace
}  // namespace weft
