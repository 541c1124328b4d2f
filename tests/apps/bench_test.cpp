// weft bench, as a process.
#include <gtest/gtest.h>

#include <sstream>

#include "apps/program.h"
#include "weft/ops/backend.h"

namespace weft {
namespace {

using testing::Finished;
using testing::weft;

template <class... Ops>
std::vector<std::string> names_of(OpList<Ops...>) {
  return {std::string(Ops::kName)...};
}

TEST(BenchKernels, TimesEveryOpBesideWhatTheMachineAllows) {
  const Finished f = weft({"bench", "kernels", "--tokens=8", "--iters=1", "--threads=1", "--precision=f32"});
  EXPECT_EQ(f.status, 0) << f.err;
  for (const std::string& op : names_of(AllOps())) EXPECT_SAYS(f.out, "\n" + op + " ");
  EXPECT_SAYS(f.out, "8 tokens of width 4096, f32; measured: ");
}

TEST(BenchKernels, RefusesWhatIsOfAnotherBenchmark) {
  const Finished recipe = weft({"bench", "kernels", "r.toml"}),
                 tokens = weft({"bench", "step", "r.toml", "--tokens=8"}),
                 layouts = weft({"bench", "kernels", "--layouts", "dp=2"});
  EXPECT_SAYS(recipe.err, "bench kernels takes no recipe");
  EXPECT_SAYS(tokens.err, "--tokens are of `weft bench kernels`");
  EXPECT_SAYS(layouts.err, "--layouts and --trace are of `weft bench scaling`");
  for (const Finished& f : {recipe, tokens, layouts}) EXPECT_EQ(f.status, 2);
}

}  // namespace
}  // namespace weft
