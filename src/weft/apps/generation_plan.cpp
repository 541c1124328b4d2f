#include "weft/apps/generation_plan.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "weft/base/error.h"

namespace weft {
namespace {

using Needs = TextGenerator::Needs;

// What is told of a rank, in the order of the columns.
std::vector<int64_t> bytes_of(const Needs& n) {
  const PersistentArenas::Sizes& kept = n.plan.persistent;
  return {kept.params + kept.transit, kept.constants, n.cache_bytes, n.plan.evaluation, n.plan.workspace, n.total()};
}

bool need_the_same(const Needs& a, const Needs& b) {
  return bytes_of(a) == bytes_of(b) && a.pages == b.pages && a.tokens_at_once == b.tokens_at_once;
}

constexpr int64_t kMostTokens = int64_t{1} << 26, kMostPrompts = 512;  // all together: a plan runs their passes dry

// The whole of `text` as a number from 1 on; else 0.
int64_t number_of(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() && n > 0 && n <= kMostTokens ? n : 0;
}

}  // namespace

void GenerationPlan::add(int rank, const Needs& needs) {
  const auto known =
      std::find_if(classes_.begin(), classes_.end(), [&](const Alike& c) { return need_the_same(c.needs, needs); });
  if (known != classes_.end())
    ++known->count;
  else
    classes_.push_back({rank, 1, needs});
  std::stable_sort(classes_.begin(), classes_.end(),
                   [](const Alike& a, const Alike& b) { return a.needs.total() > b.needs.total(); });
}

namespace {

template <class All, class F>
int64_t sum_over_ranks(const All& classes, const F& of) {
  return std::accumulate(classes.begin(), classes.end(), int64_t{0},
                         [&](int64_t sum, const auto& c) { return sum + c.count * of(c.needs); });
}

}  // namespace

int64_t GenerationPlan::total_bytes() const {
  return sum_over_ranks(classes_, [](const Needs& n) { return n.total(); });
}
int64_t GenerationPlan::cache_bytes() const {
  return sum_over_ranks(classes_, [](const Needs& n) { return n.cache_bytes; });
}
int64_t GenerationPlan::pages() const {
  return sum_over_ranks(classes_, [](const Needs& n) { return n.pages; });
}

std::string GenerationPlan::to_string() const {
  std::string text = fmt::format("{:>5}  {:>8}  {:>14}  {:>6}  {:>10}  {:>9}  {:>15}  {:>11}  {:>9}  {:>10}\n", "ranks",
                                 "first is", "portion", "pages", "weights", "rotations", "keys and values",
                                 "temporaries", "workspace", "MiB in all");
  const auto line = [&](int64_t ranks, const std::string& first, const std::string& at_once, int64_t pages,
                        const std::vector<int64_t>& bytes) {
    const auto mib = [&](size_t i) { return double(bytes[i]) / kMiB; };
    text += fmt::format("{:>5}  {:>8}  {:>14}  {:>6}  {:>10.2f}  {:>9.2f}  {:>15.2f}  {:>11.2f}  {:>9.2f}  {:>10.2f}\n",
                        ranks, first, at_once, pages, mib(0), mib(1), mib(2), mib(3), mib(4), mib(5));
  };
  int64_t ranks = 0;
  std::vector<int64_t> all(6, 0);
  for (const Alike& c : classes_) {
    const std::vector<int64_t> bytes = bytes_of(c.needs);
    line(c.count, std::to_string(c.first), std::to_string(c.needs.tokens_at_once), c.needs.pages, bytes);
    for (size_t i = 0; i < all.size(); ++i) all[i] += c.count * bytes[i];
    ranks += c.count;
  }
  if (ranks > 1) line(ranks, "", "", pages(), all);
  return text;
}

std::vector<int64_t> parse_prompt_tokens(const std::vector<std::string>& words) {
  std::vector<int64_t> lengths;
  int64_t left = kMostTokens;
  for (const std::string& word : words) {
    const size_t times = word.find('x');
    const int64_t count = times == std::string::npos ? 1 : number_of(std::string_view(word).substr(0, times));
    const int64_t tokens = number_of(std::string_view(word).substr(times == std::string::npos ? 0 : times + 1));
    if (count == 0 || tokens == 0 || count > left / tokens || int64_t(lengths.size()) + count > kMostPrompts)
      throw ConfigError(fmt::format(
          "--prompt-tokens {}: expected a number of tokens, as 2048, or of prompts of so many, as 4x2048; at most {} "
          "prompts, and 2^26 tokens",
          word, kMostPrompts));
    left -= count * tokens;
    lengths.insert(lengths.end(), size_t(count), tokens);
  }
  return lengths;
}

}  // namespace weft
