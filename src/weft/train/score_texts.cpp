// Scores texts: packed into windows, which ranks of dp share out.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/error.h"
#include "weft/device/tensor_values.h"
#include "weft/train/batch_loader.h"
#include "weft/train/evaluate.h"

namespace weft {
namespace {

// Texts [first, end) of the order lie one behind the other in a window.
struct TextWindow {
  size_t first, end;
};

int64_t inputs_of(const ScoredText& text) { return int64_t(text.ids.size()) - 1; }

// The longest texts first: those that share a window are of similar length, and little of it stays empty.
std::vector<size_t> longest_first(const std::vector<ScoredText>& texts) {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return texts[i].scored == 0; });
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return texts[a].ids.size() > texts[b].ids.size(); });
  return order;
}

std::vector<TextWindow> pack(const std::vector<ScoredText>& texts, const std::vector<size_t>& order, int64_t window) {
  std::vector<TextWindow> windows;
  int64_t used = window;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t inputs = inputs_of(texts[order[i]]);
    WEFT_CHECK(inputs > 0 && inputs <= window, "a text of {} tokens for windows of {}", inputs + 1, window);
    if (used + inputs > window) windows.push_back({i, i}), used = 0;
    windows.back().end = i + 1;
    used += inputs;
  }
  return windows;
}

// One micro-batch of windows, and whose each of their targets is.
struct TextBatch {
  static constexpr size_t kNobody = size_t(-1);

  const std::vector<ScoredText>& texts;
  const std::vector<size_t>& order;
  const StepSpec& spec;
  std::vector<AttentionSpan> spans = {};
  std::vector<std::vector<size_t>> owners = {};  // [sequence][token]

  void load(std::span<const TextWindow> windows, MicroBatch& b) {
    spans.clear();
    owners.assign(size_t(spec.micro_batch_size), std::vector<size_t>(size_t(spec.seq_length), kNobody));
    for (int64_t i = 0; i < spec.micro_batch_size; ++i) {
      WholeSample sample(spec.seq_length);
      int64_t row = 0;
      if (i < int64_t(windows.size()))
        for (size_t at = windows[size_t(i)].first; at < windows[size_t(i)].end; ++at)
          row = add(order[at], row, sample, owners[size_t(i)]);
      std::iota(sample.positions.begin() + row, sample.positions.end(), 0);
      set_sequence(b, i, sample, 0);
      add_spans(i, sample.positions, 0, spans);
    }
    b.spans = spans;
  }

 private:
  int64_t add(size_t which, int64_t row, WholeSample& sample, std::vector<size_t>& owner) const {
    const ScoredText& text = texts[which];
    const int64_t inputs = inputs_of(text);
    std::copy_n(text.ids.begin(), inputs, sample.ids.begin() + row);
    std::copy_n(text.ids.begin() + 1, inputs, sample.targets.begin() + row);
    std::iota(sample.positions.begin() + row, sample.positions.begin() + row + inputs, 0);
    const int64_t end = row + inputs;
    std::fill(sample.counted.begin() + end - text.scored, sample.counted.begin() + end, uint8_t(1));
    std::fill(owner.begin() + end - text.scored, owner.begin() + end, which);
    return end;
  }
};

// What the texts have had so far on this rank: minus the losses of their scored tokens, and how many of these are not
// the likeliest.
struct SumsOfTexts {
  std::vector<double> log_probs, unlikely;

  explicit SumsOfTexts(size_t texts) : log_probs(texts, 0.0), unlikely(texts, 0.0) {}
  void add(const Memory& memory, const TokenLosses& losses, const std::vector<size_t>& owners) {
    const auto owner = [&](int64_t row) { return owners[size_t(row)]; };
    for_each_value(memory, losses.nll, [&](int64_t row, int64_t, double loss) {
      if (owner(row) != TextBatch::kNobody) log_probs[owner(row)] -= loss;
    });
    if (!losses.parts) return;
    // (largest logit, sum of exponentials, the target's logit) of each part of the classes; a sum of 0: no such part.
    double largest = -INFINITY, sum = 0, part = 0, target = 0;
    for_each_value(memory, losses.parts, [&](int64_t row, int64_t column, double x) {
      if (column == 0) largest = -INFINITY, sum = 0, target = 0;
      if (column % 3 == 0) part = x;
      if (column % 3 == 1 && x > 0) largest = std::max(largest, part), sum += x;
      if (column % 3 == 2) target += x;
      const bool is_last = column + 1 == losses.parts.cols();
      if (is_last && sum > 0 && target < largest && owner(row) != TextBatch::kNobody) ++unlikely[owner(row)];
    });
  }
  void sum_over(Communicator& ranks) {
    for (std::vector<double>* sums : {&log_probs, &unlikely})
      if (!sums->empty()) ranks.all_reduce({sums->data(), DType::f64, {int64_t(sums->size())}}).wait();
  }
};

std::vector<size_t> owners_of_rows(const TextBatch& batch, const SequenceCut& cut) {
  std::vector<size_t> owners;
  for (const std::vector<size_t>& of_window : batch.owners)
    for (const Run& run : cut.runs())
      owners.insert(owners.end(), of_window.begin() + run.first, of_window.begin() + run.end());
  return owners;
}

}  // namespace

std::optional<TextScores> score_texts(const std::vector<ScoredText>& texts, const ScoreRequest& r,
                                      const ScoreMicroBatch& score) {
  const StepSpec& step = r.step_spec;
  const std::vector<size_t> order = longest_first(texts);
  const std::vector<TextWindow> windows = pack(texts, order, step.seq_length);
  const int64_t size = step.micro_batch_size, batches = (int64_t(windows.size()) + size - 1) / size;
  SumsOfTexts sums(texts.size());
  TextBatch batch{texts, order, step};
  for (int64_t round = 0; round < batches; round += step.order.ranks) {
    if (r.stopped && r.stopped()) return {};
    const int64_t first = std::min((round + step.order.rank) * size, int64_t(windows.size()));  // beyond: for others
    const int64_t count = std::min(size, int64_t(windows.size()) - first);
    const auto here = std::span(windows).subspan(size_t(first), size_t(count));
    const TokenLosses losses = score([&](MicroBatch& b) { batch.load(here, b); });
    sums.add(r.memory, losses, owners_of_rows(batch, step.sequences()));
  }
  for (Communicator* ranks : {&r.ranks, &r.stages}) sums.sum_over(*ranks);  // zeros on ranks that have nothing
  TextScores scores{.log_probs = std::move(sums.log_probs), .likeliest = {}};
  if (!std::all_of(scores.log_probs.begin(), scores.log_probs.end(), [](double x) { return std::isfinite(x); }))
    throw NumericsError("the log-probabilities of this model are not finite: are its weights?");
  if (step.finds_likeliest)
    for (const double unlikely : sums.unlikely) scores.likeliest.push_back(unlikely == 0);
  return scores;
}

}  // namespace weft
