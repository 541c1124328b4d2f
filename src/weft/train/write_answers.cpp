#include "weft/train/write_answers.h"

#include <algorithm>
#include <map>

#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

// Beside the end of the prompt: alone, a text loses the blank that it begins with by the rules of some tokenizers.
std::string text_behind(const Tokenizer& tokenizer, const Tokens& prompt, const Tokens& tokens) {
  constexpr size_t kEnough = 8;
  const auto decoded = [&](const Tokens& ids) { return tokenizer.decode(ids, Tokenizer::Specials::kShown); };
  Tokens all(prompt.end() - int64_t(std::min(kEnough, prompt.size())), prompt.end());
  const std::string before = decoded(all);
  all.insert(all.end(), tokens.begin(), tokens.end());
  const std::string text = decoded(all);
  return text.starts_with(before) ? text.substr(before.size()) : decoded(tokens);
}

void write_batch(TextFeeder& model, const Asked& asked, const AnswersRequest& r, size_t first,
                 const std::vector<Tokens>& prompts, std::vector<std::string>& written) {
  const std::vector<std::string>& stops = asked.set.task.stops;
  const int32_t end_of_document = r.tokenizer.end_of_document();
  std::map<int64_t, Tokens> so_far;
  const auto ends = [&](int64_t prompt, int32_t token) {
    if (token == end_of_document) return TextEnds::before_token;
    Tokens& tokens = so_far[prompt];
    tokens.push_back(token);
    const std::string text = text_behind(r.tokenizer, prompts[size_t(prompt)], tokens);
    const bool stop = std::any_of(stops.begin(), stops.end(), [&](auto& s) { return text.find(s) != text.npos; });
    return stop ? TextEnds::with_token : TextEnds::no;
  };
  const auto number = [&](int64_t prompt) {
    const size_t i = first + size_t(prompt);
    return i / r.samples * size_t{kMostAnswersOfQuestion} + i % r.samples;
  };
  const std::vector<Tokens> texts = generate_texts(
      model, {.prompts = prompts, .how = r.how, .max_tokens = asked.most_written, .ends = ends, .number = number});
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string text = text_behind(r.tokenizer, prompts[i], texts[i]);
    for (const std::string& stop : stops) text.erase(std::min(text.find(stop), text.size()));
    written.push_back(std::move(text));
  }
}

}  // namespace

void for_each_batch_of_prompts(const Asked& asked, size_t batch, size_t samples,
                               const std::function<void(size_t first, const std::vector<Tokens>& prompts)>& take) {
  const size_t all = asked.open.prompts.size() * samples;
  for (size_t first = 0; first < all; first += batch) {
    std::vector<Tokens> prompts;
    for (size_t i = first; i < std::min(first + batch, all); ++i) prompts.push_back(asked.open.prompts[i / samples]);
    take(first, prompts);
  }
}

std::optional<std::vector<std::string>> write_answers(TextFeeder& model, const Asked& asked, const AnswersRequest& r) {
  std::vector<std::string> written;
  bool stopped = false;
  const auto batch = size_t(r.texts_at_once * rank_of_texts(model.mesh()).size);
  for_each_batch_of_prompts(asked, batch, r.samples, [&](size_t first, const std::vector<Tokens>& prompts) {
    stopped = stopped || (r.stopped && r.stopped());
    if (!stopped) write_batch(model, asked, r, first, prompts, written);
  });
  if (stopped) return {};
  return written;
}

}  // namespace weft
