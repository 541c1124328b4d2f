#include "weft/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "weft/device/tensor_values.h"
#include "weft/train/batch_loader.h"

namespace weft {
namespace {

// Windows [first, first + B); beyond the last, sequences of which nothing counts.
struct EvalBatch {
  const EvalWindows& windows;
  const StepSpec& spec;
  int64_t first;
  std::vector<AttentionSpan>& spans;
  int64_t& counted;

  void load(MicroBatch& b) const {
    spans.clear();
    WholeSample sample(spec.seq_length);
    for (int64_t i = 0; i < spec.micro_batch_size; ++i) {
      if (first + i < windows.num_windows()) {
        windows.read(first + i, sample.rows());
      } else {
        sample = WholeSample(spec.seq_length);
        std::iota(sample.positions.begin(), sample.positions.end(), 0);
      }
      counted += set_sequence(b, i, sample, 0);  // token numbers key dropout, of which there is none here
      add_spans(i, sample.positions, 0, spans);
    }
    b.spans = spans;
  }
};

int64_t sum_over(Communicator& ranks, int64_t n) {
  auto sum = double(n);  // exact: far below 2^53
  ranks.all_reduce({&sum, DType::f64, {1}}).wait();
  return int64_t(sum);
}

double sum_of(const Memory& memory, const Tensor& nll) {
  double sum = 0;
  for_each_value(memory, nll, [&](int64_t, int64_t, double x) { sum += x; });
  return sum;
}

}  // namespace

std::optional<EvalRecord> evaluate_loss(const EvalRequest& r, const ScoreMicroBatch& score) {
  const int64_t size = r.step_spec.micro_batch_size, all = (r.windows.num_windows() + size - 1) / size;
  const int64_t batches = r.max_batches > 0 ? std::min(r.max_batches, all) : all;
  std::vector<double> losses(size_t(batches), 0.0);
  std::vector<AttentionSpan> spans;
  int64_t counted = 0;
  for (int64_t round = 0; round < batches; round += r.step_spec.order.ranks) {
    if (r.stopped && r.stopped()) return {};
    const int64_t i =
        round + r.step_spec.order.rank;  // beyond the last: windows of which nothing counts, for the others' sake
    int64_t here = 0;
    const EvalBatch batch{r.windows, r.step_spec, (i < batches ? i * size : r.windows.num_windows()), spans, here};
    const double loss = sum_of(r.memory, score([&](MicroBatch& b) { batch.load(b); }).nll);
    if (i >= batches) continue;
    losses[size_t(i)] = loss;
    counted += here;
  }
  r.ranks.all_reduce({losses.data(), DType::f64, {batches}}).wait();  // zero on ranks that have nothing of it
  r.stages.all_reduce({losses.data(), DType::f64, {batches}}).wait();
  counted = sum_over(r.ranks, counted);
  const double loss = counted > 0 ? tree_sum(losses) / double(counted) : std::numeric_limits<double>::quiet_NaN();
  return EvalRecord{.step = r.step, .loss = loss, .perplexity = std::exp(loss), .tokens = counted};
}

int64_t default_window(const ModelSpec& model) {
  constexpr int64_t kMost = 1024;
  return model.max_positions > 0 ? std::min(model.max_positions, kMost) : kMost;
}

namespace {

StepSpec step_of(const ModelSpec& model, const Evaluator::Spec& spec) {
  const int64_t seq = spec.seq_length > 0 ? spec.seq_length : default_window(model);
  StepSpec step =
      forward_step(spec.layout, model, {.precision = spec.precision, .seq_length = seq, .size = spec.micro_batch_size},
                   spec.mesh.world->rank());
  step.finds_likeliest = spec.finds_likeliest;
  return step;
}

}  // namespace

Evaluator::Evaluator(const std::filesystem::path& folder, const Spec& spec)
    : config_(read_hf_config(folder)),
      machine_(spec.machine),
      step_(step_of(config_.spec, spec)),
      plan_(measure_forward(config_.spec, step_, *machine_.workspace_model)),
      rank_({.folder = folder, .model = config_.spec, .random_weights = spec.random_weights}, step_, plan_, machine_,
            spec.mesh),
      scratch_("evaluation", plan_.evaluation, machine_.memory),
      staging_(machine_.memory, step_.micro_batch_tokens(), rank_.mesh.poller()) {}

EvalRecord Evaluator::evaluate(const EvalWindows& windows, int64_t max_batches) {
  const ForwardOnly forward{rank_.model, rank_.params, step_, rank_.backend, rank_.mesh, staging_, &rank_.links};
  return *evaluate_loss({.windows = windows,
                         .step_spec = step_,
                         .memory = *machine_.memory,
                         .step = 0,
                         .max_batches = max_batches,
                         .ranks = *rank_.mesh.dense.all,
                         .stages = *rank_.mesh.pp},
                        [&](const LoadMicroBatch& load) { return forward.score(load, scratch_); });
}

TextScores Evaluator::scores(const std::vector<ScoredText>& texts) {
  const ForwardOnly forward{rank_.model, rank_.params, step_, rank_.backend, rank_.mesh, staging_, &rank_.links};
  return *score_texts(texts, {step_, *machine_.memory, *rank_.mesh.dense.all, *rank_.mesh.pp},
                      [&](const LoadMicroBatch& load) { return forward.score(load, scratch_); });
}

}  // namespace weft
