// Plans of losses as text and JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/forecast/loss_plan.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

// "12.0 days (9.1 days to 20.4 days)"
std::string time_text(double seconds) { return std::isfinite(seconds) ? duration_text(seconds) : "never"; }
std::string run_text(const LossRow& r) {
  if (!std::isfinite(r.run_s) && !std::isfinite(r.run_range.low)) return "never";
  return fmt::format("{} ({} to {})", time_text(r.run_s), time_text(r.run_range.low), time_text(r.run_range.high));
}

bool has_limits(const LossAsk& ask) { return ask.budget > 0 || ask.deadline_s > 0; }

std::string heading_of(const LossAsk& ask) {
  std::string text =
      fmt::format("{:>10} {:>8} {:>10} {:>9} {:>9}", "parameters", "devices", "batch", "critical", "step");
  if (ask.target > 0) text += fmt::format(" {:>9} {:>11}  {:<40}", "tokens", "price", "time to the loss");
  if (has_limits(ask)) text += fmt::format(" {:>9} {:>9}  {:<24}", "tokens", "time", "loss");
  return text + " layout\n";
}

std::string line_of(const LossRow& r, const LossAsk& ask) {
  std::string text = fmt::format("{:>10} {:>8}", format_count(r.parameters), r.devices);
  if (!r.why_not.empty()) return text + "  " + r.why_not + "\n";
  const double critical = critical_batch_tokens(ask.target > 0 ? ask.target : r.loss);
  text += fmt::format(" {:>10} {:>9.2f} {:>9}", format_count(r.batch_tokens), r.batch_tokens / critical,
                      duration_text(r.step_s));
  if (ask.target > 0)
    text += fmt::format(" {:>9} {:>11}  {:<40}", std::isfinite(r.tokens) ? format_count(r.tokens) : "-",
                        r.price > 0 && std::isfinite(r.price) ? fmt::format("{:.4g}", r.price) : "-", run_text(r));
  if (has_limits(ask))
    text += fmt::format(" {:>9} {:>9}  {:<24}", format_count(r.spent_tokens), duration_text(r.spent_s),
                        fmt::format("{:.3f} ({:.3f} to {:.3f})", r.loss, r.loss_range.low, r.loss_range.high));
  return text + " " + to_string(r.layout) + "\n";
}

nlohmann::json or_null(double x) { return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(); }
nlohmann::json json_of(const LawRange& r) { return {or_null(r.low), or_null(r.high)}; }
nlohmann::json json_of(const ScalingLaw& l) {
  return {{"e", l.e}, {"a", l.a}, {"alpha", l.alpha}, {"b", l.b}, {"beta", l.beta}};
}

nlohmann::json json_of(const LossRow& r, const LossAsk& ask) {
  nlohmann::json json{{"model", r.model}, {"parameters", r.parameters}, {"num_devices", r.devices}};
  if (!r.why_not.empty()) {
    json["why_not"] = r.why_not;
    return json;
  }
  json.update({{"layout", to_string(r.layout)},
               {"global_batch_size", r.batch},
               {"batch_tokens", r.batch_tokens},
               {"critical_batch_tokens", critical_batch_tokens(ask.target > 0 ? ask.target : r.loss)},
               {"step_s", r.step_s},
               {"slower_by_failures", r.slower},
               {"memory_bytes", r.memory_bytes}});
  if (ask.target > 0)
    json["to_target"] = {{"tokens", or_null(r.tokens)},
                         {"run_s", or_null(r.run_s)},
                         {"run_s_range", json_of(r.run_range)},
                         {"price", r.price > 0 ? or_null(r.price) : nlohmann::json()}};
  if (has_limits(ask))
    json["within_limits"] = {
        {"tokens", r.spent_tokens}, {"run_s", r.spent_s}, {"loss", r.loss}, {"loss_range", json_of(r.loss_range)}};
  return json;
}

}  // namespace

std::string to_string(const LossPlan& plan, const LossAsk& ask, const ClusterSpec& cluster) {
  std::string text = fmt::format("{}\n  {}\n", to_string(plan.law.best), plan.law.source);
  text += fmt::format(
      "on {}; batches in tokens, beside the critical size at that loss (Kaplan et al. 2020), at which they waste as "
      "much as they learn from\n",
      cluster.device.name);
  if (ask.target > 0) text += fmt::format("to a loss of {:g}\n", ask.target);
  if (has_limits(ask))
    text += fmt::format("the loss{}{}\n", ask.budget > 0 ? fmt::format(" for {:g}", ask.budget) : "",
                        ask.deadline_s > 0 ? " within " + duration_text(ask.deadline_s) : "");
  std::string model;
  for (const LossRow& r : plan.rows) {
    if (r.model != model) text += fmt::format("\n{}\n{}", model = r.model, heading_of(ask));
    text += line_of(r, ask);
  }
  if (!plan.no_help.empty()) text += "\n";
  for (const std::string& line : plan.no_help) text += line + "\n";
  return text;
}

nlohmann::json to_json(const LossPlan& plan, const LossAsk& ask) {
  nlohmann::json json{{"law", {{"source", plan.law.source}, {"best", json_of(plan.law.best)}}},
                      {"rows", nlohmann::json::array()},
                      {"no_help", plan.no_help}};
  for (const ScalingLaw& other : plan.law.others) json["law"]["others"].push_back(json_of(other));
  for (const LossRow& r : plan.rows) json["rows"].push_back(json_of(r, ask));
  return json;
}

}  // namespace weft
