// Ranks as processes: each test starts an MPI job of rank_program.cpp.
#include <gtest/gtest.h>

#include <chrono>

#include "mpi/mpi_job.h"

namespace weft {
namespace {

using testing::Finished;
using testing::mpi_job;

struct Job {
  Finished end;
  std::string said;  // by ranks that have thrown
  double took_s;     // starting and ending too, which are about a second
};
Job ranks(int n, const std::string& name) {
  const testing::TempDir dir;
  const auto began = std::chrono::steady_clock::now();
  Finished end = mpi_job(n, {testing::kRankProgram, name, (dir / "said").string()});
  return {std::move(end), testing::slurp(dir / "said"),
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()};
}

// Every collective and message, in every type, of sizes that are odd, tiny, and of several chunks.
void expect_the_bits_of_threads(int n) {
  const Job job = ranks(n, "same");
  EXPECT_EQ(job.end.status, 0) << n << " ranks: " << job.end.out << job.end.err << job.said;
}

TEST(Mpi, EveryCollectiveHasTheBitsThatThreadsHave) {
  WEFT_NEEDS_MPIRUN();
  expect_the_bits_of_threads(1);
  expect_the_bits_of_threads(2);
}

TEST(MpiSlow, EveryCollectiveHasTheBitsThatThreadsHaveOnMoreRanksThanCores) {
  WEFT_NEEDS_MPIRUN();
  expect_the_bits_of_threads(3);
  expect_the_bits_of_threads(4);
}

void expect_undisturbed_axes(const std::string& way) {
  const Job job = ranks(4, way);
  EXPECT_EQ(job.end.status, 0) << job.end.out << job.end.err << job.said;
}

TEST(Mpi, AxesOfAMeshDoNotDisturbEachOther) {
  WEFT_NEEDS_MPIRUN();
  expect_undisturbed_axes("axes");
}

TEST(MpiSlow, AxesOfAMeshThatGoByAFabricDoNotDisturbEachOther) {
  WEFT_NEEDS_MPIRUN();
  expect_undisturbed_axes("fabric axes");
}

TEST(MpiSlow, TensorsThatGoByAFabricHaveTheBitsThatThreadsHave) {
  WEFT_NEEDS_MPIRUN();
  for (const int n : {2, 3}) {
    const Job job = ranks(n, "fabric same");
    EXPECT_EQ(job.end.status, 0) << n << " ranks: " << job.end.out << job.end.err << job.said;
  }
}

// Every rank says these, within five seconds.
void expect_all_say(int n, const std::string& name, const std::vector<std::string>& parts) {
  const Job job = ranks(n, name);
  EXPECT_LT(job.took_s, 5 + 5) << name;
  EXPECT_EQ(job.end.status, 3) << name << ": " << job.end.out << job.end.err;
  for (int r = 0; r < n; ++r) {
    const size_t line = job.said.find(fmt::format("<{} says: ", r));
    ASSERT_NE(line, std::string::npos) << name << ", rank " << r << ": " << job.said << job.end.err;
    const std::string said = job.said.substr(line, job.said.find(">\n", line) - line);
    for (const std::string& part : parts) EXPECT_SAYS(said, part);
  }
}

TEST(MpiSlow, RanksThatDoNotAgreeAreNamedOnEveryRankWithBothSites) {
  WEFT_NEEDS_MPIRUN();
  expect_all_say(
      3, "mismatch",
      {"rank 1 is in all-reduce 1 of 20001 f32 at ", "is in all-reduce 1 of 20000 f32 at ", "rank_program.cpp:"});
  expect_all_say(3, "other", {"rank 1 is in all-gather 0 of 100 f32 at ", "is in all-reduce 0 of 100 f32 at "});
  expect_all_say(
      3, "message",
      {"rank 0 is in send 0 of 20000 f32 with rank 1 at ", "rank 1 is in receive 0 of 10000 f32 with rank 0 at "});
}

TEST(MpiSlow, AWaitForARankThatHasEndedIsNamed) {
  WEFT_NEEDS_MPIRUN();
  expect_all_say(2, "left", {"rank 0 waits in all-reduce 0 of 5 f32", "rank 1 has ended"});
}

TEST(MpiSlow, AWaitOfAllForEachOtherIsNamed) {
  WEFT_NEEDS_MPIRUN();
  expect_all_say(2, "stuck", {"rank 0 waits in all-reduce 0 of 30000 f32", "rank 1 waits in receive 0 of 20000 f32"});
}

TEST(Mpi, AFailureOnOneRankIsToldToTheOthers) {
  WEFT_NEEDS_MPIRUN();
  expect_all_say(3, "throws", {"no bread"});
}

TEST(MpiSlow, AFailureInTheMiddleOfATransferIsToldToTheOthers) {
  WEFT_NEEDS_MPIRUN();
  expect_all_say(2, "throws amid", {"no bread"});
}

TEST(Mpi, WhatIsUnderWayGoesOnWhileARankIsInsideAKernel) {
  WEFT_NEEDS_MPIRUN();
  const Job job = ranks(2, "lends");
  EXPECT_EQ(job.end.status, 0) << job.end.out << job.end.err << job.said;
}

// The host's communicators notice it, and the fabric's transfers end.
TEST(MpiSlow, WhatGoesWrongByAFabricIsToldAsWithout) {
  WEFT_NEEDS_MPIRUN();
  expect_all_say(3, "fabric throws", {"no bread"});
  expect_all_say(2, "fabric throws amid", {"no bread"});
  expect_all_say(2, "fabric left", {"rank 0 waits in ", "rank_program.cpp:", "rank 1 has ended"});
  const Job job = ranks(3, "fabric mismatch");
  EXPECT_LT(job.took_s, 10);
  EXPECT_EQ(job.end.status, 3) << job.end.out << job.end.err;
  for (const char* part : {"the ranks do not agree", "of 20001 f32 at ", "of 20000 f32 at ", "rank_program.cpp:"})
    EXPECT_SAYS(job.said, part);
}

void expect_to_end_in_seconds(const std::string& name) {
  const Job job = ranks(2, name);
  EXPECT_NE(job.end.status, 0);
  EXPECT_LT(job.took_s, 10) << name;
}

TEST(Mpi, ARankThatIsKilledEndsTheJobWithinSeconds) {
  WEFT_NEEDS_MPIRUN();
  expect_to_end_in_seconds("killed");
}

TEST(MpiSlow, ARankThatIsKilledEndsAJobByAFabricWithinSeconds) {
  WEFT_NEEDS_MPIRUN();
  expect_to_end_in_seconds("fabric killed");
}

TEST(MpiSlow, ARankThatQuitsEndsTheJobWithinSeconds) {
  WEFT_NEEDS_MPIRUN();
  expect_to_end_in_seconds("quits");
}

TEST(MpiSlow, ARankThatIsStoppedIsNamed) {
  WEFT_NEEDS_MPIRUN();
  const Job job = ranks(2, "stopped");
  EXPECT_EQ(job.end.status, 3);
  EXPECT_SAYS(job.said, "<0 says: rank 1 (process ");
  EXPECT_SAYS(job.said, "has been stopped by a signal for 1 s or more, and rank 0 waits in all-reduce 1");
}

TEST(MpiSlow, ARankThatStaysAwayIsNamedAndALateOneIsWaitedFor) {
  WEFT_NEEDS_MPIRUN();
  const Job away = ranks(2, "sleeps");
  EXPECT_EQ(away.end.status, 3);
  EXPECT_SAYS(away.said, "rank 0 waits in all-reduce 0 of 100000 f32");
  EXPECT_SAYS(away.said, "since 2 s, for rank 1 (process ");
  const Job late = ranks(2, "late");
  EXPECT_EQ(late.end.status, 0) << late.said << late.end.err;
}

}  // namespace
}  // namespace weft
