// What a model scored: metrics of each question, their means and standard errors, as JSON and as a table.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "weft/tasks/task_files.h"

namespace weft {

// What a model made of the questions of one set.
struct SetAnswers {
  std::vector<std::vector<double>> log_probs;  // of each item's choices; of kind number none
  std::vector<bool> likeliest;                 // of kind last_word: the continuation is what the model would write
  std::vector<std::string> written;            // of kind number
  int64_t truncated = 0;                       // texts that lost their beginning
};

// Of one question: "acc", "acc_norm", "log_prob", "strict_match", "flexible_extract", and what they are made of.
// Choices with the same score: the first is the answer.
nlohmann::ordered_json score_item(const Task& task, const TaskItem& item, const SetAnswers& answers, size_t i);

// {"task", "group", "hash", "items", "truncated", "metrics": {"acc": {"value", "stderr"}}, "samples": [...]}.
// Standard errors are those of a mean, sample deviation / sqrt(items); of a perplexity, that of its logarithm times it.
nlohmann::ordered_json results_of(const TaskSet& set, const SetAnswers& answers);

// The results of sets, and for groups of several the mean of their sets, each of which counts the same.
nlohmann::ordered_json with_groups(std::vector<nlohmann::ordered_json> results);

// A line for each metric of each set and group.
std::string table_of(const nlohmann::ordered_json& results);

// The number behind "####", and the last number of a text, without what may differ in writing ($ and commas, a full
// stop at the end); "[invalid]" where there is none.
std::string strict_number(const std::string& text);
std::string last_number(const std::string& text);

// The mean and its standard error; 0 of a single number.
struct MeanError {
  double mean = 0, error = 0;
};
MeanError mean_error(std::span<const double> x);

}  // namespace weft
