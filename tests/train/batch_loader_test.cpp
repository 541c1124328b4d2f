#include "weft/train/batch_loader.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "weft/ops/ref/ref_backend.h"
#include "weft/step/training_state.h"

namespace weft {
namespace {

constexpr int64_t kSeq = 6;

// Two samples of two documents each, three tokens long: spans as training has them.
std::vector<AttentionSpan> spans_of_four_documents() {
  const std::vector<int32_t> positions{0, 1, 2, 0, 1, 2};
  std::vector<AttentionSpan> spans;
  for (int64_t sample = 0; sample < 2; ++sample) add_spans(sample, positions, 40 + sample, spans);
  return spans;
}

TEST(BatchLoader, EveryDocumentIsASpanOfItsRowsAndItsSample) {
  const std::vector<AttentionSpan> spans = spans_of_four_documents();
  ASSERT_EQ(spans.size(), 4u);
  for (int64_t i = 0; i < 4; ++i) {
    const AttentionSpan& s = spans[size_t(i)];
    EXPECT_EQ(std::pair(s.q_row, s.q_count), std::pair(3 * i, int64_t{3}));
    EXPECT_EQ(std::pair(s.k_row, s.k_count), std::pair(3 * i, int64_t{3}));
    EXPECT_EQ(s.sample, 40 + i / 2);
    EXPECT_EQ(s.q_position, s.k_position);
  }
}

// All queries, keys and values are alike, so what attention gives depends on what it drops alone.
TEST(BatchLoader, AttentionDropsOtherProbabilitiesInEveryDocument) {
  const std::vector<AttentionSpan> spans = spans_of_four_documents();
  constexpr int64_t kHeads = 4, kDim = 2, kRows = 2 * kSeq, kWidth = kHeads * kDim;
  std::vector<double> ones(size_t(kRows * kWidth), 1.0), o(ones.size()), lse(size_t(kRows * kHeads));
  const auto tensor = [](std::vector<double>& x, int64_t width) {
    return Tensor{x.data(), DType::f64, {kRows, width}, tokens(Spmd::Invariant)};
  };
  RefBackend(1).run(Attention{.q = tensor(ones, kWidth),
                              .k = tensor(ones, kWidth),
                              .v = tensor(ones, kWidth),
                              .o = tensor(o, kWidth),
                              .lse = tensor(lse, kHeads),
                              .spans = spans,
                              .heads = {.q = kHeads, .kv = kHeads, .dim = kDim, .total = kHeads},
                              .dropout = {.p = 0.5, .key = 7}});
  const auto document = [&](int64_t i) {
    return std::vector(o.begin() + i * 3 * kWidth, o.begin() + (i + 1) * 3 * kWidth);
  };
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < i; ++j) EXPECT_NE(document(i), document(j)) << "documents " << j << " and " << i;
}

// Rank 1 of 3 has the second and the last but one of six runs of each sequence, with their numbers in all of it.
TEST(BatchLoader, ARankHasItsRunsOfEverySequence) {
  constexpr int64_t kLong = 12;
  Arena arena("micro-batch", 1 << 12);
  MicroBatch b = alloc_micro_batch(arena, 2 * kLong / 3, DType::f32, {.further = true});
  b.sequences = {.seq_length = kLong, .ranks = {.size = 3, .rank = 1}};
  WholeSample sample(kLong);
  for (int32_t i = 0; i < kLong; ++i) {
    sample.ids[size_t(i)] = 100 + i;
    sample.targets[size_t(i)] = 200 + i;
    sample.positions[size_t(i)] = i % 5;
    sample.counted[size_t(i)] = uint8_t(i % 2);
    sample.further_counted[size_t(i)] = uint8_t(i % 3 == 0);
  }
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(set_sequence(b, i, sample, 1000 * i), 2);
  const std::vector<int32_t> here{2, 3, 8, 9, 2, 3, 8, 9};
  for (size_t row = 0; row < here.size(); ++row) {
    const int32_t at = here[row];
    EXPECT_EQ(b.ids.as<int32_t>()[row], 100 + at);
    EXPECT_EQ(b.targets.as<int32_t>()[row], 200 + at);
    EXPECT_EQ(b.positions.as<int32_t>()[row], at % 5);
    EXPECT_EQ(b.weights.as<float>()[row], float(at % 2));
    EXPECT_EQ(b.mtp_targets.as<int32_t>()[row], 201 + at);
    EXPECT_EQ(b.mtp_weights.as<float>()[row], float(at % 3 == 0));
    EXPECT_EQ(b.tokens.as<int64_t>()[row], (row < 4 ? 0 : 1000) + at);
  }
}

}  // namespace
}  // namespace weft
