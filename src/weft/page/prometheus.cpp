#include "weft/page/prometheus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/version.h"
#include "weft/page/run_json.h"

namespace weft {
namespace {

// Numbers of the last step's record that have a family of their own.
struct FieldFamily {
  std::string_view field, family;
};
constexpr std::array<FieldFamily, 11> kFields = {{{"loss", "weft_loss_nats"},
                                                  {"grad_norm", "weft_gradient_norm"},
                                                  {"lr", "weft_learning_rate"},
                                                  {"tokens_per_s", "weft_tokens_per_second"},
                                                  {"step_time_s", "weft_step_seconds"},
                                                  {"mfu", "weft_model_flops_utilization_ratio"},
                                                  {"memory_bytes", "weft_memory_used_bytes"},
                                                  {"loss_scale", "weft_loss_scale"},
                                                  {"skipped_steps", "weft_skipped_steps"},
                                                  {"spikes", "weft_loss_spikes"},
                                                  {"phase", "weft_phase"}}};
// Other fields that are no terms of the objective.
constexpr std::array<std::string_view, 7> kNoTerms = {
    "step", "data_s", "eval_s", "save_s", "batch", "global_batch_size", "seq_length"};
constexpr std::array<std::string_view, 9> kStates = {"running", "stalled",    "finished",   "stopped", "failed",
                                                     "lost",    "unfinished", "unreadable", "away"};

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Lines of each family, which are told together.
class Lines {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string>>;
  void add(const std::string& family, const Labels& labels, double value) {
    std::string text = family + "{";
    for (const auto& [name, of] : labels)
      text += fmt::format("{}{}={}", text.back() == '{' ? "" : ",", name, label_value(of));
    lines_[family] += text + "} " + number_text(value) + "\n";
  }
  std::string text() const {
    std::string all;
    for (const MetricFamily& f : metric_families()) {
      const auto lines = lines_.find(f.name);
      if (lines == lines_.end()) continue;
      all += fmt::format("# HELP {} {}\n# TYPE {} {}\n{}", f.name, f.help, f.name, f.type, lines->second);
    }
    return all;
  }

