// Heads that score, of models whose experts lie on ranks of their own: every layout equals one rank.
#include "train/layout_matrix.h"

namespace weft {
namespace {

class ExpertScores : public testing::LayoutMatrix {
 protected:
  ExpertScores() { steps_ = 2; }  // what a step leaves, the next one finds
};

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

}  // namespace
}  // namespace weft
