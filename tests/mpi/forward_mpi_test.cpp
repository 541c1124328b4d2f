// `weft eval` and `weft generate` with run.ranks = "mpi".
#include <algorithm>

#include "mpi/train_case.h"

namespace weft {
namespace {

using testing::Finished;
using testing::kCase;
using testing::with;

TEST(MpiForwardSlow, ProcessesSayWhatThreadsSayAndOnce) {
  WEFT_NEEDS_MPIRUN();
  const std::vector<std::string> generate{"generate", kCase.string(),  "--ids", "--prompt-ids", "1,2,3", "--prompt-ids",
                                          "4",        "--temperature", "0",     "--max-tokens", "5",     "--threads",
                                          "1",        "parallel.tp=2"},
      eval{"eval",
           kCase.string(),
           (kCase / "tokens.bin").string(),
           "--seq-length",
           "16",
           "--max-batches",
           "2",
           "--threads",
           "1",
           "parallel.cp=2"};
  for (const auto& words : {generate, eval}) {
    const Finished threads = testing::weft(words), processes = testing::weft(with(words, {"run.ranks=mpi"}));
    ASSERT_EQ(threads.status, 0) << threads.err;
    ASSERT_EQ(processes.status, 0) << processes.err;
    EXPECT_EQ(processes.out, threads.out);
  }
}

// One rank's likeliest tokens, where stages, texts, prompts and experts are divided among processes.
TEST(MpiForwardSlow, TextOfAModelWithExpertsIsThatOfOneRank) {
  WEFT_NEEDS_MPIRUN();
  const std::vector<std::string> generate{"generate",
                                          std::string(testing::kSourceDir) + "/tests/golden/mixtral",
                                          "--ids",
                                          "--prompt-ids",
                                          "1,2,3,4,5,6,7",
                                          "--prompt-ids",
                                          "9,8",
                                          "--temperature",
                                          "0",
                                          "--max-tokens",
                                          "8",
                                          "--threads",
                                          "1"};
  const Finished one = testing::weft(generate);
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(std::count(one.out.begin(), one.out.end(), '\n'), 2);
  for (const std::vector<std::string>& layout : {std::vector<std::string>{"parallel.pp=2"},
                                                 {"parallel.dp=2", "parallel.ep=2"},
                                                 {"parallel.cp=2", "parallel.ep=2"}}) {
    const Finished many = testing::weft(with(with(generate, layout), {"run.ranks=mpi"}));
    ASSERT_EQ(many.status, 0) << layout[0] << ": " << many.err;
    EXPECT_EQ(many.out, one.out) << layout[0];
  }
}

}  // namespace
}  // namespace weft
