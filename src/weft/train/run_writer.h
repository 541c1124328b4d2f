// Texts that a run writes between its steps, with the weights as they are then: on one rank.
#pragma once
#include <span>
#include <vector>

#include "weft/step/text_passes.h"
#include "weft/train/rank_run.h"
#include "weft/train/text_feeder.h"

namespace weft {

// Takes MemoryPlan::writing, and no weights of its own. StepSpec::writes texts at once, of at most seq_length tokens.
class RunWriter final : public TextFeeder {
 public:
  // Borrows the rank, which was planned to write. Collective where stages of a pipeline hand texts on.
  RunWriter(RankRun& rank, const std::shared_ptr<Memory>& memory);

  std::span<const double> feed(std::span<const More> more) override;
  std::span<const int32_t> unfed(int64_t text, std::span<const int32_t> ids) override;
  void end(int64_t text) override;
  int64_t most_tokens(int64_t) const override { return rank_.plan.step.seq_length; }
  bool on_any_rank(bool here) override;
  bool has_head() const override { return rank_.plan.step.has_head(); }
  const ModelSpec& model() const override { return rank_.plan.model; }
  const ProcessMesh& mesh() const override { return rank_.mesh; }
  int64_t bytes_taken() const { return memory_.peak(); }

 private:
  struct Text {
    std::vector<int32_t> ids;
    int64_t cached = 0;  // of them
    int64_t left() const { return int64_t(ids.size()) - cached; }
  };
  void feed_filler();
  void feed_some(const std::vector<int64_t>& waiting);
  void pass(const std::vector<int64_t>& texts, int64_t tokens_each);

  RankRun& rank_;
  Arena memory_;
  TextPasses passes_;
  std::vector<Text> texts_;
  std::vector<std::vector<double>> last_;  // [text] logits
  std::vector<double> logits_;
};

}  // namespace weft
