#include "weft/schedule/schedule.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

void check(PipelinePosition at, int64_t m) {
  WEFT_CHECK(at.stage >= 0 && at.stage < at.num_stages && m >= 0, "stage {} of {}, {} micro-batches", at.stage,
             at.num_stages, m);
}

// Cuts a schedule down to m micro-batches. They do not depend on each other, so that the rest cannot deadlock.
Schedule only_first(int64_t m, Schedule s) {
  std::erase_if(s, [m](const Action& a) { return a.micro_batch >= m; });
  return s;
}

}  // namespace

Schedule gpipe(PipelinePosition at, int64_t m) {
  check(at, m);
  Schedule s;
  for (int64_t i = 0; i < m; ++i) s.push_back({Do::forward, i});
  for (int64_t i = 0; i < m; ++i) s.push_back({Do::backward, i});
  return s;
}

Schedule one_f_one_b(PipelinePosition at, int64_t m) {
  check(at, m);
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

Schedule interleaved_1f1b(PipelinePosition at, int num_chunks, int64_t m) {
  check(at, m);
  const int64_t p = at.num_stages, v = num_chunks;
  const int64_t passes = (m + p - 1) / p * p * v;
  const auto micro_batch = [=](int64_t pass) { return pass / (p * v) * p + pass % p; };
  const auto turn = [=](int64_t pass) { return int(pass / p % v); };
  const int64_t warm = std::min(passes, 2 * (p - at.stage - 1) + (v - 1) * p);
  Schedule s;
  int64_t f = 0;
  const auto forward = [&] { s.push_back({Do::forward, micro_batch(f), turn(f)}), ++f; };
  while (f < warm) forward();
  for (int64_t b = 0; b < passes; ++b) {
    if (f < passes) forward();
    s.push_back({Do::backward, micro_batch(b), int(v) - 1 - turn(b)});
  }
  return only_first(m, std::move(s));
}

Schedule zero_bubble_h1(PipelinePosition at, int64_t m) {
  check(at, m);
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

namespace {

// What a rank of ZB-V has done so far; each call does the next micro-batch's.
struct VShape {
  Schedule actions = {};
  int64_t forwards[2] = {}, dgrads[2] = {}, wgrads[2] = {};
  void forward(int chunk) { actions.push_back({Do::forward, forwards[chunk]++, chunk}); }
  void dgrad(int chunk) { actions.push_back({Do::dgrad, dgrads[chunk]++, chunk}); }
  void wgrad(int chunk) { actions.push_back({Do::wgrad, wgrads[chunk]++, chunk}); }
  void both_grads(int chunk) { dgrad(chunk), wgrad(chunk); }
};

}  // namespace

Schedule zero_bubble_v(PipelinePosition at, int64_t m) {
  check(at, m);
  const int below = at.num_stages - at.stage;  // with this one
  const int64_t enough = std::max<int64_t>(m, 2 * at.num_stages - 1);
  VShape v;
  for (int i = 0; i < 2 * below - 1; ++i) v.forward(0);
  for (int i = 0; i < at.stage; ++i) v.forward(1), v.forward(0);
  for (int i = 0; i < below; ++i) v.forward(1), v.both_grads(1);
  while (v.forwards[1] < enough) {
    if (v.forwards[0] < enough) v.forward(0);
    v.both_grads(0), v.forward(1), v.both_grads(1);
  }
  for (int i = 0; i < at.stage; ++i) v.dgrad(0), v.dgrad(1);
  for (int i = 0; i < below; ++i) v.both_grads(0);
  while (v.wgrads[1] < enough) v.wgrad(1);
  while (v.wgrads[0] < enough) v.wgrad(0);
  return only_first(m, std::move(v.actions));
}

Schedule schedule_of(const Pipeline& pipeline, int stage, int64_t m) {
  const PipelinePosition at{stage, pipeline.num_stages};
  switch (pipeline.kind) {
    case ScheduleKind::gpipe:
      return gpipe(at, m);
    case ScheduleKind::one_f_one_b:
      return one_f_one_b(at, m);
    case ScheduleKind::interleaved_1f1b:
      return interleaved_1f1b(at, pipeline.num_chunks, m);
    case ScheduleKind::zb_h1:
      return zero_bubble_h1(at, m);
    case ScheduleKind::zbv:
      return zero_bubble_v(at, m);
  }
  WEFT_CHECK(false, "no schedule of kind {}", int(pipeline.kind));
}

std::vector<Schedule> schedules_of(const Pipeline& pipeline, int64_t m) {
  std::vector<Schedule> all;
  for (int stage = 0; stage < pipeline.num_stages; ++stage) all.push_back(schedule_of(pipeline, stage, m));
  return all;
}

std::string to_string(const Action& a) {
  return fmt::format("{}{}{}", char(a.what), a.micro_batch, a.chunk == 0 ? "" : fmt::format(".{}", a.chunk));
}

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (const Action& a : schedule) text += (text.empty() ? "" : " ") + to_string(a);
  return text;
}

}  // namespace weft
