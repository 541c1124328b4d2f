#include "weft/forecast/failures.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "weft/base/error.h"

namespace weft {

double best_save_interval(const FailureSpec& s) {
  WEFT_CHECK(s.mean_s_between > 0 && s.save_s > 0, "{} s between failures, {} s to save", s.mean_s_between, s.save_s);
  if (s.save_s >= 2 * s.mean_s_between) return s.mean_s_between;
  const double ratio = std::sqrt(s.save_s / (2 * s.mean_s_between));
  return std::sqrt(2 * s.save_s * s.mean_s_between) * (1 + ratio / 3 + ratio * ratio / 9) - s.save_s;
}

double expected_run_s(double work_s, double interval_s, const FailureSpec& s) {
  WEFT_CHECK(interval_s > 0 && s.mean_s_between > 0, "an interval of {} s", interval_s);
  const double m = s.mean_s_between;
  return m * std::exp(s.restart_s / m) * std::expm1((interval_s + s.save_s) / m) * work_s / interval_s;
}

double simulated_run_s(double work_s, double interval_s, const FailureSpec& s, uint64_t seed, int runs) {
  const std::vector<double> all = simulated_runs_s(work_s, interval_s, s, seed, runs);
  return std::accumulate(all.begin(), all.end(), 0.0) / runs;
}

std::vector<double> simulated_runs_s(double work_s, double interval_s, const FailureSpec& s, uint64_t seed, int runs) {
  std::mt19937_64 random(seed);
  // By hand, so that the numbers are the same with any library.
  const auto next_failure = [&] {
    const double u = (double(random() >> 11) + 0.5) / 9007199254740992.0;
    return -s.mean_s_between * std::log(u);
  };
  std::vector<double> all;
  for (int run = 0; run < runs; ++run) {
    double clock = 0, saved = 0, fails = next_failure();
    while (saved < work_s) {
      const double part = std::min(interval_s, work_s - saved), takes = part + s.save_s;
      if (clock + takes <= fails) {
        clock += takes;
        saved += part;
        continue;
      }
      clock = fails;
      fails = clock + next_failure();
      while (clock + s.restart_s > fails) {  // it fails again while it starts
        clock = fails;
        fails = clock + next_failure();
      }
      clock += s.restart_s;
    }
    all.push_back(clock);
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace weft
