// What is said where ranks compute a step twice, or cannot. Whole runs: tests/apps/faulty_numbers_test.cpp.
#include "weft/train/replay_check.h"

#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/json.h"
#include "weft/comm/local_group.h"

namespace weft {
namespace {

TEST(ReplayCheck, ARankWhoseMachineDiffersFromTheFirstRanksIsNamedOnAll) {
  run_local(3, [](Communicator& c) {
    EXPECT_EQ(wait_machines_differ(c, "cpu, 2 threads"), "");
    EXPECT_EQ(wait_machines_differ(c, c.rank() == 0 ? "cpu, 2 threads" : fmt::format("cpu, {} threads", c.rank())),
              "rank 1 computes with cpu, 1 threads, and rank 0 with cpu, 2 threads: their bits may differ");
  });
}

TEST(ReplayCheck, ADifferenceNamesBothRanksAndWhoIsInMostPairs) {
  ReplayDifference d{.tensor = "norm", .tensors = 1, .micro_batch = 5, .rank = 3, .again = 2, .ranks = {2, 3}};
  EXPECT_EQ(d.to_string(),
            "rank 2 computed the work of rank 3 again, from the same weights and data, and got other bits for the "
            "gradient of norm of micro-batch 5");
  EXPECT_EQ(d.to_json(), nlohmann::json({{"tensor", "norm"},
                                         {"tensors", 1},
                                         {"micro_batch", 5},
                                         {"ranks", {2, 3}},
                                         {"alike", nlohmann::json::array()},
                                         {"replayed_by", 2},
                                         {"work_of", 3}}));
  d.tensors = 12;
  d.ranks = {3};
  EXPECT_SAYS(d.to_string(),
              " of micro-batch 5 (the first of 12 gradients that differ); rank 3 is in more pairs that differ than any "
              "other");
}

}  // namespace
}  // namespace weft
