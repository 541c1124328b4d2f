// What a recipe says of its ranks: their order, and that they come and go.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

const std::string kRanks = "[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n";

std::string refused(const std::vector<std::string>& settings) {
  return testing::error_of<Error>([&] { check_supported(parse_recipe(kRanks, "r.toml", settings)); });
}

TEST(RecipeRanks, HaveAnOrderThatIsAPermutationOfTheAxes) {
  EXPECT_EQ(parse_recipe(kRanks, "r.toml", {"parallel.order=dp-tp-pp-cp-ep"}).parallel.order, "dp-tp-pp-cp-ep");
  for (const char* order : {"", "tp-dp-pp", "tp-cp-ep-dp-dp", "tp-cp-ep-dp-pp-tp", "TP-CP-EP-DP-PP"})
    EXPECT_SAYS(refused({std::string("parallel.order=") + order}),
                fmt::format("parallel.order = \"{}\": expected the names tp, cp, ep, dp, pp, each once", order));
}

TEST(RecipeRanks, ComeAndGoWhereSomethingTells) {
  EXPECT_SAYS(refused({"fleet.min_ranks=2"}), "without fleet.available or fleet.hosts");
  EXPECT_SAYS(refused({"fleet.available=n", "fleet.min_ranks=3", "fleet.max_ranks=2"}), "at most fleet.max_ranks = 2");
  EXPECT_SAYS(refused({"fleet.hosts=h"}), "run.ranks = \"mpi\"");
  EXPECT_SAYS(refused({"fleet.hosts=h", "run.ranks=mpi", "fleet.available=n"}), "empty beside fleet.available");
  EXPECT_SAYS(refused({"fleet.may_change=dpp"}), "a list, each one of \"dp\"");
  EXPECT_SAYS(refused({"fleet.available=n", "fleet.may_change=[\"dp\", \"tp\"]", "train.numerics=invariant"}),
              "another tp has other last bits");
  EXPECT_EQ(refused({"fleet.available=n", "fleet.min_ranks=2", "fleet.max_ranks=2"}), "");
}

}  // namespace
}  // namespace weft
