// What a sweep tries: the values of its keys, its trials, and how many of them go on at each rung of a halving.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// A key of the recipe with several values, or with a range from which values are drawn.
struct SweptKey {
  struct Range {
    double low = 0, high = 0;  // 0 < low < high
    bool whole = false;        // whole numbers alone
  };
  std::string key = {};
  std::vector<std::string> values = {};  // of a list: as TOML, or plain text
  std::optional<Range> range = {};
};

// What the words "key=value" of the command line mean. Values stand apart by commas that are outside of brackets and
// quotes; "1e-5..1e-3" is a range. One value alone is a setting of all trials.
struct SweepWords {
  std::vector<SweptKey> swept = {};
  std::vector<std::string> settings = {};
};
// Throws ConfigError for a word without a key, an empty or repeated value, a range that is none, and a key that stands
// twice.
SweepWords parse_sweep_words(const std::vector<std::string>& words);

// The settings of each trial, "key=value" in the order of the keys.
using Trials = std::vector<std::vector<std::string>>;
// All combinations; the last key changes fastest. Throws ConfigError where a key has a range, or there are more than
// kMostTrials.
Trials grid_trials(const std::vector<SweptKey>& swept);
// So many draws: from a range log-uniformly, from a list evenly. A function of the seed, the key and the trial alone.
Trials random_trials(const std::vector<SweptKey>& swept, int64_t num_trials, uint64_t seed);
inline constexpr int64_t kMostTrials = 10'000;

// A rung of successive halving: so many trials train up to this step.
struct Rung {
  int64_t steps = 0;
  int64_t trials = 0;
  bool operator==(const Rung&) const = default;
};
// From `least` steps on, each eta times the one before, and the last one of all `steps`; of each rung's trials, one in
// eta goes on, at least one. Li et al. 2017, "Hyperband", algorithm 1.
std::vector<Rung> halving_rungs(int64_t trials, int64_t steps, int64_t least, int64_t eta);

}  // namespace weft
