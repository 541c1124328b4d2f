// Adapters of which more tokens come at once than their matrices are wide: W + scale B A is made, and multiplies, in
// forward and in dgrad, of matrices that ranks cut by rows, by columns, or not at all. Every layout equals one rank.
#include "train/layout_matrix.h"

namespace weft {
namespace {

class JoinedAdapters : public testing::LayoutMatrix {
 protected:
  JoinedAdapters() { steps_ = 2; }  // A has a gradient only behind the first update of B
  // 36 tokens at once; the models are 24 wide.
  void expect_as_on_one_rank(const Cut& cut) {
    testing::Choice c = first_choice();
    set(c, cut);
    c["train.micro_batch_size"] = "3";
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
};
using JoinedAdaptersSlow = JoinedAdapters;

// The two key heads of qwen2 are on two of four ranks each; phi3 has queries, keys and values in one matrix.
TEST_F(JoinedAdapters, EqualThoseOfOneRank) {
  expect_as_on_one_rank({"qwen2-lora", "1", "1", "4", "true", "1", "1f1b", "0", "full"});
  expect_as_on_one_rank({"phi3-lora", "1", "1", "3", "true", "1", "1f1b", "0", "none"});
}
TEST_F(JoinedAdaptersSlow, EqualThoseOfOneRankOnMoreLayouts) {
  expect_as_on_one_rank({"qwen2-lora", "2", "1", "4", "false", "1", "zb_h1", "3", "selective"});
  expect_as_on_one_rank({"gpt2-lora", "2", "1", "2", "true", "2", "1f1b", "2", "selective"});
  expect_as_on_one_rank({"deepseek-lora", "1", "1", "2", "true", "1", "1f1b", "0", "selective"});
  expect_as_on_one_rank({"deepseek-lora", "2", "1", "3", "false", "2", "1f1b", "1", "full"});
  expect_as_on_one_rank({"mixtral-lora", "2", "1", "3", "true", "1", "1f1b", "3", "none"});
}

}  // namespace
}  // namespace weft
