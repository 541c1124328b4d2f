// How documents become samples.
#include "weft/data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "data/data_support.h"
#include "token_files.h"
#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/data/sample_order.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TempDir;
using Documents = std::vector<std::vector<int32_t>>;

// Tokens 1, 2, 3, ... in documents of these sizes: a token says where it lies.
Documents documents_of(const std::vector<int64_t>& sizes) {
  Documents all;
  int32_t next = 1;
  for (int64_t size : sizes) {
    all.emplace_back(size_t(size), 0);
    std::iota(all.back().begin(), all.back().end(), next);
    next += int32_t(size);
  }
  return all;
}
std::vector<int64_t> random_sizes(int64_t n, int64_t most, uint64_t seed) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < n; ++i)
    sizes.push_back(random_bits(rng_key(seed, "sizes"), uint64_t(i)) % uint32_t(most + 1));
  return sizes;
}

DataSpec spec_of(const std::vector<std::string>& paths, PackingKind packing, bool apart, int64_t seq_length) {
  DataSpec spec;
  spec.paths = paths;
  spec.vocab_size = 1 << 30;
  spec.seq_length = seq_length;
  spec.packing = packing;
  spec.documents_apart = apart;
  return spec;
}

struct PackedSample {
  std::vector<int32_t> ids, targets, positions;
  std::vector<uint8_t> counted;
  bool operator==(const PackedSample&) const = default;
};
template <class Source>
PackedSample read(const Source& source, int64_t k, int64_t seq_length) {
  const size_t n = size_t(seq_length);
  PackedSample s{std::vector<int32_t>(n, -1), std::vector<int32_t>(n, -1), std::vector<int32_t>(n, -1),
                 std::vector<uint8_t>(n, 7)};
  source.read(k, {s.ids, s.targets, s.counted, s.positions});
  return s;
}

// A pair of such documents, packed.
struct Packed {
  Packed(const std::vector<int64_t>& sizes, int64_t seq_length, PackingKind kind = PackingKind::first_fit)
      : documents(documents_of(sizes)), seq_length(seq_length) {
    testing::write_megatron_tokens(dir / "a", documents, "int32");
    source = open_megatron_tokens(dir / "a", 0);
    packing = std::make_unique<Packing>(*source, Packing::Spec{kind, true, seq_length});
  }
  std::vector<std::string> paths() const { return {(dir / "a").string()}; }

  TempDir dir;
  Documents documents;
  int64_t seq_length;
  std::unique_ptr<TokenSource> source;
  std::unique_ptr<Packing> packing;
};

TEST(Packing, FirstFitPutsADocumentIntoTheFirstSampleWithRoom) {
  const Packed p({5, 4, 3, 4, 2}, 8);
  ASSERT_EQ(p.packing->num_samples(), 3);
  using Segments = std::vector<Packing::Segment>;
  EXPECT_EQ(p.packing->segments(0), (Segments{{0, 5, 0, true}, {9, 3, 5, true}}));
  EXPECT_EQ(p.packing->segments(1), (Segments{{5, 4, 0, true}, {12, 4, 4, true}}));
  EXPECT_EQ(p.packing->segments(2), (Segments{{16, 2, 0, true}}));
}

TEST(Packing, FirstFitSplitsWhatIsLongerThanASampleAndPacksTheRest) {
  const Packed p({3, 21, 16, 4}, 8);
  using Segments = std::vector<Packing::Segment>;
  ASSERT_EQ(p.packing->num_samples(), 6);
  EXPECT_EQ(p.packing->segments(0), (Segments{{0, 3, 0, true}, {19, 5, 3, true}}));
  EXPECT_EQ(p.packing->segments(1), (Segments{{3, 8, 0, false}}));
  EXPECT_EQ(p.packing->segments(2), (Segments{{11, 8, 0, false}}));
  EXPECT_EQ(p.packing->segments(3), (Segments{{24, 8, 0, false}}));
  EXPECT_EQ(p.packing->segments(4), (Segments{{32, 8, 0, true}}));
  EXPECT_EQ(p.packing->segments(5), (Segments{{40, 4, 0, true}}));
}

