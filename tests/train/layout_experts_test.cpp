// Models whose experts lie on ranks of their own, with heads that score and with adapters: every layout equals one
// rank.
#include "train/layout_matrix.h"

namespace weft {
namespace {

class ExpertScores : public testing::LayoutMatrix {
 protected:
  ExpertScores() { steps_ = 2; }  // what a step leaves, the next one finds
};
using ExpertAdapters = ExpertScores;
using ExpertAdaptersSlow = testing::LayoutMatrix;

// Scores are counted by pairs and values by tokens of the ranks' own rows, but an expert's gradient is of the rows of
// both ranks, and its balance of all of them.
TEST_F(ExpertScores, EqualThoseOfOneRank) {
  testing::Choice c = first_choice();
  for (const auto& [objective, cut] :
       {std::pair{"reward", Cut{"mixtral", "2", "1", "1", "true", "1", "1f1b", "2", "none"}},
        std::pair{"ppo", Cut{"mixtral", "2", "1", "1", "true", "1", "1f1b", "0", "full"}}}) {
    set(c, cut);
    c["train.objective"] = objective;
    c["parallel.ep"] = "2";
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// Each expert has a pair of its own for each of its matrices, which lies and is summed where the expert is; and drops
// the same of a token's row, wherever that came from.
TEST_F(ExpertAdapters, EqualThoseOfOneRank) {
  testing::Choice c = first_choice();
  for (const auto& [cut, ep] :
       {std::pair{Cut{"mixtral-lora", "2", "1", "2", "true", "1", "1f1b", "1", "full"}, "2"},
        std::pair{Cut{"mixtral-qlora", "4", "1", "1", "true", "1", "1f1b", "3", "none"}, "2"}}) {
    set(c, cut);
    c["parallel.ep"] = ep;
    c["model.hidden_dropout"] = cut.tp[0] == '1' ? "0" : "0.1";
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}
TEST_F(ExpertAdaptersSlow, EqualThoseOfOneRankOnMoreLayouts) {
  testing::Choice c = first_choice();
  for (const auto& [cut, ep] :
       {std::pair{Cut{"qwen2-moe-lora", "2", "1", "1", "true", "2", "zb_h1", "2", "selective"}, "2"},
        std::pair{Cut{"mixtral-lora", "2", "2", "3", "false", "1", "zb_h1", "3", "selective"}, "4"},
        std::pair{Cut{"mixtral-qlora", "2", "1", "3", "true", "1", "1f1b", "1", "full"}, "1"},
        std::pair{Cut{"mixtral-qlora", "2", "2", "2", "false", "1", "1f1b", "2", "selective"}, "2"},
        std::pair{Cut{"qwen2-moe-lora", "3", "1", "2", "true", "2", "zbv", "1", "none"}, "3"},
        std::pair{Cut{"qwen3-moe-qlora", "6", "1", "1", "true", "1", "1f1b", "3", "full"}, "3"},
        std::pair{Cut{"qwen3-moe-qlora", "2", "1", "2", "true", "2", "1f1b", "0", "none"}, "2"},
        std::pair{Cut{"deepseek-v3-moe-lora", "2", "1", "3", "true", "1", "zb_h1", "3", "none"}, "2"},
        std::pair{Cut{"deepseek-v3-moe-lora", "1", "2", "1", "true", "2", "1f1b", "0", "selective"}, "2"}}) {
    set(c, cut);
    c["parallel.ep"] = ep;
    c["model.hidden_dropout"] = cut.cp[0] == '1' && cut.tp[0] == '1' ? "0" : "0.1";
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
  c["model.hidden_dropout"] = "0";
  set(c, {"mixtral-lora", "2", "1", "2", "true", "2", "1f1b", "1", "none"});
  c["parallel.ep"] = "1";
  c["train.numerics"] = "invariant";
  EXPECT_TRUE(judge(c)) << testing::text_of(c);
}

}  // namespace
}  // namespace weft
