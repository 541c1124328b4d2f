// Everything a run writes about itself: metrics.jsonl, TensorBoard events, the progress line, the loss chart. A failure
// to write does not end the run: it is reported once, counted, and reported again at the end.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "weft/records/heartbeat.h"
#include "weft/records/metrics_log.h"
#include "weft/records/progress.h"
#include "weft/records/tensorboard.h"

namespace weft {

class RunRecords {
 public:
  struct Spec {
    std::filesystem::path run;
    int64_t first_step = 0, total_steps = 0, log_interval = 10;
    int terminal_fd = 2;
    std::string heartbeat = {};  // the file of whoever watches over the run; empty: nobody does
  };
  explicit RunRecords(const Spec& spec);

  // To whoever watches over the run; nothing where nobody does.
  void beat(RunSection section, int64_t step) {
    if (heartbeat_) heartbeat_->beat(section, step);
  }
  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  void tasks(const TasksRecord& record);
  void go_back(int64_t step);  // the run goes on behind that one: what was written of later steps is dropped
  void sync();                 // blocks until metrics.jsonl would survive a loss of power
  void note(std::string_view line) { progress_.note(line); }
  void event(const std::string& name, nlohmann::json more);  // append_event
  // Runs `write` and catches its FileErrors; reports the first one of each `file`.
  void attempt(const std::string& file, const std::function<void()>& write);
  // Draws loss.svg, and the same as text; says where the files are.
  void finish(std::string_view title);

 private:
  void open();
  template <class Record>
  void append(const Record& record);

  Spec spec_;
  std::optional<MetricsLog> metrics_;  // none as long as they cannot be opened
  std::optional<TensorBoardWriter> board_;
  Progress progress_;
  std::optional<Heartbeat> heartbeat_;  // none where nobody watches
  std::map<std::string, int64_t> failures_;
};

}  // namespace weft