 private:
  std::map<std::string, std::string, std::less<>> lines_;
};

void add_record(const RunView& run, Lines& lines) {
  const nlohmann::ordered_json latest = run.latest();
  if (!latest.is_object()) return;
  size_t terms = 0;
  for (const auto& [name, value] : latest.items()) {
    if (!value.is_number() && !value.is_null()) continue;
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    const auto field = std::find_if(kFields.begin(), kFields.end(),
                                    [n = std::string_view(name)](const FieldFamily& f) { return f.field == n; });
    if (field != kFields.end()) {
      lines.add(std::string(field->family), {{"run", run.name()}}, number);
    } else if (std::find(kNoTerms.begin(), kNoTerms.end(), name) == kNoTerms.end() && terms++ < kMostCurves) {
      lines.add("weft_record_value", {{"run", run.name()}, {"name", name}}, number);
    }
  }
}

void add_times(const RunView& run, Lines& lines) {
  const TimeSums& t = run.metrics().sums();
  if (t.steps == 0) return;
  const auto add = [&](const char* part, double seconds) {
    lines.add("weft_run_seconds_total", {{"run", run.name()}, {"part", part}}, seconds);
  };
  add("compute", std::max(0.0, t.step_s - t.data_s - t.waited_s()));
  add("data", t.data_s);
  add("evaluation", t.eval_s);
  add("save", t.save_s);
  for (const auto& [axis, seconds] : t.waits_s)
    lines.add("weft_run_wait_seconds_total", {{"run", run.name()}, {"axis", axis}}, seconds);
  lines.add("weft_run_tokens_total", {{"run", run.name()}}, t.tokens);
  lines.add("weft_run_steps_recorded_total", {{"run", run.name()}}, double(t.steps));
}

void add_run(const RunView& run, double now_s, Lines& lines) {
  const auto one = [&](const char* family, double value) { lines.add(family, {{"run", run.name()}}, value); };
  const RunFacts& facts = run.facts();
  const RunAttempt last = facts.attempts.empty() ? RunAttempt() : facts.attempts.back();
  lines.add("weft_run_info",
            {{"run", run.name()},
             {"id", facts.id},
             {"path", facts.path},
             {"model", facts.model},
             {"objective", facts.objective},
             {"host", last.host},
             {"machine", last.machine},
             {"version", version_of(last.weft)}},
            1);
  for (const std::string_view state : kStates)
    lines.add("weft_run_state", {{"run", run.name()}, {"state", std::string(state)}}, run.state() == state);
  one("weft_steps_done", double(run.step()));
  if (const auto total = run.total_steps()) one("weft_steps_wanted", double(*total));
  if (const auto eta = run.eta_s()) one("weft_run_remaining_seconds", *eta);
  if (run.last_record_s() > 0) one("weft_last_record_timestamp_seconds", run.last_record_s());
  one("weft_run_running_seconds", run.running_s(now_s));
  one("weft_attempts", double(facts.attempts.size()));
  one("weft_checkpoints", double(facts.checkpoints.size()));
  if (!facts.checkpoints.empty()) one("weft_checkpoint_newest_step", double(facts.checkpoints.back().step));
  one("weft_records_damaged", double(run.metrics().damaged_lines()));
  add_record(run, lines);
  add_times(run, lines);
  if (const auto held_out = run.held_out(); held_out.is_object() && held_out.contains("loss"))
    one("weft_held_out_loss_nats", held_out["loss"].is_number() ? held_out["loss"].get<double>() : std::nan(""));
  if (const auto& best = run.metrics().best_evaluation()) one("weft_held_out_loss_best_nats", best->loss);
  for (const auto& [name, at] : run.metrics().tasks())
    lines.add("weft_task_result", {{"run", run.name()}, {"name", name}}, at.value);
  for (const auto& [kind, count] : run.events_by_kind())
    lines.add("weft_events_total", {{"run", run.name()}, {"event", kind}}, double(count));
}

}  // namespace

const std::vector<MetricFamily>& metric_families() {
  static const std::vector<MetricFamily> families = {
      {"weft_run_info", "What a run is: always 1.", "gauge"},
      {"weft_run_state", "1 for the state that a run is in, 0 for the others.", "gauge"},
      {"weft_steps_done", "Optimizer steps done.", "gauge"},
      {"weft_steps_wanted", "Optimizer steps when the run is complete.", "gauge"},
      {"weft_run_remaining_seconds", "Time to the end at the pace of the last records.", "gauge"},
      {"weft_last_record_timestamp_seconds", "When metrics.jsonl last changed, since 1970.", "gauge"},
      {"weft_run_running_seconds", "How long the attempts of a run lasted together.", "gauge"},
      {"weft_attempts", "Attempts of a run.", "gauge"},
      {"weft_checkpoints", "Checkpoints that are there.", "gauge"},
      {"weft_checkpoint_newest_step", "Step of the newest checkpoint.", "gauge"},
      {"weft_records_damaged", "Lines of metrics.jsonl that are no records.", "gauge"},
      {"weft_loss_nats", "Training loss of the last step, per counted target.", "gauge"},
      {"weft_held_out_loss_nats", "Loss of the last evaluation on held-out data.", "gauge"},
      {"weft_held_out_loss_best_nats", "The least loss of all evaluations.", "gauge"},
      {"weft_gradient_norm", "Norm of all gradients of the last step, before clipping.", "gauge"},
      {"weft_learning_rate", "Learning rate of the last step.", "gauge"},
      {"weft_tokens_per_second", "Tokens of the last step by its time, all ranks together.", "gauge"},
      {"weft_step_seconds", "Time of the last step.", "gauge"},
      {"weft_model_flops_utilization_ratio", "Model flops per second beside the measured rate of matrix products.",
       "gauge"},
      {"weft_memory_used_bytes", "Peak of all arenas of the busiest rank.", "gauge"},
      {"weft_loss_scale", "Factor on the loss of the last step, in fp16.", "gauge"},
      {"weft_skipped_steps", "Steps so far that changed no weight, in fp16.", "gauge"},
      {"weft_loss_spikes", "Loss spikes so far.", "gauge"},
      {"weft_phase", "Phase of the last step, 0 before the first.", "gauge"},
      {"weft_record_value", "Other numbers of the last step's record, by name.", "gauge"},
      {"weft_task_result", "Last results in tasks, by name.", "gauge"},
      {"weft_run_seconds_total", "Time of all recorded steps and of what came between them, by part.", "counter"},
      {"weft_run_wait_seconds_total", "Time that the first rank waited for others in steps, by axis.", "counter"},
      {"weft_run_tokens_total", "Tokens of all recorded steps.", "counter"},
      {"weft_run_steps_recorded_total", "Records of steps.", "counter"},
      {"weft_events_total", "Events of a run, by kind.", "counter"},
      {"weft_page_info", "The version of weft that serves this page: always 1.", "gauge"}};
  return families;
}

std::string whole_utf8(std::string_view text) {
  // A dump replaces what is no UTF-8, and escapes more: that is undone.
  return nlohmann::json::parse(
             nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
      .get<std::string>();
}

std::string label_value(std::string_view text) {
  std::string out = "\"";
  for (const char c : whole_utf8(text)) {
    if (c == '\\' || c == '"')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

std::string prometheus_text(const std::vector<const RunView*>& runs, double now_s) {
  Lines lines;
  for (const RunView* run : runs) add_run(*run, now_s, lines);
  lines.add("weft_page_info", {{"version", version_of(kVersion)}}, 1);
  return lines.text();
}

}  // namespace weft
