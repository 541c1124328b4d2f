#include "weft/tasks/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>

#include "weft/base/error.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// The harness leaves out of the length what separates the choice from its context.
double bytes_of(const std::string& choice) {
  return double(std::max<size_t>(1, choice.size() - (choice.starts_with(' ') ? 1 : 0)));
}

size_t largest(const std::vector<double>& x) { return size_t(std::max_element(x.begin(), x.end()) - x.begin()); }

void score_choices(const Task& task, const TaskItem& item, const std::vector<double>& log_probs, Json& sample) {
  sample["gold"] = item.gold;
  sample["log_probs"] = log_probs;
  sample["acc"] = int(largest(log_probs) == item.gold);
  if (!task.has("acc_norm")) return;
  std::vector<double> normed;
  for (size_t c = 0; c < log_probs.size(); ++c) normed.push_back(log_probs[c] / bytes_of(item.choice(c)));
  sample["acc_norm"] = int(largest(normed) == item.gold);
}

// The choice by each wording, and whether they agree.
void score_wordings(const TaskItem& item, const std::vector<double>& log_probs, Json& sample) {
  const auto choices = item.given.get<size_t>();
  std::vector<size_t> chosen;
  for (size_t first = 0; first < log_probs.size(); first += choices)
    chosen.push_back(largest({log_probs.begin() + int64_t(first), log_probs.begin() + int64_t(first + choices)}));
  const auto right = size_t(std::count(chosen.begin(), chosen.end(), item.gold));
  sample["gold"] = item.gold;
  sample["chosen"] = chosen;
  sample["acc"] = double(right) / double(chosen.size());
  sample["worst"] = int(right == chosen.size());
  sample["consistent"] = int(std::count(chosen.begin(), chosen.end(), chosen[0]) == std::ssize(chosen));
}

std::string pass_at(int64_t k) { return fmt::format("pass@{}", k); }

void score_samples(const Task& task, const TaskItem& item, const SetAnswers& answers, size_t i, Json& sample) {
  const auto n = size_t(answers.samples);
  const auto written = std::span(answers.written).subspan(i * n, n);
  Json passed = Json::array();
  int64_t right = 0;
  for (const std::string& one : written) {
    Json judged;
    task.judge(item, one, answers.judging, judged);
    right += judged["passed"].get<int64_t>();
    passed.push_back(judged["passed"]);
  }
  sample["written"] = n == 1 ? Json(written[0]) : Json(std::vector<std::string>(written.begin(), written.end()));
  sample["passed"] = passed;
  for (const int64_t k : answers.judging.pass_at) sample[pass_at(k)] = pass_at_k(answers.samples, right, k);
}

std::vector<std::string> metrics_of(const Task& task, const Judging& judging) {
  if (!task.passes) return task.metrics;
  std::vector<std::string> metrics;
  for (const int64_t k : judging.pass_at) metrics.push_back(pass_at(k));
  return metrics;
}

}  // namespace

// 1 - C(n - c, k) / C(n, k), as a product of c factors, none of which overflows.
double pass_at_k(int64_t n, int64_t c, int64_t k) {
  WEFT_CHECK(1 <= k && k <= n && 0 <= c && c <= n, "pass@{} of {} right ones of {}", k, c, n);
  if (n - c < k) return 1;
  double none = 1;
  for (int64_t i = n - c + 1; i <= n; ++i) none *= 1 - double(k) / double(i);
  return 1 - none;
}

Json score_item(const Task& task, const TaskItem& item, const SetAnswers& answers, size_t i) {
  Json sample{{"row", item.row}};
  if (task.kind == TaskKind::choices) {
    task.has("consistent") ? score_wordings(item, answers.log_probs[i], sample)
                           : score_choices(task, item, answers.log_probs[i], sample);
  } else if (task.kind == TaskKind::last_word) {
    sample["log_prob"] = answers.log_probs[i][0];
    sample["acc"] = int(answers.likeliest[i]);
  } else if (task.passes) {
    score_samples(task, item, answers, i, sample);
  } else {
    sample["written"] = answers.written[i];
    task.judge(item, answers.written[i], answers.judging, sample);
    if (!answers.scores.empty()) {
      sample["score"] = answers.scores[i];
      sample["judged_toxic"] = int(answers.judging.judge->is_toxic(answers.scores[i]));
    }
  }
  return sample;
}

