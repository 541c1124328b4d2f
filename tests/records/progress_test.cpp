#include "weft/records/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "support.h"

namespace weft {
namespace {

using testing::slurp;
using testing::TempDir;

const StepRecord kRecord{.step = 120,
                         .loss = 2.34567,
                         .grad_norm = 0.8123,
                         .lr = 3e-4,
                         .tokens_per_s = 12345,
                         .step_time_s = 0.5,
                         .mfu = 0.4512,
                         .memory_bytes = int64_t(1288490189)};

TEST(Progress, CountsAndBytesHaveThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(999.7), "1.00k");
  EXPECT_EQ(format_count(1234), "1.23k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(99960), "100k");
  EXPECT_EQ(format_count(999499), "999k");
  EXPECT_EQ(format_count(999500), "1.00M");
  EXPECT_EQ(format_count(5.2e9), "5.20G");
  EXPECT_EQ(format_count(std::nan("")), "?");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1023.9 * 1024), "1.00 MiB");
  EXPECT_EQ(format_bytes(1288490189), "1.20 GiB");
}

TEST(Progress, DurationsReadLikeAClock) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(200), "3:20");
  EXPECT_EQ(format_duration(7384), "2:03:04");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600 + 120), "3 d 4 h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(1e300), "?");
}

TEST(Progress, AWideLineSaysEverything) {
  EXPECT_EQ(format_progress(kRecord, 1000, 83, 200),
            "step  120/1000  loss 2.3457  |g| 0.812  lr 3.00e-04  12.3k tok/s  MFU 45.1%  1.20 GiB  ETA 1:23");
}

TEST(Progress, ALineFitsEveryWidthAndLosesTheLeastImportantPartsFirst) {
  for (int width = 0; width <= 120; ++width) {
    EXPECT_LE(format_progress(kRecord, 1000, 83, width).size(), size_t(width));
  }
  EXPECT_EQ(format_progress(kRecord, 1000, 83, 80),
            "step  120/1000  loss 2.3457  |g| 0.812  lr 3.00e-04  12.3k tok/s  ETA 1:23");
  EXPECT_EQ(format_progress(kRecord, 1000, 83, 40), "step  120/1000  loss 2.3457  ETA 1:23");
  EXPECT_EQ(format_progress(kRecord, 1000, 83, 30), "step  120/1000  loss 2.3457");
  EXPECT_EQ(format_progress(kRecord, 1000, 83, 7), "step  1");
}

TEST(Progress, WhatIsNotKnownIsLeftOutAndWhatIsNotANumberIsShown) {
  StepRecord record = kRecord;
  record.mfu = 0;
  record.memory_bytes = 0;
  record.loss = std::nan("");
  record.aux_loss = 0.01;
  EXPECT_EQ(format_progress(record, 1000, -1, 200),
            "step  120/1000  loss nan  aux 0.0100  |g| 0.812  lr 3.00e-04  12.3k tok/s");
}

TEST(Progress, TheHeaderAlignsItsValues) {
  EXPECT_EQ(format_header("weft 0.1.0", {{"model", "llama, 5.6M"}, {"tokens a step", "4096"}}),
            "weft 0.1.0\n"
            "  model          llama, 5.6M\n"
            "  tokens a step  4096\n");
}

StepRecord at_step(int64_t step) { return {.step = step, .loss = 1, .grad_norm = 1, .lr = 1}; }

