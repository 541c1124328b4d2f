// What each layer of a model took in a step that was traced (`weft bench step --trace`), and the cut of the blocks over
// the stages of a pipeline that is best by these times.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/recipe/recipe.h"
#include "weft/schedule/block_layout.h"
#include "weft/schedule/pipeline.h"

namespace weft {

// Of one micro-batch, with what the layer exchanges over tp, cp and ep meanwhile; without waits for other stages and
// for weights of ZeRO. An embedding makes no gradient of its input; a head does all in dgrad.
struct LayerSeconds {
  double forward = 0, dgrad = 0, wgrad = 0;
  double all() const { return forward + dgrad + wgrad; }
  bool operator==(const LayerSeconds&) const = default;
};

struct LayerTrace {
  std::string machine = {};
  std::map<std::string, std::string> settings = {};  // what decides over the times: settings_of_trace
  BlockLayout cut = {};                              // as it was traced
  std::vector<LayerSeconds> blocks = {};             // of the whole model
  LayerSeconds embedding = {}, head = {};
  bool operator==(const LayerTrace&) const = default;
};

// Settings by key, as recipes write them, and "model", its shape: a trace is of recipes for which all are equal.
std::map<std::string, std::string> settings_of_trace(const Recipe& recipe, const ModelSpec& model);

// As a member of a Chrome trace, "otherData". Throws FileError, with the file's name, where a trace has none, or what
// there is contradicts itself.
nlohmann::json to_json(const LayerTrace& trace);
LayerTrace layer_trace_of(const nlohmann::json& chrome_trace, const std::string& source);
LayerTrace read_layer_trace(const std::filesystem::path& file);

// Throws ConfigError where the trace is of another model, layout or precision than this recipe, naming what differs
// first; and where the recipe has no stages to balance, or its blocks recompute other things in another cut.
void require_trace_of(const LayerTrace& trace, const Recipe& recipe, const ModelSpec& model);

struct TracedCut {
  BlockLayout blocks = {};
  double step_s = 0;                 // the schedule of all stages, without the end of a step
  std::vector<double> busy_s = {};   // of each stage, in a step
  std::vector<int64_t> counts = {};  // of each stage's blocks
};
// A block takes a stage as long as it was traced, times the pace of the stage's ranks beside that of the ranks which
// it was traced on: how long blocks of the same kind took on each. The recipe's pipeline is that of the trace.
TracedCut cut_as_traced(const LayerTrace& trace, const ModelSpec& model, const Pipeline& pipeline,
                        int64_t num_micro_batches, const BlockLayout& blocks);
// The best that was found; none where none is shorter than `now` by a thousandth. Every virtual stage has a block.
// Always the same answer.
std::optional<TracedCut> better_cut_as_traced(const LayerTrace& trace, const ModelSpec& model, const Pipeline& pipeline,
                                              int64_t num_micro_batches, const BlockLayout& now);

// For a terminal; `better` as better_cut_as_traced found it.
std::string to_string(const LayerTrace& trace, const TracedCut& now, const std::optional<TracedCut>& better);
nlohmann::json to_json(const LayerTrace& trace, const TracedCut& now, const std::optional<TracedCut>& better);

}  // namespace weft
