// Data-parallel ranks with unequally many micro-batches of a step, in fp64 beside one rank.
#include "train/layout_matrix.h"

namespace weft {
namespace {

class UnequalShares : public testing::LayoutMatrix {
 protected:
  UnequalShares() { steps_ = 2; }
};
using UnequalSharesSlow = UnequalShares;

// Ranks that are not equally fast have unequally many micro-batches of the same batch: its loss is the mean over all
// targets that count, of which each micro-batch has another number.
TEST_F(UnequalShares, EqualOneRank) {
  testing::Choice c = first_choice();
  c["data.mask"] = "some";
  c["shares"] = "unequal";
  for (const Cut& cut : {Cut{"gpt2", "3", "1", "1", "true", "2", "zb_h1", "1", "none"},
                         Cut{"llama-gqa", "2", "2", "1", "true", "2", "interleaved_1f1b", "1", "full"},
                         Cut{"qwen3-moe", "2", "1", "2", "true", "1", "gpipe", "0", "none"},
                         Cut{"llama-gqa", "4", "1", "1", "true", "2", "zbv", "0", "none"}}) {
    set(c, cut);
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}
TEST_F(UnequalSharesSlow, EqualOneRankWithEveryObjective) {
  testing::Choice c = first_choice();
  c["data.mask"] = "some";
  c["shares"] = "unequal";
  for (const std::string& objective : testing::kRuns[1].values) {
    c["train.objective"] = objective;
    c["data.mask"] = testing::reads_documents(c) ? "some" : "none";
    for (const Cut& cut : {Cut{"qwen2", "3", "1", "1", "true", "2", "1f1b", "1", "none"},
                           Cut{"llama-gqa", "2", "2", "2", "true", "1", "1f1b", "0", "selective"}}) {
      set(c, cut);
      EXPECT_TRUE(judge(c)) << testing::text_of(c);
    }
  }
}

}  // namespace
}  // namespace weft