std::pair<double, double> sum_and_count(const Json& score) {
  if (score.is_array()) return {score.at(0).get<double>(), score.at(1).get<double>()};
  return {score.get<double>(), 1};
}

MeanError ratio_error(std::span<const double> sums, std::span<const double> counts) {
  const double n = double(sums.size()), all = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double ratio = std::accumulate(sums.begin(), sums.end(), 0.0) / all;
  double squares = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double beside = sums[i] - ratio * counts[i];
    squares += beside * beside;
  }
  return {ratio, n > 1 ? std::sqrt(squares * n / (n - 1)) / all : 0};
}

MeanError mean_error(std::span<const double> x) { return ratio_error(x, std::vector<double>(x.size(), 1.0)); }

Json results_of(const TaskSet& set, const SetAnswers& answers) {
  Json samples = Json::array(), metrics;
  for (size_t i = 0; i < set.items.size(); ++i) samples.push_back(score_item(set.task, set.items[i], answers, i));
  for (const std::string& metric : metrics_of(set.task, answers.judging)) {
    if (!samples[0].contains(metric)) continue;  // not judged by that
    std::vector<double> sums, counts;
    for (const Json& sample : samples) {
      const auto [sum, count] = sum_and_count(sample[metric]);
      sums.push_back(sum), counts.push_back(count);
    }
    if (std::all_of(counts.begin(), counts.end(), [](double c) { return c == 0; })) continue;  // of no question
    auto [mean, error] = ratio_error(sums, counts);
    const bool is_log = metric == "log_prob";
    if (is_log) mean = std::exp(-mean), error *= mean;
    metrics[is_log ? "perplexity" : metric] = Json{{"value", mean}, {"stderr", error}};
  }
  Json all{{"task", set.name},
           {"group", set.group},
           {"hash", set.hash},
           {"items", set.items.size()},
           {"truncated", answers.truncated},
           {"metrics", metrics}};
  if (!answers.scores.empty()) {
    const AnswerJudge& judge = *answers.judging.judge;
    all["judge"] = Json{{"weights", judge.weights}, {judge.below ? "toxic_below" : "toxic_above", judge.bound}};
  }
  all["samples"] = std::move(samples);
  return all;
}

Json with_groups(std::vector<Json> results) {
  std::map<std::string, std::vector<const Json*>> of_group;
  for (const Json& r : results)
    if (!r["group"].get<std::string>().empty()) of_group[r["group"].get<std::string>()].push_back(&r);
  Json groups = Json::array();
  for (const auto& [name, sets] : of_group) {
    Json metrics;
    for (const auto& [metric, first] : sets[0]->at("metrics").items()) {
      const auto has = [&name = metric](const Json* r) { return r->at("metrics").contains(name); };
      if (!std::all_of(sets.begin(), sets.end(), has)) continue;
      double sum = 0, squares = 0;
      for (const Json* r : sets) {
        const double error = r->at("metrics")[metric]["stderr"];
        sum += r->at("metrics")[metric]["value"].get<double>(), squares += error * error;
      }
      const double n = double(sets.size());
      metrics[metric] = Json{{"value", sum / n}, {"stderr", std::sqrt(squares) / n}};
    }
    int64_t items = 0, truncated = 0;
    for (const Json* r : sets) items += r->at("items").get<int64_t>(), truncated += r->at("truncated").get<int64_t>();
    groups.push_back(Json{{"task", name}, {"items", items}, {"truncated", truncated}, {"metrics", metrics}});
  }
  return Json{{"groups", groups}, {"results", results}};
}

std::string table_of(const Json& all) {
  size_t width = 4, names = 16;
  for (const char* part : {"groups", "results"})
    for (const Json& r : all[part]) {
      width = std::max(width, r["task"].get<std::string>().size());
      for (const auto& [metric, m] : r["metrics"].items()) names = std::max(names, metric.size());
    }
  std::string text =
      fmt::format("{:<{}}  {:>6}  {:<{}}  {:>10}  {:>8}\n", "task", width, "items", "metric", names, "value", "stderr");
  for (const char* part : {"groups", "results"})
    for (const Json& r : all[part])
      for (const auto& [metric, m] : r["metrics"].items())
        text +=
            fmt::format("{:<{}}  {:>6}  {:<{}}  {:>10.4f}  {:>8.4f}\n", r["task"].get<std::string>(), width,
                        r["items"].get<int64_t>(), metric, names, m["value"].get<double>(), m["stderr"].get<double>());
  return text;
}

}  // namespace weft
