#include "weft/train/gptq_pass.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "weft/base/error.h"
#include "weft/models/gptq.h"
#include "weft/models/hf_weights.h"
#include "weft/ops/dry/dry_backend.h"
#include "weft/plan/dry_step.h"
#include "weft/train/forward_rank.h"
#include "weft/train/product_watch.h"

namespace weft {
namespace {

constexpr Precision kPrecision = kF32;

StepSpec step_of_part(const ModelSpec& model, const ModelPart& part, int64_t seq_length) {
  StepSpec step = forward_step({}, model, {.precision = kPrecision, .seq_length = seq_length, .size = 1}, 0);
  step.model.parts = {part};
  return step;
}

// The one layer of a part of the model: the embedding, or a block.
struct PartPass {
  const Transformer& part;
  const StepSpec& step;
  Backend& backend;
  const ProcessMesh& mesh;
  BatchStaging& staging;
  Arena& arena;

  // A window, from the stream before the layer to that behind it, [tokens, width] each; null: there is none before an
  // embedding, and the one behind is not wanted. The two may be the same.
  void run(const LoadMicroBatch& load, const float* before, float* behind) const {
    arena.rewind();
    MicroBatch batch = alloc_micro_batch(arena, step);
    staging.load(load, batch, backend);
    Pass p{backend, mesh, step.precision, batch, &arena, &arena, &arena, &arena, &arena};
    const Tensor x = part.stream(p, &arena), y = part.stream(p, &arena);
    if (before != nullptr) std::copy_n(before, x.elements(), x.as<float>());
    const AnyLayer& layer = *part.layers(0)[0].layer;
    layer.forward(p, *layer.make_saved(), x, y);
    backend.wait_all();
    if (behind != nullptr) std::copy_n(y.as<float>(), y.elements(), behind);
  }
};

struct PartSizes {
  PersistentArenas::Sizes persistent;
  int64_t scratch = 0, workspace = 0;
};

PartSizes measure_part(const GptqRequest& r, const StepSpec& step) {
  const WorkspaceModel& workspace = *r.machine.workspace_model;
  const ProcessMesh mesh = dry_mesh(step.mesh, step.rank);
  ParamStore params(step.precision, step.order, mesh, WeightUse::frozen);
  Transformer part(params, r.spec, step.model);
  PersistentArenas persistent;
  params.allocate_frozen(persistent.params, persistent.transit);
  part.allocate_constants(persistent.constants, step.precision);
  DryBackend backend(workspace);
  Arena arena("calibration");
  BatchStaging staging(host_memory(), step.micro_batch_tokens());
  const auto spans = whole_sequences(step);
  PartPass{part, step, backend, mesh, staging, arena}.run([&](MicroBatch& b) { b.spans = spans; }, nullptr, nullptr);
  PartSizes sizes{persistent.peak(), arena.peak(), backend.workspace_bytes()};
  for (const Param* p : params.params())
    if (p->spec().linear) {
      const int64_t chosen = std::max<int64_t>(1, r.spec.experts.chosen), tokens = step.micro_batch_tokens() * chosen;
      sizes.workspace = std::max(sizes.workspace, ProductWatch::workspace_bytes(workspace, p->shape()[1], tokens));
    }
  return sizes;
}

// A part with its weights.
class PartRank {
 public:
  PartRank(const GptqRequest& r, const ModelPart& which)
      : step_(step_of_part(r.spec, which, int64_t(r.windows[0].ids.size()))),
        sizes_(measure_part(r, step_)),
        rank_(r.machine, single_mesh(), sizes_.workspace,
              [&](Backend& inner, const ProcessMesh&) {
                auto watch = std::make_unique<ProductWatch>(inner);
                watch_ = watch.get();
                return watch;
              }),
        arenas_(sizes_.persistent, r.machine.memory),
        params(step_.precision, step_.order, rank_.mesh, WeightUse::frozen),
        part_(params, r.spec, step_.model),
        scratch_("calibration", sizes_.scratch, r.machine.memory),
        staging_(r.machine.memory, step_.micro_batch_tokens()) {
    params.allocate_frozen(arenas_.params, arenas_.transit);
    part_.allocate_constants(arenas_.constants, step_.precision);
    read_hf_weights(r.model, r.spec, params, r.machine.threads);
    params.masters_changed(rank_.backend);
    for (const int unit : part_.layers(0)[0].units) params.fetch(unit);
  }
  ~PartRank() { rank_.end(); }

  void run(const WholeSample& window, const float* before, float* behind) {
    std::vector<AttentionSpan> spans;
    const LoadMicroBatch load = [&](MicroBatch& b) {
      set_sequence(b, 0, window, 0);
      add_spans(0, window.positions, 0, spans);
      b.spans = spans;
    };
    PartPass{part_, step_, rank_.backend, rank_.mesh, staging_, scratch_}.run(load, before, behind);
  }
  ProductWatch& watch() { return *watch_; }

 private:
  const StepSpec step_;
  const PartSizes sizes_;
  ProductWatch* watch_ = nullptr;
  RankBackend rank_;
  PersistentArenas arenas_;

 public:
  ParamStore params;

