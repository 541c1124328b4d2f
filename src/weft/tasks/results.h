// What a model scored: metrics of each question, their means and standard errors, as JSON and as a table.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/tasks/task_files.h"

namespace weft {

// What a model made of the questions of one set.
struct SetAnswers {
  std::vector<std::vector<double>> log_probs;  // of each item's choices; of kind written none
  std::vector<bool> likeliest;                 // of kind last_word: the continuation is what the model would write
  std::vector<std::string> written;            // of kind written: of each item `samples`, one behind the other
  int64_t samples = 1;                         // more only where answers pass or not
  std::vector<double> scores = {};             // of `written` by a judge, where there is one
  Judging judging = {};                        // of these
  int64_t truncated = 0;                       // texts that lost their beginning
};

// Of one question: what its task has as metrics, and what they are made of. Choices with the same score: the first is
// the answer.
nlohmann::ordered_json score_item(const Task& task, const TaskItem& item, const SetAnswers& answers, size_t i);

// {"task", "group", "hash", "items", "truncated", "metrics": {"acc": {"value", "stderr"}}, "samples": [...]}, and
// "judge" where a reward model has scored answers.
// Standard errors are those of a mean, sample deviation / sqrt(items); of a perplexity, that of its logarithm times it.
nlohmann::ordered_json results_of(const TaskSet& set, const SetAnswers& answers);

// The results of sets, and for groups of several the mean of their sets, each of which counts the same.
nlohmann::ordered_json with_groups(std::vector<nlohmann::ordered_json> results);

// A line for each metric of each set and group.
std::string table_of(const nlohmann::ordered_json& results);

// The probability that of k answers, drawn from n of which c are right, one at least is right: without bias, that of k
// answers of the model. 1 <= k <= n.                                               Chen et al. 2021, equation 1
double pass_at_k(int64_t n, int64_t c, int64_t k);

// The mean and its standard error; 0 of a single number.
struct MeanError {
  double mean = 0, error = 0;
};
MeanError mean_error(std::span<const double> x);
// The sum of all by the sum of all counts, and its standard error: questions are drawn, with all that they count.
MeanError ratio_error(std::span<const double> sums, std::span<const double> counts);
std::pair<double, double> sum_and_count(const Scores& score);

}  // namespace weft
