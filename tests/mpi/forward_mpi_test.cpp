// `weft eval` and `weft generate` with run.ranks = "mpi".
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

}  // namespace
}  // namespace weft
