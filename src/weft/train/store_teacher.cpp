#include "weft/train/store_teacher.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/comm/agree.h"
#include "weft/data/sample_order.h"
#include "weft/device/host_parts.h"
#include "weft/models/fingerprint.h"
#include "weft/models/peft.h"
#include "weft/ops/dry/dry_backend.h"
#include "weft/step/executor.h"
#include "weft/step/head_logits.h"
#include "weft/train/batch_loader.h"
#include "weft/train/forward_rank.h"
#include "weft/train/run_data.h"

namespace weft {
namespace {

// The bytes of HeadLogits; `workspace` becomes as large as its kernels need.
int64_t measure_head(const ModelSpec& model, const StepSpec& step, const WorkspaceModel& of, int64_t& workspace) {
  if (!step.has_head()) return 0;
  const ProcessMesh mesh = dry_mesh(step.mesh, step.rank);
  ParamStore params(step.precision, step.order, mesh, WeightUse::frozen);
  const Transformer transformer(params, model, step.model);
  PersistentArenas persistent;
  params.allocate_frozen(persistent.params, persistent.transit);
  DryBackend backend(of);
  Arena arena("logits");
  const HeadLogits::Of of_head{.model = transformer, .step = step, .mesh = mesh, .arena = arena};
  HeadLogits(of_head).each(backend, [](int64_t, const Tensor&) {});
  workspace = std::max(workspace, backend.workspace_bytes());
  return arena.peak();
}

ForwardShape storing_shape(const Recipe& r) {
  return {.precision = weft::precision_of(r), .seq_length = r.train.seq_length, .size = r.train.micro_batch_size};
}

// One of the ranks that have the same logits.
bool writes_logits(const StepSpec& step) { return step.has_head() && place_of(step.mesh, step.rank).tp == 0; }

// The file that it replaces goes only when the new one is whole.
void require_disk_room(const std::filesystem::path& file, int64_t bytes) {
  const std::optional<int64_t> largest = largest_file_bytes(), free = free_bytes_at(file);
  if (largest && bytes > *largest)
    throw FileError(fmt::format("{}: the file will have {} bytes, this process may write files of {}: raise ulimit -f",
                                file.string(), bytes, *largest));
  if (free && bytes > *free)
    throw FileError(
        fmt::format("{}: the file will have {} bytes, and {} are free there: free {} more, choose another --out, or a "
                    "smaller --top-k",
                    file.string(), bytes, *free, bytes - *free));
}

// The largest logits of the rows of a micro-batch, on the host.
struct FoundTop {
  int64_t top;
  double temperature;
  std::vector<int32_t> ids;
  std::vector<float> logits, lse;
  FoundTop(int64_t rows, int64_t k, double t)
      : top(k), temperature(t), ids(size_t(rows * k)), logits(ids.size()), lse(size_t(rows)) {}

  // Rows [first, first + count) as a file takes them.
  TopRows rows(int64_t first, int64_t count) {
    const auto at = size_t(first * top), n = size_t(count * top);
    return {.ids = std::span(ids).subspan(at, n),
            .logits = std::span(logits).subspan(at, n),
            .lse = std::span(lse).subspan(size_t(first), size_t(count))};
  }

  void find(const Tensor& part, int64_t of_part, int64_t row) {
    const auto at = size_t(row * top), n = size_t(top);
    find_top(
        part, of_part, temperature,
        {.ids = std::span(ids).subspan(at, n), .logits = std::span(logits).subspan(at, n), .lse = lse[size_t(row)]});
  }
};

// Samples [first, first + B) of n; beyond the last, that one again.
struct StoredBatch {
  const SampleOrder& samples;
  const StepSpec& step;
  int64_t first;
  std::vector<AttentionSpan>& spans;
  void load(MicroBatch& b) const {
    spans.clear();
    WholeSample sample(step.seq_length);
    for (int64_t i = 0; i < step.micro_batch_size; ++i) {
      samples.read(std::min(first + i, samples.samples_per_epoch() - 1), sample.rows());
      set_sequence(b, i, sample, 0);  // token numbers key dropout, of which there is none here
      add_spans(i, sample.positions, 0, spans);
    }
    b.spans = spans;
  }
};

// The first rank makes the cache of tokenized texts, the others find it. Samples come in the order of the files.
std::unique_ptr<SampleOrder> open_samples(const Recipe& r, int64_t vocab_size, Communicator& world) {
  DataSpec spec = data_spec_of(r, vocab_size);
  spec.shuffle = false;
  spec.weights.clear();
  if (world.rank() != 0) barrier(world);
  auto samples = open_sample_order(spec);
  if (world.rank() == 0) barrier(world);
  return samples;
}

// What the file will hold. Throws FileError where the disk has no room for it, on all ranks.
TeacherLogitsSpec judged_file(const StoreTeacherRequest& r, const SampleOrder& samples) {
  const TeacherLogitsSpec spec{.top = r.top,
                               .seq_length = r.recipe.train.seq_length,
                               .num_samples = samples.samples_per_epoch(),
                               .vocab_size = r.teacher.spec.vocab_size,
                               .temperature = r.recipe.objective.temperature,
                               .teacher = fingerprint_of_weights(r.recipe.objective.teacher, r.mesh.world.get()),
                               .samples = samples.samples_fingerprint()};
  agree(*r.mesh.world, [&] {
    if (r.mesh.world->rank() == 0) require_disk_room(r.file, spec.sample_begin(spec.num_samples));
  });
  return spec;
}

class Storer {
 public:
  // The disk is judged before the teacher is loaded.
  explicit Storer(const StoreTeacherRequest& request)
      : r_(request),
        model_(request.teacher.spec),
        samples_(open_samples(request.recipe, model_.vocab_size, *request.mesh.world)),
        file_(judged_file(request, *samples_)),
        step_(forward_step(request.recipe.parallel, model_, storing_shape(request.recipe), request.mesh.world->rank())),
        plan_(measure_forward(model_, step_, *request.machine.workspace_model)),
        head_bytes_(measure_head(model_, step_, *request.machine.workspace_model, plan_.workspace)),
        rank_({request.recipe.objective.teacher, model_}, step_, plan_, request.machine, request.mesh),
        evaluation_("evaluation", plan_.evaluation, request.machine.memory),
        logits_("logits", head_bytes_, request.machine.memory),
        staging_(request.machine.memory, step_.micro_batch_tokens(), rank_.mesh.poller()) {
    if (step_.has_head())
      head_.emplace(HeadLogits::Of{.model = rank_.model, .step = step_, .mesh = rank_.mesh, .arena = logits_});
  }