 private:
  Transformer part_;
  Arena scratch_;
  BatchStaging staging_;
};

class Quantiser {
 public:
  Quantiser(const GptqRequest& r, SharedWriter& writer, const std::function<void(int64_t, int64_t)>& told)
      : r_(r), writer_(writer), told_(told), size_(int64_t(r.windows[0].ids.size()) * r.spec.width) {
    for (size_t i = 0; i < r.folder.tensors().size(); ++i)
      if (r.folder.in_codes(i)) of_weight_[r.folder.tensors()[i].param].push_back(i);
  }

  GptqWritten write() {
    copy_others();
    stream_.resize(size_t(size_) * r_.windows.size());
    PartRank embedding(r_, {.blocks = {0, 0}, .embedding = true, .head = false});
    for_each_window([&](const WholeSample& window, float* stream) { embedding.run(window, nullptr, stream); });
    for (int64_t l = 0; l < r_.spec.num_layers; ++l) write_block(l);
    return std::move(written_);
  }

 private:
  void copy_others() {
    const auto source = open_weights(r_.model, r_.spec);
    for (size_t i = 0; i < source->tensors().size(); ++i)
      if (!r_.folder.in_codes(i)) copy_tensor(*source, i, kBesideCodes, writer_);
    source->check_whole();
    written_.notes = source->notes();
  }

  template <class F>
  void for_each_window(const F& f) {
    for (size_t w = 0; w < r_.windows.size(); ++w) f(r_.windows[w], stream_.data() + w * size_t(size_));
  }

  void write_block(int64_t l) {
    PartRank block(r_, {.blocks = {l, 1}, .embedding = false, .head = false});
    std::vector<ProductWatch::Matrix> matrices;
    std::vector<const Param*> weights;
    for (const Param* p : block.params.params()) {
      if (!of_weight_.contains(p->spec().name)) continue;
      const bool experts = p->spec().name.find(".experts.") != std::string::npos;
      for (int64_t e = 0; e < (experts ? r_.spec.experts.count : 1); ++e) {
        matrices.push_back({.weight = p->value, .group = experts ? e : -1});
        weights.push_back(p);
      }
    }
    for (size_t first = 0; first < matrices.size();) {
      const size_t count = as_many_as_fit(std::span(matrices).subspan(first));
      see_inputs(block, std::span(matrices).subspan(first, count));
      for (size_t i = first; i < first + count; ++i) round(*weights[i], matrices[i]);
      first += count;
    }
    if (l + 1 < r_.spec.num_layers)
      for_each_window([&](const WholeSample& window, float* stream) { block.run(window, stream, stream); });
  }

  size_t as_many_as_fit(std::span<const ProductWatch::Matrix> matrices) const {
    int64_t bytes = 0;
    size_t count = 0;
    for (const ProductWatch::Matrix& m : matrices) {
      bytes += m.weight.cols() * m.weight.cols() * int64_t(sizeof(float));
      if (count > 0 && bytes > r_.most_bytes) break;
      ++count;
    }
    return count;
  }

  void see_inputs(PartRank& block, std::span<ProductWatch::Matrix> matrices) {
    for (ProductWatch::Matrix& m : matrices) m.sums.assign(size_t(m.weight.cols() * m.weight.cols()), 0);
    block.watch().watch(matrices);
    for_each_window([&](const WholeSample& window, float* stream) { block.run(window, stream, nullptr); });
    block.watch().watch({});
  }

  // The tensors on disk that a matrix is: those of an expert among others of its weight, or all of a weight.
  void round(const Param& weight, ProductWatch::Matrix& m) {
    const int64_t cols = weight.shape()[1], threads = r_.machine.threads;
    const int64_t rows = m.group < 0 ? weight.shape()[0] : weight.shape()[0] / r_.spec.experts.count;
    const Run here{m.group < 0 ? 0 : m.group * rows, rows};
    const bool seen = m.num_inputs >= kLeastInputs;
    const GptqCosts costs =
        seen ? gptq_costs(m.sums, cols, r_.folder.format().by_size, int(threads)) : equal_gptq_costs(cols);
    m.sums = {};
    for (const size_t i : of_weight_.at(weight.spec().name)) {
      const HfTensor& t = r_.folder.tensors()[i];
      if (t.first_row < here.first || t.first_row >= here.end()) continue;
      float* numbers = weight.value.slice_rows(t.first_row, t.rows).as<float>();
      const std::span<float> all(numbers, size_t(t.rows * cols));
      const GptqMatrix rounded = gptq_rounded(all, costs, r_.folder.format(), t.name, int(threads));
      r_.folder.write(i, rounded, writer_);
      std::ranges::copy(numbers_of(rounded), numbers);
      count(t.name, seen);
    }
  }

  void count(const std::string& name, bool seen) {
    ++written_.num_matrices;
    if (!seen && written_.num_unseen++ == 0) written_.unseen = name;
    told_(written_.num_matrices, r_.folder.num_in_codes());
  }

  const GptqRequest& r_;
  SharedWriter& writer_;
  const std::function<void(int64_t, int64_t)>& told_;
  const int64_t size_;                                    // of a window's stream
  std::map<std::string, std::vector<size_t>> of_weight_;  // tensors in codes
  std::vector<float> stream_;                             // [windows, tokens, width]
  GptqWritten written_;
};

}  // namespace

GptqWritten write_gptq(const GptqRequest& request, SharedWriter& writer,
                       const std::function<void(int64_t, int64_t)>& told) {
  WEFT_CHECK(!request.windows.empty(), "nothing to calibrate on");
  return Quantiser(request, writer, told).write();
}

}  // namespace weft
