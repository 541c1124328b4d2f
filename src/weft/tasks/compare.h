// Two models on the same questions.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft {

// One metric of one set, of two results files: each question's two scores are a pair.
struct Comparison {
  std::string task, metric;  // "log_prob" in place of a perplexity
  int64_t items = 0;
  double a = 0, b = 0;  // means
  double error = 0;     // standard error of b - a
  double p = 1;         // of so large a difference, or a larger one, between models that are equally good
};
// Scores of 0 or 1: by McNemar's exact test; others: by the normal distribution of the mean difference.
// Throws FileError: no results file, other questions, or not one metric of a task in common.
// `left_out`, if there, gets a line for each set and metric that only one of them has.
std::vector<Comparison> compare_results(const std::filesystem::path& a, const std::filesystem::path& b,
                                        std::vector<std::string>* left_out = nullptr);
std::string to_text(const std::vector<Comparison>& comparisons);

// Whether the file is of `weft eval --output`, as far as its outermost names tell.
bool is_results_file(const std::filesystem::path& file);

// The probability that a fair coin thrown `n` times falls as unevenly as `k` to n - k, or more so.
double sign_test(int64_t k, int64_t n);

}  // namespace weft
