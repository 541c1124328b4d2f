// What a run tells its terminal: a header at the start, then how far it is.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/records/metrics_log.h"

namespace weft {

// Short for people: 1234 -> "1.23k", 5.2e9 -> "5.20G"; three significant digits.
std::string format_count(double count);
// 1536 -> "1.50 KiB".
std::string format_bytes(double bytes);
// 42 -> "42 s", 200 -> "3:20", 7384 -> "2:03:04", from a day on "3 d 4 h"; "?" for anything unknown (not finite,
// negative).
std::string format_duration(double seconds);

// Columns of the terminal behind a descriptor at this moment; 80 where it does not say.
int terminal_width(int fd);

// "step  120/1000  loss 2.3456  |g| 0.812  lr 3.00e-04  12.3k tok/s  MFU 45.1%  1.20 GiB  ETA 1:23", in at most `width`
// columns: where it is narrow the least important parts are left out whole, never cut. Parts that cannot be known (an
// mfu of 0, an ETA that is negative) are left out too. ASCII only.
std::string format_progress(const StepRecord& record, int64_t total_steps, double eta_s, int width);

// The lines (name, value) that open a run, as a block with the values in one column.
std::string format_header(std::string_view title, const std::vector<std::pair<std::string, std::string>>& lines);

// Writes the progress of one run to a file descriptor. On a terminal one line is redrawn in place, at most ten times a
// second, as wide as the terminal is at that moment; anywhere else one plain line each `interval` steps. Errors of
// writing (a terminal that went away) are ignored: a run does not fail for want of a reader. Times are seconds of a
// steady clock.
class Progress {
 public:
  struct Spec {
    int fd = 2;
    bool live = false;        // redraw in place: the descriptor is a terminal that knows the usual control sequences
    int64_t total_steps = 0;  // steps done when the run is complete
    int64_t first_step = 0;   // steps done before this start
    double now_s = 0;         // this start
    int64_t interval = 10;    // steps between plain lines
  };
  explicit Progress(const Spec& spec) : spec_(spec), last_s_(spec.now_s) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const StepRecord& record, double now_s);
  // A whole line of text (an evaluation, a checkpoint) above the live line.
  void note(std::string_view line);
  // Leaves the last state of the live line standing. Nothing is drawn in place after that until the next update.
  void finish();
  // Seconds to the end at the recent pace, evaluations and checkpoints included; negative while unknown.
  double eta_s() const;

 private:
  std::string live_line() const;
  void redraw();
  void write_all(std::string_view text) const;

  Spec spec_;
  double last_s_;                           // of the last update
  double recent_s_ = 0, recent_steps_ = 0;  // time and steps of late, older ones fading: their ratio is the pace
  double drawn_s_ = 0;                      // of the last redraw
  StepRecord record_;                       // of the last update
  bool drawn_ = false;                      // the live line stands on the terminal
  bool stale_ = false;                      // an update came too soon after the last redraw
};

}  // namespace weft
