#include "weft/tasks/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

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
  if (!task.normalises) return;
  std::vector<double> normed;
  for (size_t c = 0; c < log_probs.size(); ++c) normed.push_back(log_probs[c] / bytes_of(item.choice(c)));
  sample["acc_norm"] = int(largest(normed) == item.gold);
}

std::string plain(std::string number) {
  std::erase_if(number, [](char c) { return c == ',' || c == '$'; });
  if (number.ends_with('.')) number.pop_back();
  return number;
}

constexpr const char* kNoNumber = "[invalid]";
constexpr const char* kDigits = "0123456789";

}  // namespace

// #### (-?[0-9.,]+)
std::string strict_number(const std::string& text) {
  const std::string mark = "#### ";
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
    const size_t begin = at + mark.size(), first = begin + (text.substr(begin, 1) == "-" ? 1 : 0);
    const size_t end = std::min(text.find_first_not_of("0123456789.,", first), text.size());
    if (end > first) return plain(text.substr(begin, end - begin));
  }
  return kNoNumber;
}

// The last of (-?[$0-9.,]{2,})|(-?[0-9]+).
std::string last_number(const std::string& text) {
  const std::string within = std::string("$.,") + kDigits;
  std::string found = kNoNumber;
  for (size_t at = 0; at < text.size();) {
    const size_t first = at + (text[at] == '-' ? 1 : 0);
    const size_t end = std::min(text.find_first_not_of(within, first), text.size());
    const bool is_number = end >= first + 2 || (end == first + 1 && text.find_first_of(kDigits, first) == first);
    if (is_number) found = plain(text.substr(at, end - at));
    at = is_number ? end : at + 1;
  }
  return found;
}

Json score_item(const Task& task, const TaskItem& item, const SetAnswers& answers, size_t i) {
  Json sample{{"row", item.row}};
  if (task.kind == TaskKind::choices) score_choices(task, item, answers.log_probs[i], sample);
  if (task.kind == TaskKind::last_word) {
    sample["log_prob"] = answers.log_probs[i][0];
    sample["acc"] = int(answers.likeliest[i]);
  }
  if (task.kind == TaskKind::number) {
    const std::string right = strict_number(item.choices[0]), &written = answers.written[i];
    sample["gold"] = right;
    sample["written"] = written;
    sample["strict_match"] = int(strict_number(written) == right);
    sample["flexible_extract"] = int(last_number(written) == right);
  }
  return sample;
}

MeanError mean_error(std::span<const double> x) {
  const double n = double(x.size());
  double sum = 0, squares = 0;
  for (const double v : x) sum += v;
  for (const double v : x) squares += (v - sum / n) * (v - sum / n);
  return {sum / n, x.size() > 1 ? std::sqrt(squares / (n - 1) / n) : 0};
}

Json results_of(const TaskSet& set, const SetAnswers& answers) {
  Json samples = Json::array(), metrics;
  for (size_t i = 0; i < set.items.size(); ++i) samples.push_back(score_item(set.task, set.items[i], answers, i));
  for (const char* metric : {"acc", "acc_norm", "log_prob", "strict_match", "flexible_extract"}) {
    if (!samples[0].contains(metric)) continue;
    std::vector<double> x;
    for (const Json& sample : samples) x.push_back(sample[metric].get<double>());
    auto [mean, error] = mean_error(x);
    const bool is_log = std::string_view(metric) == "log_prob";
    if (is_log) mean = std::exp(-mean), error *= mean;
    metrics[is_log ? "perplexity" : metric] = Json{{"value", mean}, {"stderr", error}};
  }
  return Json{{"task", set.name},
              {"group", set.group},
              {"hash", set.hash},
              {"items", set.items.size()},
              {"truncated", answers.truncated},
              {"metrics", metrics},
              {"samples", samples}};
}

Json with_groups(std::vector<Json> results) {
  std::map<std::string, std::vector<const Json*>> of_group;
  for (const Json& r : results)
    if (!r["group"].get<std::string>().empty()) of_group[r["group"].get<std::string>()].push_back(&r);
  Json groups = Json::array();
  for (const auto& [name, sets] : of_group) {
    Json metrics;
    for (const auto& [metric, first] : sets[0]->at("metrics").items()) {
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
  size_t width = 4;
  for (const char* part : {"groups", "results"})
    for (const Json& r : all[part]) width = std::max(width, r["task"].get<std::string>().size());
  std::string text =
      fmt::format("{:<{}}  {:>6}  {:<16}  {:>10}  {:>8}\n", "task", width, "items", "metric", "value", "stderr");
  for (const char* part : {"groups", "results"})
    for (const Json& r : all[part])
      for (const auto& [metric, m] : r["metrics"].items())
        text += fmt::format("{:<{}}  {:>6}  {:<16}  {:>10.4f}  {:>8.4f}\n", r["task"].get<std::string>(), width,
                            r["items"].get<int64_t>(), metric, m["value"].get<double>(), m["stderr"].get<double>());
  return text;
}

}  // namespace weft
