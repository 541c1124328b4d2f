#include "weft/apps/eval_judge.h"

#include <algorithm>

#include "weft/apps/backends.h"
#include "weft/base/error.h"
#include "weft/pipeline/charset.h"
#include "weft/plan/memory_plan.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

// Its own: the answers are texts, so that it need not be that of the model which wrote them.
RowEncoder encoder_of(const std::filesystem::path& folder, int64_t vocab_size) {
  const std::optional<Recipe> trained = recipe_of_checkpoint(folder);
  const ModelTokenizer tokenizer = tokenizer_of_model(folder, trained, "auto");
  if (!tokenizer.note.empty())
    throw ConfigError(
        "holds no tokenizer, so that it cannot read answers; put the one that it was trained with into the folder "
        "(tokenizer.json and tokenizer_config.json)");
  const bool renders = !trained || trained->data.chat_template != "none";
  const std::filesystem::path beside = templates_at(tokenizer.name).empty() ? folder.string() : tokenizer.name;
  return RowEncoder(open_tokenizer(tokenizer.name, folder, vocab_size),
                    {.tokenizer = beside, .chat_template = renders ? "" : "none", .completions = {"completion"}});
}

// The windows of the model that is judged, or what the judge was made for, cut equally by ranks of cp.
int64_t window_of(const ModelSpec& judge, const Measured& m) {
  const int64_t most = judge.max_positions, runs = 2 * m.layout.cp;
  return most > 0 && most < m.shape.seq_length ? std::max(most / runs, int64_t{1}) * runs : m.shape.seq_length;
}

}  // namespace

RewardJudge::RewardJudge(const std::string& folder, const Measured& m)
    : folder_(model_folder_of(folder, m.tell)),
      config_(read_hf_config(folder_)),
      shape_{m.shape.precision, window_of(config_.spec, m), m.shape.size},
      layout_(m.layout) {
  if (config_.spec.head != HeadKind::score)
    throw ConfigError(
        fmt::format("--judge {}: is no reward model, but one that writes text; train one of it by train.objective = "
                    "\"reward\", or name one with an architecture ...ForSequenceClassification of one label",
                    folder));
  for (const std::string& warning : config_.warnings) m.tell("note: --judge: " + warning);
  try {
    check_forward_layout(layout_, config_.spec, shape_);
    encoder_.emplace(encoder_of(folder_, config_.spec.vocab_size));
  } catch (const ConfigError& e) { throw ConfigError(fmt::format("--judge {}: {}", folder, e.what())); }
}

// The score is read at the last id but one: what would follow it is any.
ScoredText RewardJudge::text_of(const TaskItem& item, const std::string& written) const {
  const std::string answer = repair_utf8(written).text;
  const bool is_blank = answer.find_first_not_of(" \t\r\n") == answer.npos;
  const nlohmann::json row{{"prompt", item.contexts[0]}, {"completion", is_blank ? "-" : answer}};
  const std::string text = row.dump();
  EncodedRow encoded = encoder_->encode({row, text, item.where, item.row, 0});
  ScoredText scored{.ids = std::move(encoded.prompt), .scored = 1};
  const std::vector<int32_t>& completion = encoded.completions[0];
  if (!is_blank) scored.ids.insert(scored.ids.end(), completion.begin(), completion.end());
  scored.ids.push_back(0);
  return scored;
}

void RewardJudge::check(const std::vector<Asked>& asked) const {
  for (const Asked& a : asked)
    for (size_t i = 0; judges(a) && i < a.set.items.size(); ++i) text_of(a.set.items[i], "");
}

int64_t RewardJudge::bytes(const Machine& machine, const ProcessMesh& mesh) const {
  const StepSpec step = forward_step(layout_, config_.spec, shape_, mesh.world->rank());
  return measure_forward(config_.spec, step, *machine.workspace_model).total_bytes();
}

int64_t RewardJudge::score(const std::vector<Asked>& asked, const Evaluator::Spec& spec,
                           std::vector<SetAnswers>& answers) const {
  std::vector<ScoredText> texts;
  int64_t cut = 0;
  for (size_t a = 0; a < asked.size(); ++a)
    for (size_t i = 0; judges(asked[a]) && i < asked[a].set.items.size(); ++i) {
      texts.push_back(text_of(asked[a].set.items[i], answers[a].written[i]));
      std::vector<int32_t>& ids = texts.back().ids;
      const int64_t beyond = std::max<int64_t>(0, std::ssize(ids) - 1 - window());
      ids.erase(ids.begin(), ids.begin() + beyond);
      cut += beyond > 0;
    }
  Evaluator::Spec of_judge = spec;
  of_judge.seq_length = window();
  of_judge.finds_likeliest = false;
  const std::vector<double> scores = Evaluator(folder_, of_judge).scores(texts).log_probs;
  auto next = scores.begin();
  for (size_t a = 0; a < asked.size(); ++a)
    if (judges(asked[a])) {
      answers[a].scores.assign(next, next + std::ssize(asked[a].set.items));
      next += std::ssize(asked[a].set.items);
    }
  return cut;
}

}  // namespace weft