  void run() {
    Communicator& world = *rank_.mesh.world;
    const bool leads = world.rank() == 0;
    std::optional<TeacherLogitsWriter> writer;
    agree(world, [&] {
      if (leads) writer.emplace(r_.file, file_, true);
    });
    agree(world, [&] {
      if (!leads && writes()) writer.emplace(r_.file, file_, false);
    });
    const int64_t size = step_.micro_batch_size, batches = (file_.num_samples + size - 1) / size;
    for (int64_t round = 0; round < batches; round += step_.order.ranks) {
      const int64_t batch = round + step_.order.rank;  // beyond the last: that one again, for the others' sake
      const int64_t first = std::min(batch, batches - 1) * size;
      FoundTop found = pass({*samples_, step_, first, spans_});
      if (writes() && batch < batches) write(*writer, found, first, file_.num_samples);
      if (leads && r_.progress)
        r_.progress(std::min(file_.num_samples, (round + step_.order.ranks) * size), file_.num_samples);
    }
    barrier(world);
    agree(world, [&] {
      if (leads) writer->commit();
    });
  }

 private:
  bool writes() const { return writes_logits(step_); }

  FoundTop pass(const StoredBatch& batch) {
    FoundTop found(writes() ? step_.micro_batch_tokens() : 0, file_.top, file_.temperature);
    const ForwardOnly forward{.model = rank_.model,
                              .params = rank_.params,
                              .step = step_,
                              .backend = rank_.backend,
                              .mesh = rank_.mesh,
                              .staging = staging_,
                              .links = &rank_.links,
                              .states = head_ ? head_->states() : Tensor()};
    forward.score([&](MicroBatch& b) { batch.load(b); }, evaluation_);
    if (!head_) return found;
    head_->each(rank_.backend, [&](int64_t first, const Tensor& logits) {
      if (!writes()) return;
      read_parts(*r_.machine.memory, logits, [&](const Tensor& part, int64_t row) { find(part, first + row, found); });
    });
    for (const float lse : found.lse)
      if (!std::isfinite(lse))
        throw NumericsError(
            fmt::format("the logits of objective.teacher = \"{}\" are not finite in samples {} to {}: "
                        "are its weights finite?",
                        r_.recipe.objective.teacher, batch.first, batch.first + step_.micro_batch_size - 1));
    return found;
  }

  void find(const Tensor& part, int64_t first, FoundTop& found) const {
    parallel_for(part.rows(), r_.machine.threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) found.find(part, i, first + i);
    });
  }

  // Ranks of cp write the runs of the sequences that they have.
  void write(TeacherLogitsWriter& writer, FoundTop& found, int64_t first, int64_t samples) const {
    for (int64_t i = 0; i < step_.micro_batch_size && first + i < samples; ++i) {
      int64_t row = i * step_.sequences().rows();
      for (const Run& run : step_.sequences().runs()) {
        writer.write(first + i, run.first, found.rows(row, run.count));
        row += run.count;
      }
    }
  }

  const StoreTeacherRequest& r_;
  const ModelSpec model_;
  const std::unique_ptr<SampleOrder> samples_;
  const TeacherLogitsSpec file_;
  const StepSpec step_;
  MemoryPlan plan_;
  const int64_t head_bytes_;
  ForwardRank rank_;
  Arena evaluation_, logits_;
  BatchStaging staging_;
  std::optional<HeadLogits> head_;
  std::vector<AttentionSpan> spans_;
};

}  // namespace

Recipe storing_recipe(const Recipe& recipe, const ModelSpec& teacher) {
  Recipe r = recipe;
  const auto& p = recipe.parallel;
  const int64_t ep = p.frozen_ep > 0 ? p.frozen_ep : p.ep;
  r.parallel = {.dp = p.dp, .tp = p.tp, .pp = p.pp, .cp = p.cp, .ep = teacher.has_experts() ? ep : 1};
  r.parallel.cp_comm_type = p.cp_comm_type;
  r.parallel.cp_a2a_size = p.cp_a2a_size;
  r.parallel.order = p.order;
  r.parallel.sequence_parallel = false;  // every rank of tp has all rows of what the head is given
  r.objective.top_k = 0;                 // which is a student's
  return r;
}

int64_t measure_storing(const Recipe& recipe, const ModelSpec& teacher, int64_t top, const WorkspaceModel& workspace,
                        int rank) {
  const StepSpec step = forward_step(recipe.parallel, teacher, storing_shape(recipe), rank);
  MemoryPlan plan = measure_forward(teacher, step, workspace);
  const int64_t head = measure_head(teacher, step, workspace, plan.workspace);
  const int64_t found = writes_logits(step) ? step.micro_batch_tokens() * (8 * top + 4) : 0;
  return plan.total_bytes() + head + found;
}

void store_teacher_logits(const StoreTeacherRequest& request) { Storer(request).run(); }

}  // namespace weft
