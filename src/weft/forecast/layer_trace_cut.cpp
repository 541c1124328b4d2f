// The cut of a model's blocks over the stages of a pipeline by the times of a trace.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "weft/base/error.h"
#include "weft/forecast/forecast.h"
#include "weft/forecast/layer_trace.h"
#include "weft/schedule/step_time.h"

namespace weft {
namespace {

constexpr double kLeastGain = 0.001;  // of a step
constexpr int kMostMoves = 16;        // of single blocks, behind the first cut

LayerSeconds& operator+=(LayerSeconds& a, const LayerSeconds& b) {
  a.forward += b.forward;
  a.dgrad += b.dgrad;
  a.wgrad += b.wgrad;
  return a;
}

// What layers take on any stage.
class LayersOnStages {
 public:
  LayersOnStages(const LayerTrace& trace, const ModelSpec& model, const Pipeline& pipeline)
      : trace_(trace), pipeline_(pipeline), paces_(size_t(pipeline.num_stages), 1) {
    WEFT_CHECK(trace.cut.size() == size_t(pipeline.num_virtual_stages()), "a trace of {} virtual stages, and {} here",
               trace.cut.size(), pipeline.num_virtual_stages());
    for (int v = 0; v < pipeline.num_virtual_stages(); ++v)
      for (int64_t n = 0; n < trace.cut[size_t(v)]; ++n) stage_of_.push_back(stage(v));
    find_paces(model);
    sums_.emplace_back();
    for (size_t b = 0; b < stage_of_.size(); ++b) {
      const double pace = paces_[size_t(stage_of_[b])];
      const LayerSeconds& t = trace.blocks[b];
      LayerSeconds sum = sums_.back();
      sum += {t.forward / pace, t.dgrad / pace, t.wgrad / pace};
      sums_.push_back(sum);
    }
  }

  int64_t num_blocks() const { return int64_t(stage_of_.size()); }
  int stage(int v) const { return place_of(pipeline_, v).stage; }
  // A micro-batch in a virtual stage that has the blocks from `begin` to `end`.
  LayerSeconds of(int v, int64_t begin, int64_t end) const {
    const LayerSeconds &a = sums_[size_t(begin)], &b = sums_[size_t(end)];
    const double pace = paces_[size_t(stage(v))];
    LayerSeconds s{(b.forward - a.forward) * pace, (b.dgrad - a.dgrad) * pace, (b.wgrad - a.wgrad) * pace};
    if (v == 0) s += trace_.embedding;
    if (v == pipeline_.num_virtual_stages() - 1) s += trace_.head;
    return s;
  }

 private:
  // Of a stage's ranks: what its blocks took, beside what blocks of their kinds take on the mean of all stages.
  void find_paces(const ModelSpec& model) {
    const auto mean_of_kind = [&](size_t block) {
      double sum = 0, count = 0;
      for (size_t b = 0; b < stage_of_.size(); ++b)
        if (model.layer(int64_t(b)) == model.layer(int64_t(block))) sum += trace_.blocks[b].all(), ++count;
      return sum / count;
    };
    std::vector<double> took(paces_.size()), usual(paces_.size());
    for (size_t b = 0; b < stage_of_.size(); ++b) {
      took[size_t(stage_of_[b])] += trace_.blocks[b].all();
      usual[size_t(stage_of_[b])] += mean_of_kind(b);
    }
    for (size_t s = 0; s < paces_.size(); ++s)
      if (took[s] > 0 && usual[s] > 0) paces_[s] = took[s] / usual[s];
  }

