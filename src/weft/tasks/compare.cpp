#include "weft/tasks/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/tasks/results.h"

namespace weft {
namespace {

constexpr size_t kMostBytes = size_t{4} << 30;

struct PairedScores {
  std::vector<double> sums, counts;
};

bool holds_results(const nlohmann::json& json) { return json.is_object() && json.contains("results"); }

// The sets of a results file, by name.
class ResultsFile {
 public:
  explicit ResultsFile(const std::filesystem::path& file)
      : name_(file.string()), json_(read_json_file(file, {.max_bytes = kMostBytes})) {
    if (!holds_results(json_))
      throw FileError(
          fmt::format("{}: holds no results; `weft eval MODEL --tasks ... --output FILE` writes them", name_));
  }
  const std::string& name() const { return name_; }
  const nlohmann::json& sets() const { return JsonFields(json_, name_).list("results", "a list of tasks"); }
  const nlohmann::json* find(const std::string& task) const {
    for (const nlohmann::json& set : sets())
      if (JsonFields(set, name_).string("task") == task) return &set;
    return nullptr;
  }
  const nlohmann::json& samples(const nlohmann::json& set) const {
    const JsonFields fields(set, name_);
    const nlohmann::json& samples = fields.list("samples", "a list of scores");
    if (samples.empty() || !samples[0].is_object()) fields.fail("samples", "a list of scores");
    return samples;
  }
  // What a set has of each question, by which it can be compared.
  std::vector<std::string> metrics(const nlohmann::json& set) const {
    std::vector<std::string> names;
    for (const auto& [name, value] : JsonFields(set, name_).object("metrics").json().items())
      names.push_back(name == "perplexity" ? "log_prob" : name);
    return names;
  }
  PairedScores scores(const nlohmann::json& set, const std::string& metric) const {
    PairedScores x;
    for (const nlohmann::json& sample : samples(set)) {
      const JsonFields fields(sample, name_);
      const nlohmann::json* score = fields.find(metric);
      const bool is_pair = score != nullptr && score->is_array() && score->size() == 2 && (*score)[0].is_number() &&
                           (*score)[1].is_number();
      const auto [sum, count] = is_pair ? std::pair((*score)[0].get<double>(), (*score)[1].get<double>())
                                        : std::pair(fields.number(metric, {.min = -1e300}), 1.0);
      x.sums.push_back(sum), x.counts.push_back(count);
    }
    return x;
  }
  nlohmann::json judge(const nlohmann::json& set) const {  // null: nobody
    const nlohmann::json* judge = JsonFields(set, name_).find("judge");
    return judge == nullptr ? nlohmann::json() : *judge;
  }
  std::string hash(const nlohmann::json& set) const { return JsonFields(set, name_).string("hash"); }

 private:
  std::string name_;
  nlohmann::json json_;
};

bool is_yes_or_no(const PairedScores& x) {
  return std::all_of(x.sums.begin(), x.sums.end(), [](double v) { return v == 0 || v == 1; }) &&
         std::all_of(x.counts.begin(), x.counts.end(), [](double n) { return n == 1; });
}

Comparison compare(const PairedScores& a, const PairedScores& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.sums.size(); ++i) differences.push_back(b.sums[i] - a.sums[i]);
  const auto [mean, error] = ratio_error(differences, a.counts);
  Comparison c{.task = "",
               .metric = "",
               .items = int64_t(a.sums.size()),
               .a = ratio_error(a.sums, a.counts).mean,
               .b = ratio_error(b.sums, b.counts).mean,
               .error = error};
  if (is_yes_or_no(a) && is_yes_or_no(b)) {
    const auto gained = std::count(differences.begin(), differences.end(), 1.0);
    c.p = sign_test(gained, gained + std::count(differences.begin(), differences.end(), -1.0));
  } else if (error > 0) {
    c.p = std::erfc(std::abs(mean) / error / std::sqrt(2.0));
  } else {
    c.p = mean == 0 ? 1 : 0;
  }
  return c;
}

// Two files, and what only one of them has.
struct TwoResults {
  const ResultsFile &a, &b;
  std::vector<std::string>* left_out;

