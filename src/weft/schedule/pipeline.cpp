#include "weft/schedule/pipeline.h"

#include <iterator>

#include "weft/base/error.h"

namespace weft {
namespace {

int chunks_needed(ScheduleKind kind) {
  return kind == ScheduleKind::interleaved_1f1b || kind == ScheduleKind::zbv ? 2 : 1;
}

}  // namespace

Pipeline pipeline_named(std::string_view name, int num_stages, int num_chunks) {
  return make_pipeline(schedule_kind(name), num_stages, num_chunks);
}

Pipeline make_pipeline(ScheduleKind kind, int num_stages, int num_chunks) {
  WEFT_CHECK(num_stages >= 1 && num_chunks >= 0, "{} stages with {} chunks", num_stages, num_chunks);
  if (num_chunks == 0) num_chunks = chunks_needed(kind);
  if (!chunks_fit(kind, num_chunks)) {
    throw ConfigError(fmt::format("schedule {} has {} of the model's chunks on each rank, not {}", name_of(kind),
                                  chunks_that_fit(kind), num_chunks));
  }
  return {.kind = kind, .num_stages = num_stages, .num_chunks = num_chunks};
}

bool chunks_fit(ScheduleKind kind, int64_t num_chunks) {
  const int needed = chunks_needed(kind);
  return num_chunks == needed || (kind == ScheduleKind::interleaved_1f1b && num_chunks > needed);
}

std::string chunks_that_fit(ScheduleKind kind) {
  return fmt::format("{}{}", kind == ScheduleKind::interleaved_1f1b ? "at least " : "", chunks_needed(kind));
}

ScheduleKind schedule_kind(std::string_view name) {
  for (size_t i = 0; i < std::size(kScheduleNames); ++i)
    if (kScheduleNames[i] == name) return ScheduleKind(i);
  throw ConfigError(fmt::format("no pipeline schedule '{}'; there are {}", name, fmt::join(kScheduleNames, ", ")));
}

std::string_view name_of(ScheduleKind kind) { return kScheduleNames[size_t(kind)]; }

int virtual_stage(const Pipeline& pipeline, PipelinePlace place) {
  WEFT_CHECK(
      place.stage >= 0 && place.stage < pipeline.num_stages && place.chunk >= 0 && place.chunk < pipeline.num_chunks,
      "stage {}, chunk {}: there are {} stages of {} chunks", place.stage, place.chunk, pipeline.num_stages,
      pipeline.num_chunks);
  const bool upwards = pipeline.kind == ScheduleKind::zbv && place.chunk % 2 == 1;
  return place.chunk * pipeline.num_stages + (upwards ? pipeline.num_stages - 1 - place.stage : place.stage);
}

PipelinePlace place_of(const Pipeline& pipeline, int virtual_stage) {
  WEFT_CHECK(virtual_stage >= 0 && virtual_stage < pipeline.num_virtual_stages(), "virtual stage {} of {}",
             virtual_stage, pipeline.num_virtual_stages());
  const int chunk = virtual_stage / pipeline.num_stages, step = virtual_stage % pipeline.num_stages;
  const bool upwards = pipeline.kind == ScheduleKind::zbv && chunk % 2 == 1;
  return {.stage = upwards ? pipeline.num_stages - 1 - step : step, .chunk = chunk};
}

}  // namespace weft