TEST(Progress, TheEtaFollowsTheRecentPace) {
  Progress progress({.fd = -1, .total_steps = 10'000, .first_step = 100, .now_s = 5});
  EXPECT_LT(progress.eta_s(), 0);
  progress.update(at_step(101), 7);
  EXPECT_NEAR(progress.eta_s(), 2 * 9899, 1e-6) << "the first step alone already tells";
  double now_s = 7;
  for (int64_t step = 102; step <= 400; ++step) progress.update(at_step(step), now_s += 1);
  EXPECT_NEAR(progress.eta_s(), 9600, 10) << "after ten times its memory the old pace is forgotten";
  for (int64_t step = 410; step <= 3000; step += 10) progress.update(at_step(step), now_s += 5);
  EXPECT_NEAR(progress.eta_s(), 3500, 10) << "updates that skip steps count them";
}

TEST(Progress, WithoutATerminalThereIsAPlainLineEachInterval) {
  TempDir dir;
  const int fd = ::open((dir / "out").c_str(), O_WRONLY | O_CREAT, 0600);
  {
    Progress progress({.fd = fd, .total_steps = 7, .interval = 3});
    for (int64_t step = 1; step <= 7; ++step) progress.update(at_step(step), double(step));
    progress.note("saved");
  }
  ::close(fd);
  EXPECT_EQ(slurp(dir / "out"),
            "step 3/7  loss 1.0000  |g| 1  lr 1.00e+00  0 tok/s  ETA 4 s\n"
            "step 6/7  loss 1.0000  |g| 1  lr 1.00e+00  0 tok/s  ETA 1 s\n"
            "step 7/7  loss 1.0000  |g| 1  lr 1.00e+00  0 tok/s  ETA 0 s\n"
            "saved\n");
}

// A pseudo-terminal of a given width; read() returns what was written to it.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    main_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (main_ < 0 || ::grantpt(main_) != 0 || ::unlockpt(main_) != 0) return;
    fd_ = ::open(::ptsname(main_), O_RDWR | O_NOCTTY);
    if (fd_ < 0) return;
    termios raw{};
    ::tcgetattr(fd_, &raw);
    ::cfmakeraw(&raw);  // newlines arrive as they were written
    ::tcsetattr(fd_, TCSANOW, &raw);
    resize(columns);
  }
  ~Terminal() {
    if (fd_ >= 0) ::close(fd_);
    if (main_ >= 0) ::close(main_);
  }
  bool exists() const { return fd_ >= 0; }
  void resize(unsigned short columns) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(fd_, TIOCSWINSZ, &size);
  }
  int fd() const { return fd_; }
  // What was written since the last read. A terminal passes bytes on when it likes: a mark of our own ends them.
  std::string read() const {
    if (::write(fd_, "\x01", 1) != 1) throw std::runtime_error("cannot write to the pseudo-terminal");
    std::string text;
    for (char c; ::read(main_, &c, 1) == 1 && c != '\x01';) text += c;
    return text;
  }

 private:
  int main_ = -1, fd_ = -1;
};

TEST(Progress, OnATerminalOneLineIsRedrawnInPlaceAsWideAsTheTerminalIsNow) {
  Terminal terminal(60);
  if (!terminal.exists()) GTEST_SKIP() << "no pseudo-terminal can be made here (is /dev/pts mounted?)";
  Progress progress({.fd = terminal.fd(), .live = true, .total_steps = 9});
  progress.update(at_step(1), 1);
  EXPECT_EQ(terminal.read(), "\rstep 1/9  loss 1.0000  |g| 1  lr 1.00e+00  0 tok/s  ETA 8 s\x1b[K");
  terminal.resize(34);
  progress.update(at_step(2), 2);
  EXPECT_EQ(terminal.read(), "\rstep 2/9  loss 1.0000  ETA 7 s\x1b[K");
}

TEST(Progress, QuickStepsAreNotAllDrawnButTheLastStateIs) {
  Terminal terminal(40);
  if (!terminal.exists()) GTEST_SKIP() << "no pseudo-terminal can be made here (is /dev/pts mounted?)";
  Progress progress({.fd = terminal.fd(), .live = true, .total_steps = 1000});
  for (int64_t step = 1; step <= 500; ++step) progress.update(at_step(step), 0.001 * double(step));
  const std::string drawn = terminal.read();
  EXPECT_LE(std::count(drawn.begin(), drawn.end(), '\r'), 6);
  progress.finish();
  const std::string end = terminal.read();
  EXPECT_EQ(end.find("\rstep  500/1000"), 0u) << end;
  EXPECT_EQ(end.back(), '\n');
  progress.finish();
  EXPECT_EQ(terminal.read(), "") << "finishing twice writes nothing";
}

TEST(Progress, ANoteStandsAboveTheLiveLine) {
  Terminal terminal(30);
  if (!terminal.exists()) GTEST_SKIP() << "no pseudo-terminal can be made here (is /dev/pts mounted?)";
  Progress progress({.fd = terminal.fd(), .live = true, .total_steps = 9});
  progress.note("starting");
  EXPECT_EQ(terminal.read(), "starting\n");
  progress.update(at_step(1), 1);
  terminal.read();
  progress.note("eval 2.5");
  EXPECT_EQ(terminal.read(), "\r\x1b[Keval 2.5\n\rstep 1/9  loss 1.0000\x1b[K");
}

}  // namespace
}  // namespace weft
