#include "weft/train/run_records.h"

#include <unistd.h>

#include "weft/base/error.h"
#include "weft/checkpoint/durable_file.h"
#include "weft/train/clock.h"
#include "weft/train/loss_chart.h"

namespace weft {
namespace {

constexpr int kPlotWidth = 78, kPlotHeight = 16;  // characters

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

RunRecords::RunRecords(const Spec& spec)
    : spec_(spec),
      metrics_(spec.run / "metrics.jsonl", spec.first_step),
      board_(
          {.dir = spec.run / "tensorboard", .now_s = wall_time_s(), .host = host_name(), .last_step = spec.first_step}),
      progress_({.fd = spec.terminal_fd,
                 .live = isatty(spec.terminal_fd) == 1,
                 .total_steps = spec.total_steps,
                 .first_step = spec.first_step,
                 .now_s = now_s(),
                 .interval = spec.log_interval}) {}

void RunRecords::step(const StepRecord& record) {
  metrics_.append(record);
  board_.append(record, wall_time_s());
  progress_.update(record, now_s());
}

void RunRecords::eval(const EvalRecord& record) {
  metrics_.append(record);
  board_.append(record, wall_time_s());
  progress_.note(fmt::format("step {}: held-out loss {:.4f}, perplexity {:.3f} over {} tokens", record.step,
                             record.loss, record.perplexity, record.tokens));
}

void RunRecords::finish(std::string_view title) {
  progress_.finish();
  const Metrics metrics = read_metrics(spec_.run / "metrics.jsonl");
  const LossCurve curve = loss_curve(metrics, std::string(title));
  write_file_durably(spec_.run / "loss.svg", loss_chart_svg(curve));
  if (metrics.steps.size() > 1) progress_.note(loss_chart_text(curve, kPlotWidth, kPlotHeight));
  progress_.note(fmt::format("records in {}: metrics.jsonl, loss.svg, tensorboard/", spec_.run.string()));
}

}  // namespace weft