// Many documents, so that there are several groups of them: a model of what the header says, without any.
TEST(Packing, FirstFitHasEveryTokenOnceAndKeepsDocumentsWhole) {
  for (const int64_t seq_length : {7, 64}) {
    const Packed p(random_sizes(4000, seq_length * 3 / 2, uint64_t(seq_length)), seq_length);
    std::map<int64_t, int64_t> samples_of;  // by the token that a document, or its rest, begins with
    std::vector<int> times(size_t(p.source->size()), 0);
    for (int64_t i = 0; i < p.packing->num_samples(); ++i) {
      int64_t row = 0;
      for (const Packing::Segment& segment : p.packing->segments(i)) {
        EXPECT_EQ(segment.row, row);
        row += segment.size;
        for (int64_t t = segment.begin; t < segment.begin + segment.size; ++t) ++times[size_t(t)];
        const int64_t d = p.packing->document_of(segment.begin), begin = p.source->document_begin(d);
        EXPECT_EQ((segment.begin - begin) % seq_length, 0);  // whole, or cut every S tokens
        EXPECT_EQ(segment.size, std::min(seq_length, p.source->document_begin(d + 1) - segment.begin));
      }
      EXPECT_GT(row, 0);
      EXPECT_LE(row, seq_length);
    }
    EXPECT_EQ(std::set<int>(times.begin(), times.end()), std::set<int>{1});
  }
}

// What is left empty, for documents of a tenth of a sample.
TEST(Packing, FirstFitLeavesLittleEmpty) {
  const Packed p(random_sizes(8000, 200, 3), 1000);
  const double full = double(p.source->size()) / double(p.packing->num_samples() * p.seq_length);
  EXPECT_GT(full, 0.97);
}

TEST(Packing, DocumentsKeptApartBeginAtPositionZero) {
  const Packed p({5, 0, 4, 3}, 4, PackingKind::concatenate_and_split);
  const SampleOrder order(spec_of(p.paths(), PackingKind::concatenate_and_split, true, 4));
  ASSERT_EQ(order.samples_per_epoch(), 2);
  EXPECT_EQ(read(order, 0, 4), (PackedSample{{1, 2, 3, 4}, {2, 3, 4, 5}, {0, 1, 2, 3}, {1, 1, 1, 1}}));
  EXPECT_EQ(read(order, 1, 4), (PackedSample{{5, 6, 7, 8}, {6, 7, 8, 9}, {0, 0, 1, 2}, {0, 1, 1, 1}}));
  EXPECT_EQ(order.counted_targets(1), 3);
}

TEST(Packing, WhatStaysEmptyCountsForNothing) {
  const Packed p({3, 2}, 8);
  for (const bool apart : {false, true}) {
    const SampleOrder order(spec_of(p.paths(), PackingKind::first_fit, apart, 8));
    const PackedSample s = read(order, 0, 8);
    EXPECT_EQ(s.ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 0, 0, 0}));
    EXPECT_EQ(s.counted, (std::vector<uint8_t>{1, 1, 0, 1, 0, 0, 0, 0}));
    EXPECT_EQ(s.positions,
              apart ? (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 1, 2}) : (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(order.counted_targets(0), 3);
  }
}

