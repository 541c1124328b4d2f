// The reward model that judges what another model has written: `weft eval --judge`.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/apps/eval_ranks.h"
#include "weft/pipeline/row_encoder.h"
#include "weft/tasks/questions.h"

namespace weft {

class RewardJudge {
 public:
  // Looks at the folder, at its tokenizer and chat template, and whether the layout can cut it. Throws ConfigError,
  // FileError: it is no reward model, or holds no tokenizer.
  RewardJudge(const std::string& folder, const Measured& measured);

  // That it can read the prompts of what it judges. Throws FileError with the row.
  void check(const std::vector<Asked>& asked) const;
  // What a rank takes.
  int64_t bytes(const Machine& machine, const ProcessMesh& dry_mesh) const;
  // Gives the answers of what it judges their scores: those of the last token of prompt and answer, read as objective
  // "reward" reads them; of an answer without any text, that of its prompt. Returns how many texts were longer than
  // the window and lost their beginning. Collective. Blocks.
  int64_t score(const std::vector<Asked>& asked, const Evaluator::Spec& spec, std::vector<SetAnswers>& answers) const;

  static bool judges(const Asked& asked) { return asked.set.task.name == "toxicity"; }
  const std::filesystem::path& folder() const { return folder_; }
  int64_t window() const { return shape_.seq_length; }

 private:
  ScoredText text_of(const TaskItem& item, const std::string& written) const;

  std::filesystem::path folder_;
  HfConfig config_;
  ForwardShape shape_;
  Recipe::Parallel layout_;
  std::optional<RowEncoder> encoder_;
};

}  // namespace weft
