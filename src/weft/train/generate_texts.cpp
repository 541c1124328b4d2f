#include "weft/train/generate_texts.h"

#include <algorithm>

#include "weft/records/clock.h"
#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

// Choices of different texts are numbered so far apart.
constexpr uint64_t kChoicesOfText = uint64_t{1} << 32;

void wait_sum(Communicator& ranks, std::vector<double>& numbers) {
  if (!numbers.empty()) ranks.all_reduce({numbers.data(), DType::f64, {int64_t(numbers.size())}}).wait();
}

// The texts of all ranks of dp: the others have zeros where this one has tokens. As large as the texts are, however
// many tokens they might have had.
std::vector<Tokens> of_all_ranks(Communicator& dp, int64_t first, const std::vector<Tokens>& mine, size_t num_prompts) {
  std::vector<double> sizes(num_prompts, 0.0);
  for (size_t i = 0; i < mine.size(); ++i) sizes[size_t(first) + i] = double(mine[i].size());
  wait_sum(dp, sizes);
  std::vector<size_t> ends(num_prompts + 1, 0);  // of each text, behind 0
  for (size_t i = 0; i < num_prompts; ++i) ends[i + 1] = ends[i] + size_t(sizes[i]);
  std::vector<double> tokens(ends.back(), 0.0);
  for (size_t i = 0; i < mine.size(); ++i)
    std::copy(mine[i].begin(), mine[i].end(), tokens.begin() + int64_t(ends[size_t(first) + i]));
  wait_sum(dp, tokens);
  std::vector<Tokens> all;
  for (size_t i = 0; i < num_prompts; ++i)
    all.emplace_back(tokens.begin() + int64_t(ends[i]), tokens.begin() + int64_t(ends[i + 1]));
  return all;
}

}  // namespace

std::vector<Tokens> generate_texts(TextFeeder& generator, const GenerateRequest& r) {
  const auto& mesh = generator.mesh();
  const Run here = prompts_of(int64_t(r.prompts.size()), rank_of_texts(mesh));
  const auto vocabulary = size_t(generator.model().vocab_size);
  std::vector<Tokens> texts(size_t(here.count), Tokens{});
  std::vector<int64_t> open;
  std::vector<TextFeeder::More> more;
  for (int64_t i = 0; i < here.count; ++i) {
    open.push_back(i);
    more.push_back({i, generator.unfed(i, r.prompts[size_t(here.first + i)])});
  }
  int64_t fed = 0;
  for (const TextFeeder::More& m : more) fed += int64_t(m.ids.size());
  const double began = now_s();
  double chose_first = began;
  for (int64_t done = 0; done < r.max_tokens && generator.on_any_rank(!open.empty()); ++done) {
    const std::span<const double> logits = generator.feed(more);
    if (open.empty()) continue;
    const std::vector<int32_t> chosen = choose_once(mesh, generator.has_head(), open.size(), [&](size_t i) {
      const int64_t prompt = here.first + open[i];
      const uint64_t number = r.number ? r.number(prompt) : uint64_t(prompt);
      return sample_token(logits.subspan(i * vocabulary, vocabulary), r.how,
                          number * kChoicesOfText + r.first_choice + uint64_t(done));
    });
    if (done == 0) chose_first = now_s();
    std::vector<int64_t> going_on;
    more.clear();
    for (size_t i = 0; i < open.size(); ++i) {
      const int64_t text = open[i], prompt = here.first + text;
      const TextEnds ends = r.ends ? r.ends(prompt, chosen[i]) : TextEnds::no;
      Tokens& tokens = texts[size_t(text)];
      if (ends != TextEnds::before_token) {
        tokens.push_back(chosen[i]);
        if (r.said) r.said(prompt, chosen[i]);
      }
      const auto all = int64_t(r.prompts[size_t(prompt)].size() + tokens.size());
      if (ends == TextEnds::no && all < generator.most_tokens(text))
        going_on.push_back(text);
      else if (!r.stay)
        generator.end(text);
    }
    open = std::move(going_on);
    for (const int64_t text : open) more.push_back({text, std::span(texts[size_t(text)]).last(1)});
  }
  if (r.times) *r.times = {chose_first - began, now_s() - chose_first, fed};
  return of_all_ranks(ranks_of_other_texts(mesh), here.first, texts, r.prompts.size());
}

}  // namespace weft
