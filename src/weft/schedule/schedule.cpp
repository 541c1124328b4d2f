#include "weft/schedule/schedule.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {

Schedule gpipe(PipelinePosition, int64_t m) {
  Schedule s;
  for (int64_t i = 0; i < m; ++i) s.push_back({Do::forward, i});
  for (int64_t i = 0; i < m; ++i) s.push_back({Do::backward, i});
  return s;
}

Schedule one_f_one_b(PipelinePosition at, int64_t m) {
  Schedule s;
  const int64_t warm = std::min<int64_t>(m, at.num_stages - at.stage);
  int64_t f = 0;
  while (f < warm) s.push_back({Do::forward, f++});
  for (int64_t b = 0; b < m; ++b) {
    s.push_back({Do::backward, b});
    if (f < m) s.push_back({Do::forward, f++});
  }
  return s;
}

Schedule zero_bubble_h1(PipelinePosition at, int64_t m) {
  Schedule s;
  const int64_t warm = std::min<int64_t>(m, at.num_stages - at.stage);
  int64_t f = 0, w = 0;
  while (f < warm) s.push_back({Do::forward, f++});
  for (int64_t b = 0; b < m; ++b) {
    s.push_back({Do::dgrad, b});
    if (b + 1 - w > at.stage) s.push_back({Do::wgrad, w++});
    if (f < m) s.push_back({Do::forward, f++});
  }
  while (w < m) s.push_back({Do::wgrad, w++});
  return s;
}

Schedule schedule_named(std::string_view name, PipelinePosition at, int64_t m) {
  if (name == "gpipe") return gpipe(at, m);
  if (name == "1f1b") return one_f_one_b(at, m);
  if (name == "zb_h1") return zero_bubble_h1(at, m);
  throw ConfigError(fmt::format("no pipeline schedule '{}'; there are gpipe, 1f1b, zb_h1", name));
}

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (const Action& a : schedule) text += fmt::format("{}{}{}", text.empty() ? "" : " ", char(a.what), a.micro_batch);
  return text;
}

Liveness liveness(const Schedule& schedule) {
  Liveness most;
  int dgrad = 0, wgrad = 0, between = 0;
  for (const Action& a : schedule) {
    if (a.what == Do::forward) ++dgrad, ++wgrad;
    if (a.what == Do::dgrad || a.what == Do::backward) ++between;
    most.till_dgrad = std::max(most.till_dgrad, dgrad);
    most.till_wgrad = std::max(most.till_wgrad, wgrad);
    most.dgrad_till_wgrad = std::max(most.dgrad_till_wgrad, between);
    if (a.what == Do::dgrad || a.what == Do::backward) --dgrad;
    if (a.what == Do::wgrad || a.what == Do::backward) --wgrad, --between;
  }
  return most;
}

}  // namespace weft
