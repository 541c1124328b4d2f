#include "weft/records/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "weft/base/error.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// A line of the file, and what it says: a record of a step, an evaluation or tasks, or none where it is damaged.
struct Line {
  int64_t number, begin, end;  // from 1; bytes, with the newline
  std::optional<StepRecord> step;
  std::optional<EvalRecord> eval;
  std::optional<TasksRecord> tasks;
  bool is_damaged() const { return !step && !eval && !tasks; }
  int64_t step_number() const { return step ? step->step : eval ? eval->step : tasks->step; }
};

void parse_record(const std::string& text, Line& line);

// Calls visit(line) for each whole line, in order, until it returns false. A torn or unreadable last line is what a
// crash leaves behind, and is left out.
template <typename Visit>
void for_each_line(const std::filesystem::path& file, Visit visit) {
  if (std::error_code ignored; std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file))
    throw FileError(fmt::format("{}: is not a regular file", file.string()));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw FileError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  int64_t end = 0, number = 0;
  for (std::string text; std::getline(in, text) && !in.eof();) {
    Line line{
        .number = ++number, .begin = end, .end = end + int64_t(text.size()) + 1, .step = {}, .eval = {}, .tasks = {}};
    parse_record(text, line);
    if (line.is_damaged() && in.peek() == std::char_traits<char>::eof()) return;
    if (!visit(line)) return;
    end = line.end;
  }
}

double number_at(const Json& json, const char* key) {
  if (!json.contains(key)) return 0;
  const Json& value = json[key];
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  return value.get<double>();
}

// Numbers by names that no other field of a step has.
std::vector<std::pair<std::string, double>> terms_of(const Json& json) {
  constexpr std::string_view kFields[] = {
      "step",         "loss",       "aux_loss",      "z_loss",       "mtp_loss",
      "grad_norm",    "lr",         "mfu",           "tokens_per_s", "step_time_s",
      "memory_bytes", "loss_scale", "skipped_steps", "phase",        "global_batch_size",
      "seq_length",   "data_s",     "eval_s",        "save_s",       "spikes",
      "batch"};
  std::vector<std::pair<std::string, double>> terms;
  for (const auto& [name, value] : json.items()) {
    const bool is_field = std::find(std::begin(kFields), std::end(kFields), name) != std::end(kFields);
    if (!is_field && (value.is_number() || value.is_null())) terms.emplace_back(name, number_at(json, name.c_str()));
  }
  return terms;
}

std::vector<std::pair<std::string, double>> waits_of(const Json& json) {
  std::vector<std::pair<std::string, double>> waits;
  if (json.contains("waits_s"))
    for (const auto& [axis, seconds] : json["waits_s"].items()) waits.emplace_back(axis, seconds.get<double>());
  return waits;
}

std::optional<StepRecord::Phase> phase_of(const Json& json) {
  if (!json.contains("phase")) return {};
  return StepRecord::Phase{.number = json["phase"].get<int64_t>(),
                           .global_batch_size = json.value("global_batch_size", int64_t(0)),
                           .seq_length = json.value("seq_length", int64_t(0))};
}

std::optional<int64_t> count_at(const Json& json, const char* key) {
  return json.contains(key) ? std::optional(json[key].get<int64_t>()) : std::nullopt;
}

StepRecord step_record(const Json& json) {
  return {.step = json["step"].get<int64_t>(),
          .loss = number_at(json, "loss"),
          .aux_loss = number_at(json, "aux_loss"),
          .z_loss = number_at(json, "z_loss"),
          .mtp_loss = number_at(json, "mtp_loss"),
          .grad_norm = number_at(json, "grad_norm"),
          .lr = number_at(json, "lr"),
          .tokens_per_s = number_at(json, "tokens_per_s"),
          .step_time_s = number_at(json, "step_time_s"),
          .mfu = number_at(json, "mfu"),
          .memory_bytes = json.value("memory_bytes", int64_t(0)),
          .data_s = number_at(json, "data_s"),
          .waits_s = waits_of(json),
          .eval_s = number_at(json, "eval_s"),
          .save_s = number_at(json, "save_s"),
          .loss_scale = number_at(json, "loss_scale"),
          .skipped_steps = json.value("skipped_steps", int64_t(0)),
          .expert_load = json.value("expert_load", std::vector<std::vector<int64_t>>()),
          .router_entropy = json.value("router_entropy", std::vector<double>()),
          .dropped = json.value("dropped", std::vector<int64_t>()),
          .mtp_expert_load = json.value("mtp_expert_load", std::vector<std::vector<int64_t>>()),
          .mtp_router_entropy = json.value("mtp_router_entropy", std::vector<double>()),
          .mtp_dropped = json.value("mtp_dropped", std::vector<int64_t>()),
          .phase = phase_of(json),
          .spikes = count_at(json, "spikes"),
          .batch = count_at(json, "batch"),
          .terms = terms_of(json)};
}

