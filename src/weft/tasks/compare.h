// Two models on the same questions.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

// One metric of one set, of two results files: each question's two scores are a pair.
struct Comparison {
  std::string task, metric;  // "log_prob" in place of a perplexity
  int64_t items = 0;
  double a = 0, b = 0;  // means
  double error = 0;     // standard error of b - a
  double p = 1;         // of so large a difference, or a larger one, between models that are equally good
};
// Of scores that are 0 or 1: McNemar's exact test; of others: the normal distribution of the mean difference.
// Throws FileError: no results file, other questions or metrics, or not one task in common.
std::vector<Comparison> compare_results(const std::filesystem::path& a, const std::filesystem::path& b);
std::string to_text(const std::vector<Comparison>& comparisons);

// The probability that a fair coin thrown `n` times falls as unevenly as `k` to n - k, or more so.
double sign_test(int64_t k, int64_t n);

}  // namespace weft
