#include "weft/tasks/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

std::vector<int32_t> last_of(const std::vector<int32_t>& ids, int64_t most, int64_t& truncated) {
  const int64_t beyond = std::max<int64_t>(0, int64_t(ids.size()) - most);
  truncated += beyond > 0;
  return {ids.begin() + beyond, ids.end()};
}

// The mark that a text begins with stands before an empty context, too: the first token of the choice needs one.
ScoredText encode_pair(const Tokenizer& tokenizer, std::string context, std::string choice) {
  const size_t end = context.find_last_not_of(" \t\r\n") + 1;
  choice.insert(0, context.substr(end));
  context.erase(end);
  std::vector<int32_t> ids = prompt_ids(tokenizer, context);
  const auto before = std::max<int64_t>(1, int64_t(ids.size()));
  if (context.empty())
    tokenizer.encode(choice, ids);
  else
    ids = prompt_ids(tokenizer, context + choice);
  const auto scored = std::max<int64_t>(0, int64_t(ids.size()) - before);
  return {std::move(ids), scored};
}

}  // namespace

std::string examples_before(const TaskSet& set, size_t i, const TaskSet& pool, const PromptSpec& spec) {
  if (!set.preamble.empty()) return set.preamble;
  if (spec.num_fewshot == 0) return "";
  if (pool.items[0].choices.empty())
    throw ConfigError(fmt::format("{} {}: the rows of {} have no solved answers; leave it out",
                                  spec.options.num_fewshot, spec.num_fewshot, pool.name));
  const auto is_asked = [&asked = set.items[i]](const TaskItem& item) {
    return item.contexts == asked.contexts && item.choices == asked.choices;
  };
  const auto others = std::ssize(pool.items) - std::count_if(pool.items.begin(), pool.items.end(), is_asked);
  if (others < spec.num_fewshot)
    throw ConfigError(fmt::format("{} {}: {} has only {} other rows; ask for at most so many", spec.options.num_fewshot,
                                  spec.num_fewshot, pool.name, others));
  const uint64_t key = rng_key(rng_key(spec.seed, set.name), i);
  std::vector<size_t> chosen;
  std::string text;
  for (uint64_t draw = 0; int64_t(chosen.size()) < spec.num_fewshot; ++draw) {
    const size_t at = random_bits64(key, draw) % pool.items.size();
    const TaskItem& example = pool.items[at];
    if (is_asked(example) || std::find(chosen.begin(), chosen.end(), at) != chosen.end()) continue;
    chosen.push_back(at);
    text += example.context(example.gold) + example.choice(example.gold) + "\n\n";
  }
  return text;
}

TaskTexts texts_to_score(const TaskSet& set, const TaskSet& pool, const PromptSpec& spec) {
  TaskTexts all;
  for (size_t i = 0; i < set.items.size(); ++i) {
    const TaskItem& item = set.items[i];
    const std::string examples = examples_before(set, i, pool, spec);
    all.first.push_back(all.texts.size());
    for (size_t c = 0; c < item.size(); ++c) {
      ScoredText text = encode_pair(spec.tokenizer, examples + item.context(c), item.choice(c));
      text.ids = last_of(text.ids, spec.window + 1, all.truncated);  // the last token is only foretold
      text.scored = std::min<int64_t>(text.scored, std::ssize(text.ids) - 1);
      if (text.scored < 1)
        throw FileError(fmt::format("{}: an answer has no token of its own to score: is it empty, or {} below 2?",
                                    item.where, spec.options.window));
      all.texts.push_back(std::move(text));
    }
  }
  all.first.push_back(all.texts.size());
  return all;
}

AnswerPrompts prompts_to_answer(const TaskSet& set, const TaskSet& pool, const PromptSpec& spec, int64_t most) {
  AnswerPrompts open;
  for (size_t i = 0; i < set.items.size(); ++i) {
    const std::string text = examples_before(set, i, pool, spec) + set.items[i].contexts[0];
    open.prompts.push_back(last_of(prompt_ids(spec.tokenizer, text), most, open.truncated));
  }
  return open;
}

}  // namespace weft
