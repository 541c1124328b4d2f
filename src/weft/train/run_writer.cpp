#include "weft/train/run_writer.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/device/tensor_values.h"
#include "weft/sharding/text_ranks.h"
#include "weft/step/text_groups.h"

namespace weft {

RunWriter::RunWriter(RankRun& rank, const std::shared_ptr<Memory>& memory)
    : rank_(rank),
      memory_("texts written", rank.plan.memory.writing, memory),
      passes_(rank.plan.model, rank.plan.step,
              {.weights = rank.state.params, .backend = rank.backend, .mesh = rank.mesh, .memory = memory_}),
      texts_(size_t(rank.plan.step.writes)),
      last_(texts_.size()) {}

std::span<const double> RunWriter::feed(std::span<const More> more) {
  std::vector<int64_t> waiting;
  for (const auto& [text, ids] : more) {
    Text& t = texts_[size_t(text)];
    if (t.ids.empty()) passes_.books().expect(text, most_tokens(text));
    t.ids.insert(t.ids.end(), ids.begin(), ids.end());
    WEFT_CHECK(!ids.empty() && int64_t(t.ids.size()) <= most_tokens(text), "{} tokens of a text", t.ids.size());
    waiting.push_back(text);
  }
  while (on_any_rank(!waiting.empty())) {
    waiting.empty() ? feed_filler() : feed_some(waiting);
    std::erase_if(waiting, [&](int64_t text) { return texts_[size_t(text)].left() == 0; });
  }
  logits_.clear();
  for (const More& m : more) {
    const std::vector<double>& last = last_[size_t(m.text)];
    logits_.insert(logits_.end(), last.begin(), last.end());
  }
  return logits_;
}

// One of the passes that are planned: a portion of a text that has more than a token left; or a token each of as many
// texts as pass at once.
void RunWriter::feed_some(const std::vector<int64_t>& waiting) {
  for (const int64_t text : waiting)
    if (const int64_t portion = passes_.portion_of(texts_[size_t(text)].left()); portion > 1)
      return pass({text}, portion);
  const auto group = waiting.begin() + texts_of_pass(int64_t(waiting.size()), rank_.plan.step.writes);
  pass({waiting.begin(), group}, 1);
}

void RunWriter::pass(const std::vector<int64_t>& texts, int64_t tokens_each) {
  std::vector<CacheBooks::Next> next;
  std::vector<int64_t> ended;
  for (const int64_t text : texts) {
    Text& t = texts_[size_t(text)];
    const auto ids = std::span<const int32_t>(t.ids).subspan(size_t(t.cached), size_t(tokens_each));
    next.push_back({.text = text, .position = t.cached, .ids = ids, .ends = t.left() == tokens_each});
    if (next.back().ends) ended.push_back(text);
    t.cached += tokens_each;
  }
  const Tensor logits = passes_.run(passes_.books().next(next));
  if (!logits) return;
  for (const int64_t text : ended) last_[size_t(text)].resize(size_t(model().vocab_size));
  copy_rows(*memory_.memory(), logits, [&](int64_t row) { return last_[size_t(ended[size_t(row)])].data(); });
}

void RunWriter::feed_filler() {
  const std::vector<int32_t> ids{0};
  passes_.run(
      passes_.books().next(std::vector<CacheBooks::Next>{{.text = passes_.filler(), .position = 0, .ids = ids}}));
  passes_.books().forget(passes_.filler());
}

std::span<const int32_t> RunWriter::unfed(int64_t text, std::span<const int32_t> ids) {
  const std::vector<int32_t>& fed = texts_[size_t(text)].ids;
  if (fed.size() < ids.size() && std::equal(fed.begin(), fed.end(), ids.begin())) return ids.subspan(fed.size());
  end(text);
  return ids;
}

void RunWriter::end(int64_t text) {
  passes_.books().forget(text);
  texts_[size_t(text)] = {};
}

bool RunWriter::on_any_rank(bool here) {
  if (!passes_.pass_together()) return here;
  double ranks = here ? 1 : 0;
  ranks_of_other_texts(rank_.mesh).all_reduce({&ranks, DType::f64, {1}}).wait();
  return ranks > 0;
}

}  // namespace weft