  void leave_out(const std::string& what, const ResultsFile& only_in) const {
    if (left_out != nullptr) left_out->push_back(fmt::format("{}: only in {}", what, only_in.name()));
  }
  void require_comparable(const std::string& task, const nlohmann::json& set_a, const nlohmann::json& set_b) const {
    if (a.hash(set_a) != b.hash(set_b) || a.samples(set_a).size() != b.samples(set_b).size())
      throw FileError(fmt::format(
          "{}: the two results are of other questions; run both on the same file with the same --limit", task));
    const nlohmann::json judge_a = a.judge(set_a), judge_b = b.judge(set_b);
    if (!judge_a.is_null() && !judge_b.is_null() && judge_a != judge_b)
      throw FileError(
          fmt::format("{}: the answers were judged by other reward models, or other bounds of their scores; run both "
                      "with the same --judge, and --toxic-below or --toxic-above",
                      task));
  }
  void compare_sets(const std::string& task, const nlohmann::json& set_a, const nlohmann::json& set_b,
                    std::vector<Comparison>& all) const {
    const std::vector<std::string> metrics_a = a.metrics(set_a), metrics_b = b.metrics(set_b);
    const auto has = [](const std::vector<std::string>& metrics, const std::string& metric) {
      return std::find(metrics.begin(), metrics.end(), metric) != metrics.end();
    };
    for (const std::string& metric : metrics_b)
      if (!has(metrics_a, metric)) leave_out(task + " " + metric, b);
    for (const std::string& metric : metrics_a) {
      if (!has(metrics_b, metric)) {
        leave_out(task + " " + metric, a);
        continue;
      }
      const PairedScores of_a = a.scores(set_a, metric), of_b = b.scores(set_b, metric);
      if (of_a.counts != of_b.counts)
        throw FileError(fmt::format("{}: {} is counted otherwise in the two results", task, metric));
      Comparison c = compare(of_a, of_b);
      c.task = task, c.metric = metric;
      all.push_back(std::move(c));
    }
  }
};

}  // namespace

double sign_test(int64_t k, int64_t n) {
  const int64_t fewer = std::min(k, n - k);
  const auto log_choose = [n = double(n)](double i) {
    return std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1);
  };
  double tail = 0;
  for (int64_t i = 0; i <= fewer; ++i) tail += std::exp(log_choose(double(i)) - double(n) * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

std::vector<Comparison> compare_results(const std::filesystem::path& file_a, const std::filesystem::path& file_b,
                                        std::vector<std::string>* left_out) {
  const ResultsFile a(file_a), b(file_b);
  const TwoResults both{a, b, left_out};
  std::vector<Comparison> all;
  for (const nlohmann::json& set : a.sets()) {
    const std::string task = JsonFields(set, a.name()).string("task");
    const nlohmann::json* other = b.find(task);
    if (other == nullptr) {
      both.leave_out(task, a);
      continue;
    }
    both.require_comparable(task, set, *other);
    both.compare_sets(task, set, *other, all);
  }
  for (const nlohmann::json& set : b.sets())
    if (const std::string task = JsonFields(set, b.name()).string("task"); a.find(task) == nullptr)
      both.leave_out(task, b);
  if (all.empty()) throw FileError(fmt::format("{} and {}: have no result in common", a.name(), b.name()));
  return all;
}

std::string to_text(const std::vector<Comparison>& comparisons) {
  size_t width = 4, names = 16;
  for (const Comparison& c : comparisons) {
    width = std::max(width, c.task.size());
    names = std::max(names, c.metric.size());
  }
  std::string text = fmt::format("{:<{}}  {:>6}  {:<{}}  {:>10}  {:>10}  {:>10}  {:>8}  {:>8}\n", "task", width,
                                 "items", "metric", names, "A", "B", "B - A", "stderr", "p");
  for (const Comparison& c : comparisons)
    text += fmt::format("{:<{}}  {:>6}  {:<{}}  {:>10.4f}  {:>10.4f}  {:>+10.4f}  {:>8.4f}  {:>8.2g}\n", c.task, width,
                        c.items, c.metric, names, c.a, c.b, c.b - c.a, c.error, c.p);
  return text;
}

bool is_results_file(const std::filesystem::path& file) {
  try {
    return holds_results(read_json_file(file, {.max_bytes = kMostBytes}));
  } catch (const Error&) { return false; }
}

}  // namespace weft
