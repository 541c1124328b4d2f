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

// The sets of a results file, by name.
class ResultsFile {
 public:
  explicit ResultsFile(const std::filesystem::path& file)
      : name_(file.string()), json_(read_json_file(file, {.max_bytes = kMostBytes})) {
    if (!json_.is_object() || !json_.contains("results"))
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
  std::vector<double> scores(const nlohmann::json& set, const std::string& metric) const {
    std::vector<double> x;
    for (const nlohmann::json& sample : samples(set))
      x.push_back(JsonFields(sample, name_).number(metric, {.min = -1e300}));
    return x;
  }
  std::string hash(const nlohmann::json& set) const { return JsonFields(set, name_).string("hash"); }

 private:
  std::string name_;
  nlohmann::json json_;
};

bool is_yes_or_no(const std::vector<double>& x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return v == 0 || v == 1; });
}

Comparison compare(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(b[i] - a[i]);
  const auto [mean, error] = mean_error(differences);
  Comparison c{.task = "",
               .metric = "",
               .items = int64_t(a.size()),
               .a = mean_error(a).mean,
               .b = mean_error(b).mean,
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

std::vector<Comparison> compare_results(const std::filesystem::path& file_a, const std::filesystem::path& file_b) {
  const ResultsFile a(file_a), b(file_b);
  std::vector<Comparison> all;
  for (const nlohmann::json& set : a.sets()) {
    const std::string task = JsonFields(set, a.name()).string("task");
    const nlohmann::json* other = b.find(task);
    if (other == nullptr) continue;
    if (a.hash(set) != b.hash(*other) || a.samples(set).size() != b.samples(*other).size())
      throw FileError(fmt::format(
          "{}: the two results are of other questions; run both on the same file with the same --limit", task));
    for (const char* metric : {"acc", "acc_norm", "log_prob", "strict_match", "flexible_extract"}) {
      if (!a.samples(set)[0].contains(metric)) continue;
      Comparison c = compare(a.scores(set, metric), b.scores(*other, metric));
      c.task = task, c.metric = metric;
      all.push_back(std::move(c));
    }
  }
  if (all.empty()) throw FileError(fmt::format("{} and {}: have no task in common", a.name(), b.name()));
  return all;
}

std::string to_text(const std::vector<Comparison>& comparisons) {
  size_t width = 4;
  for (const Comparison& c : comparisons) width = std::max(width, c.task.size());
  std::string text = fmt::format("{:<{}}  {:>6}  {:<16}  {:>10}  {:>10}  {:>10}  {:>8}  {:>8}\n", "task", width,
                                 "items", "metric", "A", "B", "B - A", "stderr", "p");
  for (const Comparison& c : comparisons)
    text += fmt::format("{:<{}}  {:>6}  {:<16}  {:>10.4f}  {:>10.4f}  {:>+10.4f}  {:>8.4f}  {:>8.2g}\n", c.task, width,
                        c.items, c.metric, c.a, c.b, c.b - c.a, c.error, c.p);
  return text;
}

}  // namespace weft
