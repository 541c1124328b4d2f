#include "weft/records/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>

namespace weft {
namespace {

constexpr int kDefaultWidth = 80;          // of a terminal that does not say
constexpr int kPlainWidth = 200;           // of lines that are not for a terminal: everything fits
constexpr double kRedrawInterval_s = 0.1;  // faster only flickers
constexpr double kPaceMemory_s = 30;       // the ETA follows the pace of about this long

std::string three_digits(double value) {
  const double size = std::abs(value);
  return size < 9.995   ? fmt::format("{:.2f}", value)
         : size < 99.95 ? fmt::format("{:.1f}", value)
                        : fmt::format("{:.0f}", value);
}

template <size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& units) {
  size_t unit = 0;
  // 999.5 would print as 1000 of its unit: it is 1.00 of the next.
  for (; unit + 1 < N && std::abs(value) >= base - 0.5; ++unit) value /= base;
  if (unit == 0) return fmt::format("{:.0f}{}", value, units[0]);
  return three_digits(value) + units[unit];
}

// A part of the progress line; parts of the highest rank are left out first.
struct Item {
  int rank;
  std::string text;
};

std::string joined(const std::vector<Item>& parts, int max_rank) {
  std::string line;
  for (const Item& part : parts) {
    if (part.rank > max_rank || part.text.empty()) continue;
    if (!line.empty()) line += "  ";
    line += part.text;
  }
  return line;
}

}  // namespace

std::string format_count(double count) {
  if (!std::isfinite(count)) return "?";
  return scaled<5>(count, 1000, {"", "k", "M", "G", "T"});
}

std::string format_bytes(double bytes) {
  if (!std::isfinite(bytes)) return "?";
  return scaled<5>(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "?";
  const auto s = int64_t(std::lround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{} d {} h", s / 86400, s / 3600 % 24);
}

int terminal_width(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultWidth;
  return size.ws_col;
}

std::string format_progress(const StepRecord& r, int64_t total_steps, double eta_s, int width) {
  const std::string total = std::to_string(total_steps);
  const std::vector<Item> parts = {
      {0, fmt::format("step {:>{}}/{}", r.step, total.size(), total)},
      {0, fmt::format("loss {:.4f}", r.loss)},
      {7, r.aux_loss != 0 ? fmt::format("aux {:.4f}", r.aux_loss) : ""},
      {4, fmt::format("|g| {:.3g}", r.grad_norm)},
      {3, fmt::format("lr {:.2e}", r.lr)},
      {2, fmt::format("{} tok/s", format_count(r.tokens_per_s))},
      {5, r.mfu > 0 ? fmt::format("MFU {:.1f}%{}", 100 * r.mfu, r.mfu > 1 ? " (unsure)" : "") : ""},
      {6, r.memory_bytes > 0 ? format_bytes(double(r.memory_bytes)) : ""},
      {1, eta_s >= 0 ? fmt::format("ETA {}", format_duration(eta_s)) : ""},
  };
  for (int max_rank = 7; max_rank > 0; --max_rank) {
    std::string line = joined(parts, max_rank);
    if (int(line.size()) <= width) return line;
  }
  return joined(parts, 0).substr(0, size_t(std::max(width, 0)));
}

std::string format_header(std::string_view title, const std::vector<std::pair<std::string, std::string>>& lines) {
  size_t name_width = 0;
  for (const auto& [name, value] : lines) name_width = std::max(name_width, name.size());
  std::string text = fmt::format("{}\n", title);
  for (const auto& [name, value] : lines) text += fmt::format("  {:<{}}  {}\n", name, name_width, value);
  return text;
}

void Progress::update(const StepRecord& record, double now_s) {
  const double elapsed_s = std::max(now_s - last_s_, 0.0);
  const double keep = std::exp(-elapsed_s / kPaceMemory_s);
  const int64_t steps = record.step - (recent_steps_ > 0 ? record_.step : spec_.first_step);
  if (steps > 0) {
    recent_s_ = keep * recent_s_ + elapsed_s;
    recent_steps_ = keep * recent_steps_ + double(steps);
  }
  last_s_ = now_s;
  record_ = record;
  const bool last = record.step >= spec_.total_steps;
  if (!spec_.live) {
    if (record.step % std::max<int64_t>(spec_.interval, 1) == 0 || last) {
      write_all(format_progress(record, spec_.total_steps, eta_s(), kPlainWidth) + "\n");
    }
    return;
  }
  stale_ = true;
  if (drawn_ && now_s - drawn_s_ < kRedrawInterval_s && !last) return;
  drawn_s_ = now_s;
  redraw();
}

void Progress::note(std::string_view line) {
  // One write: the terminal never shows the moment between erasing and drawing.
  std::string text = drawn_ ? "\r\x1b[K" : "";
  text += line;
  text += '\n';
  if (drawn_) text += live_line();
  write_all(text);
}

void Progress::finish() {
  if (!drawn_) return;
  if (stale_) redraw();
  write_all("\n");
  drawn_ = false;
}

double Progress::eta_s() const {
  if (recent_steps_ <= 0) return -1;
  return recent_s_ / recent_steps_ * double(std::max<int64_t>(spec_.total_steps - record_.step, 0));
}

// Overwrites the line that stands, then erases what is left of it: nothing blinks. One column stays free, because some
// terminals wrap when the last is filled.
std::string Progress::live_line() const {
  return "\r" + format_progress(record_, spec_.total_steps, eta_s(), terminal_width(spec_.fd) - 1) + "\x1b[K";
}

void Progress::redraw() {
  write_all(live_line());
  drawn_ = true;
  stale_ = false;
}

void Progress::write_all(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(spec_.fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(size_t(written));
  }
}

}  // namespace weft
