// Which blocks of the model lie on which rank of a pipeline. Pure functions.
//
// The model's blocks are cut into virtual stages, 0 .. num_virtual_stages() - 1 in the order of forward. A rank of the
// pipeline (its stage) holds num_chunks of them, numbered in the order in which forward comes by.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class ScheduleKind { gpipe, one_f_one_b, interleaved_1f1b, zb_h1, zbv };
// Their names in recipes, in that order.
inline constexpr std::array<std::string_view, 5> kScheduleNames{"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zbv"};

struct Pipeline {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int num_stages = 1, num_chunks = 1;
  int num_virtual_stages() const { return num_stages * num_chunks; }
  bool operator==(const Pipeline&) const = default;
};

// `num_chunks` is Megatron's virtual_pipeline_parallel_size; 0: what the schedule
// needs. It must be 1 (gpipe, 1f1b, zb_h1), 2 (zbv), or at least 2 (interleaved_1f1b). Throws a ConfigError that says
// what fits.
Pipeline make_pipeline(ScheduleKind kind, int num_stages, int num_chunks = 0);
// The same by the schedule's name in recipes, as schedule_kind takes it.
Pipeline pipeline_named(std::string_view name, int num_stages, int num_chunks = 0);
// Whether a schedule can have so many chunks of the model on each rank, and the text of what it can have: "at least 2".
bool chunks_fit(ScheduleKind kind, int64_t num_chunks);
std::string chunks_that_fit(ScheduleKind kind);
// By name; a ConfigError that names all for an unknown one.
ScheduleKind schedule_kind(std::string_view name);
// "gpipe", "1f1b", ...
std::string_view name_of(ScheduleKind kind);

// A virtual stage's rank, and which of the rank's chunks it is.
struct PipelinePlace {
  int stage = 0, chunk = 0;
  bool operator==(const PipelinePlace&) const = default;
};
// gpipe, 1f1b, zb_h1: the stage. interleaved_1f1b: round after round, chunk * num_stages + stage. zbv: down and up
// again, a V: stage, then 2 num_stages - 1 - stage, so that the first rank has both ends of the model, and the loss.
int virtual_stage(const Pipeline& pipeline, PipelinePlace place);
// The inverse.
PipelinePlace place_of(const Pipeline& pipeline, int virtual_stage);

}  // namespace weft
