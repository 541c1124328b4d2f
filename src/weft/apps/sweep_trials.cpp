#include "weft/apps/sweep_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

// The parts between commas that are outside of brackets and quotes.
std::vector<std::string> listed_values(std::string_view text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
    if (c == ',' && depth == 0 && quote == 0)
      values.emplace_back();
    else
      values.back() += c;
  }
  return values;
}

std::optional<double> swept_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

bool is_whole(std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; }

// None: the value has no "..", or is a path or a quoted text.
std::optional<SweptKey::Range> swept_range(const std::string& word, std::string_view value) {
  const size_t dots = value.find("..");
  if (dots == value.npos || value.find_first_of("/\"'[") != value.npos) return {};
  const std::string_view low = value.substr(0, dots), high = value.substr(dots + 2);
  const auto from = swept_number(low), to = swept_number(high);
  if (!from || !to || *from <= 0 || *to <= *from)
    throw ConfigError(
        fmt::format("{}: this is no range: write two numbers above 0, the lower one first, as optimizer.lr=1e-5..1e-3; "
                    "a text with dots goes in quotes",
                    word));
  return SweptKey::Range{.low = *from, .high = *to, .whole = is_whole(low) && is_whole(high)};
}

SweptKey parse_word(const std::string& word) {
  const size_t sign = word.find('=');
  if (sign == word.npos || sign == 0)
    throw ConfigError(fmt::format("{}: expected KEY=VALUE,VALUE... or KEY=LOW..HIGH, as optimizer.lr=1e-4,3e-4", word));
  SweptKey swept{.key = word.substr(0, sign)};
  const std::string text = word.substr(sign + 1);
  swept.range = swept_range(word, text);
  if (swept.range) return swept;
  swept.values = listed_values(text);
  for (auto v = swept.values.begin(); v != swept.values.end(); ++v) {
    if (v->empty())
      throw ConfigError(
          fmt::format("{}: a value is empty; write {}=VALUE,VALUE..., and an empty text as \"\"", word, swept.key));
    if (std::find(swept.values.begin(), v, *v) != v)
      throw ConfigError(fmt::format("{}: {} stands there twice; each value is tried once", word, *v));
  }
  return swept;
}

std::string drawn(const SweptKey::Range& range, double uniform) {
  const double value = range.low * std::pow(range.high / range.low, uniform);
  if (range.whole) return fmt::format("{}", std::llround(std::clamp(value, range.low, range.high)));
  // Six digits are enough for a person to type again; they may round beyond the ends.
  const double rounded = std::stod(fmt::format("{:.6g}", value));
  return fmt::format("{}", std::clamp(rounded, range.low, range.high));
}

}  // namespace

SweepWords parse_sweep_words(const std::vector<std::string>& words) {
  SweepWords parsed;
  std::vector<std::string> keys;
  for (const std::string& word : words) {
    SweptKey swept = parse_word(word);
    if (std::find(keys.begin(), keys.end(), swept.key) != keys.end())
      throw ConfigError(fmt::format("{}: {} is given twice; write all of its values in one word", word, swept.key));
    keys.push_back(swept.key);
    if (!swept.range && swept.values.size() == 1)
      parsed.settings.push_back(word);
    else
      parsed.swept.push_back(std::move(swept));
  }
  return parsed;
}

Trials grid_trials(const std::vector<SweptKey>& swept) {
  Trials trials(1);
  for (const SweptKey& key : swept) {
    if (key.range)
      throw ConfigError(
          fmt::format("{}: a range has no grid; list its values, or draw from it with --random N", key.key));
    Trials more;
    for (const auto& trial : trials)
      for (const std::string& value : key.values) {
        more.push_back(trial);
        more.back().push_back(key.key + "=" + value);
        if (int64_t(more.size()) > kMostTrials)
          throw ConfigError(
              fmt::format("the grid has more than {} trials; list fewer values, or draw some of them with "
                          "--random N",
                          kMostTrials));
      }
    trials = std::move(more);
  }
  return trials;
}

Trials random_trials(const std::vector<SweptKey>& swept, int64_t num_trials, uint64_t seed) {
  Trials trials(static_cast<size_t>(num_trials));
  for (const SweptKey& key : swept) {
    const uint64_t sequence = rng_key(seed, key.key);
    for (size_t i = 0; i < trials.size(); ++i) {
      const double uniform = random_uniform(sequence, i);
      const std::string value =
          key.range ? drawn(*key.range, uniform) : key.values[size_t(uniform * double(key.values.size()))];
      trials[i].push_back(key.key + "=" + value);
    }
  }
  return trials;
}

std::vector<Rung> halving_rungs(int64_t trials, int64_t steps, int64_t least, int64_t eta) {
  WEFT_CHECK(trials >= 1 && steps >= 1 && least >= 1 && eta >= 2, "no halving of {} trials, eta {}", trials, eta);
  std::vector<Rung> rungs;
  for (int64_t at = least; at<steps; at = at> steps / eta ? steps : at * eta) {
    rungs.push_back({.steps = at, .trials = trials});
    trials = std::max<int64_t>(1, trials / eta);
  }
  rungs.push_back({.steps = steps, .trials = trials});
  return rungs;
}

}  // namespace weft
