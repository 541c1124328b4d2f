// weft verify on layouts whose data-parallel ranks have unequally many micro-batches.
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/verify/narrow_copy.h"
#include "weft/verify/sub_layouts.h"
#include "weft/verify/verify.h"

namespace weft {
namespace {

Recipe unequal_recipe_for(const std::string& golden, const std::vector<std::string>& overrides) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden" / golden;
  std::vector<std::string> all{"model.path=" + folder.string(),
                               "model.init=random",
                               "data.train=" + (folder / "tokens.bin").string(),
                               "train.seq_length=8",
                               "train.micro_batch_size=1",
                               "train.global_batch_size=8",
                               "parallel.dp=2",
                               "parallel.micro_batches=[6, 2]",
                               "run.threads=1",
                               "run.dir=not-to-be-made"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_recipe("", "verify", all);
}

TEST(VerifyUnequalShares, FindsThemEqual) {
  const Recipe recipe = unequal_recipe_for("llama-gqa", {"parallel.zero_stage=1"});
  const VerifyReport report = verify({.recipe = recipe,
                                      .machine_for = [](const Recipe& r) { return machine_for(r); },
                                      .steps = 2,
                                      .run = run_on_threads,
                                      .decorate = {}});
  EXPECT_TRUE(report.equal()) << (report.finding ? report.finding->what : "");
}

TEST(VerifyUnequalShares, StayUnequalInANarrowCopy) {
  ModelSpec m;
  m.num_layers = 4, m.num_heads = m.num_kv_heads = 8, m.head_dim = m.width = 64;
  m.ffn_width = m.vocab_size = 512;
  const Recipe plain = unequal_recipe_for("llama-gqa", {});
  EXPECT_EQ(narrow_copy(plain, {m, {}, {}}).recipe.parallel.micro_batches, (std::vector<int64_t>{3, 1}));
  const Recipe nearly = unequal_recipe_for("llama-gqa", {"train.global_batch_size=9", "parallel.micro_batches=[4, 5]"});
  const Recipe narrow = narrow_copy(nearly, {m, {}, {}}).recipe;
  EXPECT_LT(narrow.parallel.micro_batches.at(0), narrow.parallel.micro_batches.at(1));
  EXPECT_EQ(narrow.parallel.micro_batches[0] + narrow.parallel.micro_batches[1],
            narrow.train.global_batch_size / narrow.train.micro_batch_size);
}

TEST(VerifyUnequalShares, AreTakenAwayWhereTheyMakeNoDifference) {
  const Recipe recipe = unequal_recipe_for("llama-gqa", {});
  EXPECT_EQ(layout_words(recipe), "dp 2, with [6, 2] micro-batches");
  const SmallestLayout smallest =
      smallest_layout(recipe, [](const Recipe& less) -> std::optional<bool> { return less.parallel.dp > 1; });
  EXPECT_EQ(smallest.recipe.parallel.dp, 2);
  EXPECT_TRUE(smallest.recipe.parallel.micro_batches.empty());
}

}  // namespace
}  // namespace weft
