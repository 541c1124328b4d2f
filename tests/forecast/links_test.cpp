// What a transfer takes over links, by itself and against measured collectives.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/link_rows.h"

namespace weft {
namespace {

using testing::error_of;
using testing::spill;
using testing::TempDir;

constexpr double kHop = 10e-6;

double seconds(Exchange what, double bytes, AxisSpread spread, const ClusterSpec& cluster) {
  return seconds_of(link_time(what, bytes, spread, cluster), 1, kHop);
}

TEST(Links, LargeMessagesReachTheRateAndSmallOnesTheLatency) {
  const ClusterSpec c = preset_of("A100-SXM-80GB");
  const AxisSpread node{.ranks = 8, .in_domain = 8};
  EXPECT_NEAR(1e12 / seconds(Exchange::gather, 1e12, node, c), c.scale_up.bytes_per_s * c.scale_up_part, 1e9);
  EXPECT_NEAR(seconds(Exchange::gather, 1, node, c), c.scale_up.latency_s, 1e-6);
}

TEST(Links, RingsPayForEachNodeAndTreesForEachDoubling) {
  const ClusterSpec c = preset_of("H100-SXM");
  const auto hops = [&](Exchange what, int nodes) {
    return link_time(what, 1, {.ranks = 8 * nodes, .in_domain = 8}, c).hops;
  };
  EXPECT_EQ(hops(Exchange::gather, 1), 0);
  EXPECT_EQ(hops(Exchange::gather, 128), 127);
  EXPECT_EQ(hops(Exchange::all_reduce, 128), 14);
  const LinkTime time = link_time(Exchange::gather, 1, {.ranks = 8 * 128, .in_domain = 8}, c);
  EXPECT_EQ(time.hops_by_rank, 8 * 128 - 1);  // each has a part, which goes round by itself
}

TEST(Links, PairsWithoutASwitchHaveTheirOwnLinksAlone) {
  ClusterSpec c = preset_of("MI300X");
  const auto rate = [&](int ranks) {
    return 1e12 / seconds(Exchange::all_reduce, 1e12, {.ranks = ranks, .in_domain = ranks}, c);
  };
  EXPECT_NEAR(rate(2) / rate(8), 1.0 / 7, 0.01);
  c.switched = true;
  EXPECT_GT(rate(2) / rate(8), 0.5);
}

TEST(Links, SwitchesOfHopperAddUpThemselves) {
  const AxisSpread node{.ranks = 8, .in_domain = 8};
  const auto gain = [&](const char* device) {
    const ClusterSpec c = preset_of(device);
    return seconds(Exchange::gather, 1e12, node, c) / seconds(Exchange::all_reduce, 1e12, node, c);
  };
  EXPECT_NEAR(gain("A100-SXM-80GB"), 1, 1e-9);
  EXPECT_GT(gain("H100-SXM"), 1.2);
}

TEST(LinkRows, AreJudgedByCell) {
  const TempDir dir;
  const auto refused = [&](const std::string& line) {
    spill(dir / "net.csv", "system,n_gpus,nodes,collective,message_bytes,busbw_gb_s\n" + line + "\n");
    return error_of<Error>([&] { link_errors(read_link_rows(dir / "net.csv")); });
  };
  EXPECT_NE(refused("8xH100 node,1,1,all_reduce,1024,3").find("net.csv:2: n_gpus = \"1\" must be a number from 2"),
            std::string::npos);
  EXPECT_NE(refused("8xH100 node,8,1,all_reduce,many,3").find("message_bytes = \"many\""), std::string::npos);
  EXPECT_NE(refused("8xQ7 node,8,1,all_reduce,1024,3").find("no preset is of the system \"8xQ7 node\""),
            std::string::npos);
}

TEST(LinkRows, PublishedCollectivesAreForecastWithinAFifth) {
  WEFT_NEEDS_SHARED();
  const std::filesystem::path file = testing::shared_dir() / "planner/net_microbench.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  std::vector<double> ratios;
  for (const LinkRow& row : read_link_rows(file)) ratios.push_back(forecast_of(row) / row.bytes_per_s);
  EXPECT_GT(ratios.size(), 100u);
  EXPECT_LT(errors_of(ratios).median, 0.2);
}

}  // namespace
}  // namespace weft