// With or without a mask; of documents kept apart or not.
TEST(Packing, WhatCountsOfADocumentWeighsOneTogether) {
  const auto weights_of = [](const SampleOrder& order, int64_t k) {
    std::vector<double> weights(8, 9);
    std::vector<int32_t> rows(8);
    std::vector<uint8_t> counted(8);
    order.read(k, {.ids = rows, .targets = rows, .counted = counted, .positions = rows, .weights = weights});
    return weights;
  };
  const Packed p({3, 1, 3, 5}, 8);
  for (const bool apart : {false, true}) {
    const SampleOrder order(spec_of(p.paths(), PackingKind::first_fit, apart, 8));
    EXPECT_EQ(weights_of(order, 0), (std::vector<double>{0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0}));
    EXPECT_EQ(weights_of(order, 1), (std::vector<double>{0.25, 0.25, 0.25, 0.25, 0, 0, 0, 0}));
    EXPECT_EQ(order.counted(0).documents, 2) << "of a document of one token nothing counts";
    EXPECT_EQ(order.counted(1).documents, 1);
  }
  testing::spill(p.dir / "a.mask", std::string("\1\0\0\1\0\0\0\0\1\1\1\0", 12));
  const SampleOrder masked(spec_of(p.paths(), PackingKind::first_fit, true, 8));
  EXPECT_EQ(weights_of(masked, 0), (std::vector<double>{1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(weights_of(masked, 1), (std::vector<double>{0, 1.0 / 3, 1.0 / 3, 1.0 / 3, 0, 0, 0, 0}));
  EXPECT_EQ(masked.counted(0).documents, 1);
}

// The mask beside a pair needs no key.
TEST(Packing, AMaskBesideAPairIsUsed) {
  const Packed p({3, 4}, 8);
  testing::spill(p.dir / "a.mask", std::string("\0\1\0\0\0\1\0", 7));
  const SampleOrder order(spec_of(p.paths(), PackingKind::first_fit, true, 8));
  EXPECT_EQ(read(order, 0, 8).counted, (std::vector<uint8_t>{0, 1, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(order.counted_targets(0), 2);
  testing::spill(p.dir / "a.mask", "\1");
  EXPECT_SAYS(error_of([&] { SampleOrder{spec_of(p.paths(), PackingKind::first_fit, true, 8)}; }),
              "1 bytes for the 7 tokens");
}

std::vector<uint8_t> further_of(const SampleOrder& order, int64_t k, int64_t seq_length) {
  const auto n = size_t(seq_length);
  std::vector<int32_t> ids(n), targets(n), positions(n);
  std::vector<uint8_t> counted(n), further(n, 7);
  order.read(k, {ids, targets, counted, positions, further});
  EXPECT_EQ(order.counted(k).further, std::count(further.begin(), further.end(), uint8_t(1)));
  return further;
}

TEST(Packing, TokensAfterTargetsCountWithinADocumentAndASample) {
  using Rows = std::vector<uint8_t>;
  const Packed p({4, 2, 1}, 8);
  for (const bool apart : {false, true}) {
    const SampleOrder order(spec_of(p.paths(), PackingKind::first_fit, apart, 8));
    EXPECT_EQ(further_of(order, 0, 8), (Rows{1, 1, 0, 0, 0, 0, 0, 0}));
  }
  const Packed q({9, 9}, 4);
  const SampleOrder apart(spec_of(q.paths(), PackingKind::concatenate_and_split, true, 4)),
      together(spec_of(q.paths(), PackingKind::concatenate_and_split, false, 4));
  for (const int64_t k : {0, 1, 2, 3}) EXPECT_EQ(further_of(together, k, 4), (Rows{1, 1, 1, 0})) << k;
  EXPECT_EQ(further_of(apart, 2, 4), (Rows{0, 1, 1, 0}));
  EXPECT_EQ(further_of(apart, 3, 4), (Rows{1, 1, 1, 0}));
  testing::spill(q.dir / "a.mask", std::string("\1\1\0\1\1\1\1\1\1", 9) + std::string(9, '\1'));
  const SampleOrder masked(spec_of(q.paths(), PackingKind::concatenate_and_split, true, 4));
  EXPECT_EQ(further_of(masked, 0, 4), (Rows{1, 0, 1, 0}));
  EXPECT_EQ(further_of(masked, 2, 4), (Rows{0, 1, 1, 0}));
}

TEST(Packing, EveryTokenButTheFirstOfADocumentIsATargetOnce) {
  const Packed p(random_sizes(50, 20, 5), 8);
  std::vector<int32_t> expected;
  for (const auto& d : p.documents)
    for (size_t i = 1; i < d.size(); ++i) expected.push_back(d[i]);
  for (const PackingKind kind : {PackingKind::concatenate_and_split, PackingKind::first_fit}) {
    const EvalWindows windows(spec_of(p.paths(), kind, true, 8));
    std::vector<int32_t> targets;
    for (int64_t w = 0; w < windows.num_windows(); ++w) {
      const PackedSample s = read(windows, w, 8);
      for (size_t j = 0; j < 8; ++j)
        if (s.counted[j]) targets.push_back(s.targets[j]);
    }
    std::sort(targets.begin(), targets.end());
    EXPECT_EQ(targets, expected);
  }
}

// Ranks of any layout, and a run that begins in the middle, see the same samples: they are functions of their number.
TEST(Packing, SeekingEqualsWalkingForEveryPacking) {
  const Packed p(random_sizes(300, 30, 9), 16);
  for (const PackingKind kind : {PackingKind::concatenate_and_split, PackingKind::first_fit}) {
    for (const bool apart : {false, true}) {
      DataSpec spec = spec_of(p.paths(), kind, apart, 16);
      spec.shuffle = true, spec.seed = 3, spec.valid_fraction = 0.1;
      const SampleOrder one(spec), other(spec);
      std::vector<PackedSample> walked;
      const int64_t n = 2 * one.samples_per_epoch() + 3;
      for (int64_t k = 0; k < n; ++k) walked.push_back(read(one, k, 16));
      for (const int64_t dp : {2, 3, 8})
        for (int64_t rank = dp; rank-- > 0;)
          for (int64_t k = rank; k < n; k += dp) ASSERT_EQ(read(other, k, 16), walked[size_t(k)]) << k;
      std::multiset<int32_t> trained;
      for (int64_t k = 0; k < one.samples_per_epoch(); ++k)
        for (int32_t id : walked[size_t(k)].ids)
          if (id != 0) trained.insert(id);
      for (int32_t id : trained) ASSERT_EQ(trained.count(id), 1u);  // each once an epoch
    }
  }
}

TEST(Packing, TheFingerprintSaysHowDocumentsArePacked) {
  const Packed p({3, 20}, 4);
  std::set<std::string> different;
  for (const PackingKind kind : {PackingKind::concatenate_and_split, PackingKind::first_fit})
    for (const bool apart : {false, true})
      different.insert(SampleOrder(spec_of(p.paths(), kind, apart, 4)).fingerprint());
  EXPECT_EQ(different.size(), 4u);
}

TEST(Packing, WhatIsHeldOutIsNotTrained) {
  const Packed p(random_sizes(100, 12, 2), 8);
  DataSpec spec = spec_of(p.paths(), PackingKind::first_fit, true, 8);
  spec.valid_fraction = 0.2;
  const SampleOrder train(spec);
  const EvalWindows valid(spec);
  std::set<int32_t> trained;
  for (int64_t k = 0; k < train.samples_per_epoch(); ++k)
    for (int32_t id : read(train, k, 8).ids) trained.insert(id);
  EXPECT_EQ(train.samples_per_epoch() + valid.num_windows(), p.packing->num_samples());
  for (int64_t w = 0; w < valid.num_windows(); ++w)
    for (int32_t id : read(valid, w, 8).ids) EXPECT_TRUE(id == 0 || trained.count(id) == 0) << id;
}

TEST(Packing, TextAndJsonLinesTellDocumentsApart) {
  TempDir dir;
  testing::spill(dir / "a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n");
  DataSpec spec = spec_of({(dir / "a.jsonl").string()}, PackingKind::first_fit, true, 6);
  spec.vocab_size = 257;
  const SampleOrder order(spec);
  EXPECT_EQ(read(order, 0, 6).ids, (std::vector<int32_t>{'a', 'b', 256, 'c', 256, 0}));
  EXPECT_EQ(read(order, 0, 6).positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 0}));
}

TEST(Packing, RawIdsTellNoDocumentsApartAndAreRefused) {
  TempDir dir;
  testing::write_raw_tokens(dir / "a.bin", std::vector<int32_t>(40, 1), "uint16");
  const std::vector<std::string> paths{(dir / "a.bin").string()};
  EXPECT_SAYS(error_of([&] { SampleOrder{spec_of(paths, PackingKind::first_fit, false, 4)}; }),
              "does not say where documents begin, which data.packing = \"first-fit\" needs");
  EXPECT_SAYS(error_of([&] { SampleOrder{spec_of(paths, PackingKind::concatenate_and_split, true, 4)}; }),
              "data.attn_mask_type = \"block_causal\" needs");
}

// Stanford CS336's samples of five instructions, made by its own packing.
TEST(Packing, ConcatenatesAndSplitsAsCs336Does) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers";
  const auto tokenizer = read_tokenizer(folder / "llama3/tokenizer.model");
  TempDir dir;
  Documents documents;
  std::istringstream lines(testing::slurp(folder / "chat_templates/cs336_sft_sample.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    documents.emplace_back();
    tokenizer->encode(
        "<|begin_of_text|>Below is an instruction that describes a task. Write a response that "
        "appropriately completes the request.\n\n### Instruction:\n" +
            json["prompt"].get<std::string>() + "\n\n### Response:\n" + json["response"].get<std::string>() +
            "<|end_of_text|>",
        documents.back(), SpecialText::kParsed);
  }
  testing::write_megatron_tokens(dir / "a", documents, "int32");
  const SampleOrder order(spec_of({(dir / "a").string()}, PackingKind::concatenate_and_split, false, 32));
  const auto expected =
      nlohmann::json::parse(testing::slurp(folder / "chat_templates/cs336_tokenized_sft_sample.json"));
  ASSERT_EQ(order.samples_per_epoch(), int64_t(expected.size()));
  for (size_t k = 0; k < expected.size(); ++k) {
    const PackedSample s = read(order, int64_t(k), 32);
    EXPECT_EQ(s.ids, expected[k]["input_ids"].get<std::vector<int32_t>>()) << k;
    EXPECT_EQ(s.targets, expected[k]["labels"].get<std::vector<int32_t>>()) << k;
  }
}

TEST(Packing, NoDocumentWithTokensGivesNoSample) {
  const Packed p({0, 0}, 4);
  EXPECT_EQ(p.packing->num_samples(), 0);
  EXPECT_SAYS(error_of([&] { SampleOrder{spec_of(p.paths(), PackingKind::first_fit, true, 4)}; }),
              "fill 0 samples of 4");
}

}  // namespace
}  // namespace weft
