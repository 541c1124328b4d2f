#include "weft/device/devices_of_ranks.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using Kinds = std::vector<std::string>;

TEST(DevicesOfRanks, EveryRankHasADeviceOfItsOwnWhereThereAreEnough) {
  const Kinds kinds(4, "H200");
  EXPECT_EQ(devices_of_ranks(kinds, 0, 1).devices, (std::vector<int>{0}));
  EXPECT_EQ(devices_of_ranks(kinds, 0, 3).devices, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(devices_of_ranks(kinds, 0, 4).devices, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(devices_of_ranks(kinds, 0, 9).devices, (std::vector<int>{0, 1, 2, 3}));  // rank 4 shares that of rank 0
  EXPECT_EQ(devices_of_ranks(kinds, 2, 3).devices, (std::vector<int>{2, 3, 0}));
  EXPECT_EQ(devices_of_ranks(kinds, 0, 9).note, "");
}

TEST(DevicesOfRanks, OnesThatDifferAreLeftOutByName) {
  const Kinds kinds{"H200, compute capability 9.0", "T400, compute capability 7.5", "H200, compute capability 9.0"};
  EXPECT_EQ(devices_of_ranks(kinds, 0, 2).devices, (std::vector<int>{0, 2}));
  EXPECT_EQ(devices_of_ranks(kinds, 0, 2).note, "");  // every rank has one
  const DevicesOfRanks three = devices_of_ranks(kinds, 0, 3);
  EXPECT_EQ(three.devices, (std::vector<int>{0, 2}));
  EXPECT_EQ(three.note,
            "not used: GPU 1 (T400, compute capability 7.5); ranks that are threads take GPUs that are like GPU 0 "
            "(H200, compute capability 9.0); CUDA_VISIBLE_DEVICES chooses others");
}

}  // namespace
}  // namespace weft
