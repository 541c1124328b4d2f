// Students beside a teacher on a layout of its own: every pair of layouts equals one rank, in fp64.
#include "train/layout_matrix.h"

namespace weft {
namespace {

using testing::Choice;
using TeacherLayoutsSlow = testing::LayoutMatrix;
class TeacherLayouts : public testing::LayoutMatrix {
 protected:
  TeacherLayouts() { steps_ = 2; }  // what a step leaves, the next one finds
};

// The teacher's ranks find what the student's learn, whichever these are: under ZeRO stage 2 micro-batches go to the
// data ranks in turns; of zbv the first stage has the head; a rank of cp has two runs of each sequence; of 12
// micro-batches eight data ranks have four in their last round.
TEST_F(TeacherLayouts, EqualOneRank) {
  Choice c = first_choice();
  c["train.objective"] = "distill";
  c["teacher"] = "apart";
  struct Apart {
    Cut cut;
    const char *tp, *pp, *cp;
  };
  for (const auto& [cut, tp, pp, cp] :
       {Apart{{"llama-tied", "2", "1", "1", "true", "1", "1f1b", "2", "none"}, "2", "0", "0"},
        Apart{{"gpt2", "1", "2", "1", "true", "2", "zbv", "0", "none"}, "2", "1", "1"},
        Apart{{"llama-tied", "2", "1", "1", "true", "1", "1f1b", "0", "none"}, "1", "1", "2"},
        Apart{{"llama-tied", "4", "1", "2", "true", "1", "1f1b", "0", "none"}, "1", "1", "1"}}) {
    set(c, cut);
    c["parallel.teacher_tp"] = tp;
    c["parallel.teacher_pp"] = pp;
    c["parallel.teacher_cp"] = cp;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}
TEST_F(TeacherLayoutsSlow, EqualOneRankOnMoreLayouts) {
  Choice c = first_choice();
  c["train.objective"] = "distill";
  c["teacher"] = "apart";
  struct Apart {
    Cut cut;
    const char *tp, *pp, *cp, *ep;
  };
  for (const auto& [cut, tp, pp, cp, ep] :
       {Apart{{"gpt2", "1", "1", "2", "true", "1", "1f1b", "0", "full"}, "1", "2", "1", "1"},
        Apart{{"qwen2", "2", "2", "1", "true", "1", "1f1b", "3", "none"}, "1", "1", "1", "2"},
        Apart{{"llama-tied", "2", "1", "2", "true", "1", "1f1b", "1", "none"}, "1", "2", "2", "1"},
        Apart{{"gpt2", "3", "1", "1", "true", "2", "zb_h1", "0", "selective"}, "1", "3", "2", "1"}}) {
    set(c, cut);
    c["parallel.teacher_tp"] = tp;
    c["parallel.teacher_pp"] = pp;
    c["parallel.teacher_cp"] = cp;
    c["parallel.teacher_ep"] = ep;
    EXPECT_TRUE(judge(c)) << testing::text_of(c);
  }
}

// The same k logits, found before each step or once.
TEST_F(TeacherLayouts, LogitsFoundBeforeEachStepTeachWhatStoredOnesDo) {
  Choice c = first_choice();
  c["model"] = "llama-tied";
  c["train.objective"] = "distill";
  c["teacher"] = "stored";
  const Outcome stored = reference_of(c);
  c["teacher"] = "apart";
  const Outcome& apart = reference_of(c);
  ASSERT_EQ(stored.steps.size(), apart.steps.size());
  for (size_t i = 0; i < stored.steps.size(); ++i) {
    EXPECT_NEAR(stored.steps[i].loss, apart.steps[i].loss, 1e-6 * stored.steps[i].loss) << i;
    EXPECT_NEAR(stored.steps[i].grad_norm, apart.steps[i].grad_norm, 1e-5 * stored.steps[i].grad_norm) << i;
  }
}

}  // namespace
}  // namespace weft