EvalRecord eval_record(const Json& json) {
  const Json& eval = json["eval"];
  EvalRecord record{.step = json["step"].get<int64_t>(),
                    .loss = number_at(eval, "loss"),
                    .perplexity = eval.contains("perplexity") ? number_at(eval, "perplexity") : 0,
                    .tokens = eval.value("tokens", int64_t(0))};
  for (const auto& [name, value] : eval.items())
    if (name != "loss" && name != "perplexity" && name != "tokens" && (value.is_number() || value.is_null()))
      record.terms.emplace_back(name, number_at(eval, name.c_str()));
  return record;
}

TasksRecord tasks_record(const Json& json) {
  TasksRecord record{.step = json["step"].get<int64_t>()};
  for (const auto& [name, value] : json["tasks"].items())
    record.results.emplace_back(name, number_at(json["tasks"], name.c_str()));
  return record;
}

void parse_record(const std::string& text, Line& line) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return;
  try {
    if (json.contains("eval"))
      line.eval = eval_record(json);
    else if (json.contains("tasks"))
      line.tasks = tasks_record(json);
    else
      line.step = step_record(json);
  } catch (const Json::exception&) {  // a value of another type
  }
}

}  // namespace

std::string to_json(const StepRecord& r) {
  Json json{{"step", r.step},
            {"loss", r.loss},
            {"aux_loss", r.aux_loss},
            {"grad_norm", r.grad_norm},
            {"lr", r.lr},
            {"tokens_per_s", r.tokens_per_s},
            {"step_time_s", r.step_time_s},
            {"mfu", r.mfu},
            {"memory_bytes", r.memory_bytes}};
  if (r.data_s > 0) json["data_s"] = r.data_s;
  for (const auto& [axis, seconds] : r.waits_s) json["waits_s"][axis] = seconds;
  if (r.eval_s > 0) json["eval_s"] = r.eval_s;
  if (r.save_s > 0) json["save_s"] = r.save_s;
  if (r.loss_scale > 0) json["loss_scale"] = r.loss_scale, json["skipped_steps"] = r.skipped_steps;
  if (!r.expert_load.empty())
    json["z_loss"] = r.z_loss, json["expert_load"] = r.expert_load, json["router_entropy"] = r.router_entropy;
  if (r.mtp_loss != 0) json["mtp_loss"] = r.mtp_loss;
  if (!r.dropped.empty()) json["dropped"] = r.dropped;
  if (!r.mtp_expert_load.empty())
    json["mtp_expert_load"] = r.mtp_expert_load, json["mtp_router_entropy"] = r.mtp_router_entropy;
  if (!r.mtp_dropped.empty()) json["mtp_dropped"] = r.mtp_dropped;
  if (r.phase)
    json["phase"] = r.phase->number, json["global_batch_size"] = r.phase->global_batch_size,
    json["seq_length"] = r.phase->seq_length;
  if (r.spikes) json["spikes"] = *r.spikes;
  if (r.batch) json["batch"] = *r.batch;
  for (const auto& [name, value] : r.terms) json[name] = value;
  return json.dump();
}

std::string to_json(const EvalRecord& r) {
  Json eval{{"loss", r.loss}};
  if (r.terms.empty()) eval["perplexity"] = r.perplexity;
  eval["tokens"] = r.tokens;
  for (const auto& [name, value] : r.terms) eval[name] = value;
  return Json{{"step", r.step}, {"eval", eval}}.dump();
}

std::string to_json(const TasksRecord& r) {
  Json results = Json::object();
  for (const auto& [name, value] : r.results) results[name] = value;
  return Json{{"step", r.step}, {"tasks", results}}.dump();
}

MetricsLog::MetricsLog(const std::filesystem::path& file, int64_t last_step) : file_(file) {
  if (std::error_code ignored; std::filesystem::exists(file, ignored)) {
    for_each_line(file, [&](const Line& line) {
      if (!line.is_damaged() && line.step_number() > last_step) return false;
      if (line.is_damaged() && damaged_++ == 0) first_damaged_ = line.number;
      size_ = line.end;
      return true;
    });
  }
  fd_ = Descriptor(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (fd_ < 0) throw FileError(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  if (::ftruncate(fd_, size_) != 0)
    throw FileError(fmt::format("{}: cannot be cut to {} bytes: {}", file.string(), size_, std::strerror(errno)));
}

void MetricsLog::append_line(std::string line) {
  line += '\n';
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(fd_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = errno;
      const bool cut = ::ftruncate(fd_, size_) == 0;
      throw FileError(fmt::format("{}: cannot be written: {}{}", file_.string(), std::strerror(error),
                                  cut ? "" : " (and its last line is torn)"));
    }
    done += size_t(written);
  }
  size_ += int64_t(line.size());
}

void MetricsLog::sync_to_disk() {
  if (::fsync(fd_) != 0) throw FileError(fmt::format("{}: cannot be synced: {}", file_.string(), std::strerror(errno)));
}

Metrics read_metrics(const std::filesystem::path& file) {
  Metrics metrics;
  for_each_line(file, [&](const Line& line) {
    if (line.eval) metrics.evals.push_back(*line.eval);
    if (line.tasks) metrics.tasks.push_back(*line.tasks);
    if (line.step) metrics.steps.push_back(*line.step);
    metrics.damaged_lines += line.is_damaged();
    return true;
  });
  return metrics;
}

}  // namespace weft
