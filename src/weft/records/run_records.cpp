#include "weft/records/run_records.h"

#include <unistd.h>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/base/json.h"
#include "weft/records/clock.h"
#include "weft/records/events.h"
#include "weft/records/loss_chart.h"

namespace weft {
namespace {

constexpr const char *kMetrics = "metrics.jsonl", *kBoard = "tensorboard";
constexpr int kPlotWidth = 78, kPlotHeight = 16;  // characters

}  // namespace

RunRecords::RunRecords(const Spec& spec)
    : spec_(spec),
      progress_({.fd = spec.terminal_fd,
                 .live = isatty(spec.terminal_fd) == 1,
                 .total_steps = spec.total_steps,
                 .first_step = spec.first_step,
                 .now_s = now_s(),
                 .interval = spec.log_interval}) {
  open();
  if (!spec_.heartbeat.empty()) heartbeat_.emplace(spec_.heartbeat);
  if (metrics_ && metrics_->damaged_lines() > 0)
    note(fmt::format("WARNING: {}: {} passed over, the first is line {}", (spec_.run / kMetrics).string(),
                     metrics_->damaged_lines() == 1 ? "1 damaged line is"
                                                    : fmt::format("{} damaged lines are", metrics_->damaged_lines()),
                     metrics_->first_damaged_line()));
}

// What could not be opened is tried again with each record.
void RunRecords::open() {
  if (!metrics_) attempt(kMetrics, [&] { metrics_.emplace(spec_.run / kMetrics, spec_.first_step); });
  if (!board_)
    attempt(kBoard, [&] {
      board_.emplace(TensorBoardWriter::Spec{
          .dir = spec_.run / kBoard, .now_s = wall_time_s(), .host = name_of_host(), .last_step = spec_.first_step});
    });
}

void RunRecords::attempt(const std::string& file, const std::function<void()>& write) {
  try {
    write();
  } catch (const FileError& e) {
    if (failures_[file]++ == 0)
      note(fmt::format("WARNING: {}; the run goes on without; this is said once, and how often at the end", e.what()));
  }
}

template <class Record>
void RunRecords::append(const Record& record) {
  open();
  if (metrics_) attempt(kMetrics, [&] { metrics_->append(record); });
  if (board_) attempt(kBoard, [&] { board_->append(record, wall_time_s()); });
}

void RunRecords::step(const StepRecord& record) {
  append(record);
  progress_.update(record, now_s());
}

// As a run that begins there.
void RunRecords::go_back(int64_t step) {
  spec_.first_step = step;
  metrics_.reset();
  board_.reset();
  open();
}

void RunRecords::sync() {
  if (metrics_) attempt(kMetrics, [&] { metrics_->sync_to_disk(); });
}

void RunRecords::event(const std::string& name, nlohmann::json more) {
  attempt("events.jsonl", [&] { append_event(spec_.run, name, std::move(more)); });
}

void RunRecords::eval(const EvalRecord& record) {
  append(record);
  std::string more;
  for (const auto& [name, value] : record.terms) more += fmt::format(", {} {:.4f}", name, value);
  if (more.empty()) more = fmt::format(", perplexity {:.3f}", record.perplexity);
  progress_.note(
      fmt::format("step {}: held-out loss {:.4f}{} over {} tokens", record.step, record.loss, more, record.tokens));
}

void RunRecords::tasks(const TasksRecord& record) {
  append(record);
  std::string line;
  for (const auto& [name, value] : record.results)
    line += name.ends_with("_stderr") ? fmt::format(" +- {:.4f}", value)
                                      : fmt::format("{} {} {:.4f}", line.empty() ? "" : ",", name, value);
  progress_.note(fmt::format("step {}:{}", record.step, line));
}

void RunRecords::finish(std::string_view title) {
  progress_.finish();
  const auto draw = [&] {
    const Metrics metrics = read_metrics(spec_.run / kMetrics);
    const LossCurve curve = loss_curve(metrics, std::string(title));
    if (metrics.steps.size() > 1) progress_.note(loss_chart_text(curve, kPlotWidth, kPlotHeight));
    write_file_durably(spec_.run / "loss.svg", loss_chart_svg(curve));
  };
  if (metrics_) attempt("loss.svg", draw);  // without them there is nothing to draw, which has been told
  progress_.note(fmt::format("records in {}: metrics.jsonl, loss.svg, tensorboard/", spec_.run.string()));
  for (const auto& [file, count] : failures_)
    progress_.note(fmt::format("WARNING: {} could not be written {} time{}", (spec_.run / file).string(), count,
                               count == 1 ? "" : "s: what it holds has gaps"));
}

}  // namespace weft