  const LayerTrace& trace_;
  const Pipeline& pipeline_;
  std::vector<double> paces_;
  std::vector<int> stage_of_ = {};       // [block] as it was traced
  std::vector<LayerSeconds> sums_ = {};  // of the first n blocks, on ranks of a pace of 1
};

TracedCut cut_with(const LayersOnStages& layers, const Pipeline& p, int64_t num_micro_batches,
                   const BlockLayout& blocks) {
  TracedCut cut{.blocks = blocks,
                .busy_s = std::vector<double>(size_t(p.num_stages)),
                .counts = std::vector<int64_t>(size_t(p.num_stages))};
  ActionTimes times = uniform_times(p, 0, 0, 0);
  for (int v = 0; v < p.num_virtual_stages(); ++v) {
    const int64_t begin = first_block(blocks, v), count = blocks[size_t(v)];
    const LayerSeconds s = layers.of(v, begin, begin + count);
    times.forward[size_t(v)] = s.forward;
    times.dgrad[size_t(v)] = s.dgrad;
    times.wgrad[size_t(v)] = s.wgrad;
    cut.busy_s[size_t(layers.stage(v))] += s.all() * double(num_micro_batches);
    cut.counts[size_t(layers.stage(v))] += count;
  }
  cut.step_s = seconds_of_step(p, times, num_micro_batches);
  return cut;
}

// The cut whose dearest virtual stage is cheapest, by dynamic programming over the virtual stages; of several the one
// with fewer blocks in front.
BlockLayout even_cut(const LayersOnStages& layers, const Pipeline& p) {
  const int64_t blocks = layers.num_blocks();
  const int n = p.num_virtual_stages();
  std::vector<double> dearest(size_t(blocks) + 1, std::numeric_limits<double>::infinity());
  dearest[0] = 0;
  std::vector<std::vector<int64_t>> begins;  // [virtual stage][its end]
  for (int v = 0; v < n; ++v) {
    std::vector<double> next(dearest.size(), std::numeric_limits<double>::infinity());
    begins.emplace_back(dearest.size(), -1);
    for (int64_t end = 1; end <= blocks; ++end)
      for (int64_t begin = 0; begin < end; ++begin) {
        const double value = std::max(dearest[size_t(begin)], layers.of(v, begin, end).all());
        if (value >= next[size_t(end)]) continue;
        next[size_t(end)] = value;
        begins.back()[size_t(end)] = begin;
      }
    dearest = std::move(next);
  }
  BlockLayout cut(static_cast<size_t>(n));
  int64_t end = blocks;
  for (size_t v = cut.size(); v-- > 0;) {
    const int64_t begin = begins[v][size_t(end)];
    cut[v] = end - begin;
    end = begin;
  }
  return cut;
}

// As long as a step gets shorter, a block goes from the stage that is busy longest to where it gains most.
TracedCut polished_cut(const LayersOnStages& layers, const Pipeline& p, int64_t num_micro_batches, TracedCut cut) {
  for (int move = 0; move < kMostMoves; ++move) {
    const int from = int(std::max_element(cut.busy_s.begin(), cut.busy_s.end()) - cut.busy_s.begin());
    std::optional<TracedCut> best;
    for (int chunk = 0; chunk < p.num_chunks; ++chunk) {
      const int v = virtual_stage(p, {from, chunk});
      if (cut.blocks[size_t(v)] < 2) continue;
      for (int w = 0; w < p.num_virtual_stages(); ++w) {
        if (layers.stage(w) == from) continue;
        BlockLayout blocks = cut.blocks;
        --blocks[size_t(v)];
        ++blocks[size_t(w)];
        TracedCut one = cut_with(layers, p, num_micro_batches, blocks);
        if (one.step_s < (best ? best->step_s : cut.step_s)) best = std::move(one);
      }
    }
    if (!best) break;
    cut = std::move(*best);
  }
  return cut;
}

std::string traced_stage_line(size_t stage, const TracedCut& now, const std::optional<TracedCut>& better) {
  std::string text = fmt::format("{:>5} {:>9} {:>12}", stage, now.counts[stage], duration_text(now.busy_s[stage]));
  if (better) text += fmt::format(" {:>9} {:>12}", better->counts[stage], duration_text(better->busy_s[stage]));
  return text + "\n";
}

nlohmann::json json_of(const TracedCut& cut) {
  return {{"pipeline_layout", cut.blocks}, {"step_s", cut.step_s}, {"blocks", cut.counts}, {"busy_s", cut.busy_s}};
}

}  // namespace

TracedCut cut_as_traced(const LayerTrace& trace, const ModelSpec& model, const Pipeline& pipeline,
                        int64_t num_micro_batches, const BlockLayout& blocks) {
  return cut_with(LayersOnStages(trace, model, pipeline), pipeline, num_micro_batches, blocks);
}

std::optional<TracedCut> better_cut_as_traced(const LayerTrace& trace, const ModelSpec& model, const Pipeline& pipeline,
                                              int64_t num_micro_batches, const BlockLayout& now) {
  const LayersOnStages layers(trace, model, pipeline);
  if (layers.num_blocks() <= pipeline.num_virtual_stages()) return {};
  const TracedCut given = cut_with(layers, pipeline, num_micro_batches, now);
  TracedCut best = polished_cut(layers, pipeline, num_micro_batches, given);
  TracedCut other = polished_cut(layers, pipeline, num_micro_batches,
                                 cut_with(layers, pipeline, num_micro_batches, even_cut(layers, pipeline)));
  if (other.step_s < best.step_s) best = std::move(other);
  if (best.step_s >= (1 - kLeastGain) * given.step_s) return {};
  return best;
}

std::string to_string(const LayerTrace& trace, const TracedCut& now, const std::optional<TracedCut>& better) {
  std::string text = fmt::format("traced on {}\n\n{:>5} {:>9} {:>12}", trace.machine, "stage", "blocks", "busy a step");
  if (better) text += fmt::format(" {:>9} {:>12}", "better", "busy a step");
  text += "\n";
  for (size_t s = 0; s < now.busy_s.size(); ++s) text += traced_stage_line(s, now, better);
  text += fmt::format("\nthe actions of a step take {} with this cut of the blocks, {}\n", duration_text(now.step_s),
                      to_string(now.blocks));
  if (!better) return text + "no better cut was found\n";
  return text + fmt::format("and {} ({:+.1f} %) with parallel.pipeline_layout = {}\n", duration_text(better->step_s),
                            (better->step_s / now.step_s - 1) * 100, to_string(better->blocks));
}

nlohmann::json to_json(const LayerTrace& trace, const TracedCut& now, const std::optional<TracedCut>& better) {
  return {{"machine", trace.machine}, {"now", json_of(now)}, {"better", better ? json_of(*better) : nlohmann::json()}};
}

}  // namespace weft
