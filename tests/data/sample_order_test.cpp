#include "weft/data/sample_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "data/data_support.h"
#include "token_files.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TempDir;

constexpr int64_t kSeq = 4;

// Tokens 0, 1, 2, ...: a token says where it lies.
std::string counting_file(const TempDir& dir, const std::string& name, int64_t n) {
  std::vector<int32_t> ids(size_t(n), 0);
  std::iota(ids.begin(), ids.end(), 0);
  testing::write_raw_tokens(dir / name, ids, "uint32");
  return (dir / name).string();
}
DataSpec spec_of(std::vector<std::string> paths) {
  DataSpec spec;
  spec.paths = std::move(paths);
  spec.dtype = "uint32";
  spec.vocab_size = 1 << 20;
  spec.seq_length = kSeq;
  spec.seed = 7;
  spec.shuffle = true;
  return spec;
}
struct Sample {
  std::vector<int32_t> ids = std::vector<int32_t>(kSeq), targets = ids;
  std::vector<uint8_t> counted = std::vector<uint8_t>(kSeq);
  std::vector<int32_t> positions = std::vector<int32_t>(kSeq);
  bool operator==(const Sample&) const = default;
};
template <class Source>
Sample read(const Source& source, int64_t k) {
  Sample s;
  source.read(k, {s.ids, s.targets, s.counted, s.positions});
  return s;
}

TEST(Permutation, IsOneForEverySizeAndDiffersByKey) {
  for (int64_t n : {1, 2, 3, 5, 16, 17, 100, 1000}) {
    std::set<int64_t> seen;
    const Permutation p(5, n), q(6, n);
    int64_t same = 0;
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_TRUE(p(i) >= 0 && p(i) < n);
      seen.insert(p(i));
      same += p(i) == q(i);
    }
    EXPECT_EQ(int64_t(seen.size()), n);
    EXPECT_LE(same, n / 10 + 8);  // about one is by chance
  }
}

// Over many keys, each place is as likely as any: mean and spread of where 0 goes.
TEST(Permutation, IsFairOverKeys) {
  constexpr int64_t kKeys = 4000;
  for (int64_t n : {2, 3, 7, 20}) {
    std::vector<int64_t> times(size_t(n), 0);
    for (int64_t key = 0; key < kKeys; ++key) ++times[size_t(Permutation(uint64_t(key), n)(0))];
    const double expected = double(kKeys) / double(n);
    for (int64_t t : times) EXPECT_NEAR(double(t), expected, 5 * std::sqrt(expected)) << n;
  }
}

TEST(Permutation, OfAHugeRangeStaysInIt) {
  const int64_t n = (int64_t(1) << 61) + 12345;
  const Permutation p(3, n);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) seen.insert(p(n - 1 - i));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_TRUE(*seen.begin() >= 0 && *seen.rbegin() < n);
}

TEST(Mixture, KeepsSharesAtEveryPointAndWalksEachSourceInOrder) {
  for (const std::vector<double>& weights : std::vector<std::vector<double>>{
           {1}, {1, 1}, {0.25, 0.75}, {3, 1, 2}, {1, 1e-3, 1}, {0, 1, 0, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}) {
    const Mixture mixture(weights);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<int64_t> had(weights.size(), 0);
    for (int64_t k = 0; k < 20000; ++k) {
      const auto [source, index] = mixture(k);
      ASSERT_EQ(index, had[source]++) << k;  // none left out, none twice
      for (size_t s = 0; s < weights.size(); ++s)
        ASSERT_LE(std::abs(double(had[s]) - weights[s] / all * double(k + 1)), 1 + std::log2(double(weights.size())));
    }
  }
}

TEST(Mixture, SaysHowManySamplesEachSourceHasHad) {
  for (const std::vector<double>& weights :
       std::vector<std::vector<double>>{{1}, {1, 2}, {0.5, 0, 0.25}, {3, 1, 2, 0.1, 7}, {0, 1}}) {
    const Mixture mixture(weights);
    std::vector<int64_t> counts(weights.size());
    for (int64_t n = 0; n < 50; ++n) {
      EXPECT_EQ(mixture.dealt(n), counts) << n;
      ++counts[mixture(n).source];
    }
  }
}

TEST(Mixture, IsExactFarOut) {
  const Mixture mixture({1, 2});
  const int64_t far = int64_t(3) << 40;
  for (int64_t k = far; k < far + 3; ++k) {
    const auto [source, index] = mixture(k);
    EXPECT_NEAR(double(index), double(far / 3 * (source == 0 ? 1 : 2)), 2) << k;
  }
}

TEST(Mixture, RefusesSharesThatAreNone) {
  EXPECT_THROW(Mixture({0, 0}), ConfigError);
  EXPECT_THROW(Mixture({1, -1}), ConfigError);
  EXPECT_THROW(Mixture({1, std::nan("")}), ConfigError);
  EXPECT_THROW(Mixture({1, INFINITY}), ConfigError);
  EXPECT_THROW(Mixture({1e308, 1e308}), ConfigError);
}

TEST(SampleOrder, EverySampleOnceAnEpochAndAnotherOrderInTheNext) {
  TempDir dir;
  const SampleOrder order(spec_of({counting_file(dir, "a.bin", 403), counting_file(dir, "b.bin", 30)}));
  EXPECT_EQ(order.samples_per_epoch(), 100 + 7);  // floor((n - 1) / S)
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<int32_t, int> seen;
    orders.emplace_back();
    for (int64_t i = 0; i < 107; ++i) {
      const Sample s = read(order, epoch * 107 + i);
      EXPECT_EQ(s.targets[0], s.ids[0] + 1);
      ++seen[s.ids[0]];
      orders.back().push_back(s.ids[0]);
    }
    for (const auto& [first, times] : seen)
      EXPECT_EQ(times, first < 28 ? 2 : 1) << first;  // b.bin begins as a.bin does
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

// Any split over ranks and any restart see the same samples: a sample is a function of its number alone.
TEST(SampleOrder, SeekingEqualsWalkingInAnotherProcessOfAnyLayout) {
  TempDir dir;
  const DataSpec spec = spec_of({counting_file(dir, "a.bin", 4001)});
  const SampleOrder one(spec), other(spec);
  std::vector<Sample> walked;
  for (int64_t k = 0; k < 48; ++k) walked.push_back(read(one, k));
  for (int64_t dp : {1, 2, 3, 4, 6}) {
    for (int64_t rank = dp; rank-- > 0;) {
      for (int64_t k = rank; k < 48; k += dp) EXPECT_EQ(read(other, k), walked[size_t(k)]);
    }
  }
}

TEST(SampleOrder, SequentialFollowsTheFile) {
  TempDir dir;
  DataSpec spec = spec_of({counting_file(dir, "a.bin", 41)});
  spec.shuffle = false;
  const SampleOrder order(spec);
  EXPECT_EQ(read(order, 3).ids, (std::vector<int32_t>{12, 13, 14, 15}));
  EXPECT_EQ(read(order, 3).targets, (std::vector<int32_t>{13, 14, 15, 16}));
  EXPECT_EQ(read(order, 10), read(order, 0));  // the next epoch
}

TEST(SampleOrder, WeightsAreKeptExactlyAndEpochsOfEachSourceToo) {
  TempDir dir;
  DataSpec spec = spec_of({counting_file(dir, "a.bin", 201), counting_file(dir, "b.bin", 4001)});
  spec.weights = {0.25, 0.75};
  const SampleOrder order(spec);
  int64_t of_a = 0;
  std::map<int64_t, int> seen;
  for (int64_t k = 0; k < 4096; ++k) {
    const auto place = order.place_of(k);
    if (place.source != 0) continue;
    ++of_a;
    ++seen[place.sample];
    if (of_a % 50 == 0) {
      for (const auto& [sample, times] : seen) EXPECT_EQ(times, of_a / 50) << sample;  // each once an epoch
    }
  }
  EXPECT_EQ(of_a, 1024);
}

// They share its weight by their samples.
TEST(SampleOrder, FilesOfOneSourceAreWalkedAsOne) {
  TempDir dir;
  const std::string a = counting_file(dir, "a.bin", 201), b = counting_file(dir, "b.bin", 29),
                    c = counting_file(dir, "c.bin", 801);
  DataSpec spec = spec_of({c, a, b});
  spec.weights = {0.75, 0.25};
  spec.files_of_source = {1, 2};
  const SampleOrder order(spec);
  std::vector<int64_t> times(3, 0);
  std::map<std::pair<size_t, int64_t>, int> seen;
  for (int64_t k = 0; k < 57 * 16; ++k) {  // 50 + 7 samples in a and b
    const auto place = order.place_of(k);
    ++times[place.source];
    if (place.source == 0) continue;
    const int epoch = int((times[1] + times[2] - 1) / 57);
    EXPECT_EQ((seen[{place.source, place.sample}]++), epoch);  // each once before any again
  }
  EXPECT_EQ(times, (std::vector<int64_t>{57 * 12, 50 * 4, 7 * 4}));
  DataSpec alone = spec;
  alone.files_of_source = {2, 1};
  EXPECT_NE(SampleOrder(alone).fingerprint(), order.fingerprint());
  spec.paths = {c, a};
  spec.files_of_source = {1, 1};
  const std::string each_one = SampleOrder(spec).fingerprint();
  spec.files_of_source.clear();
  EXPECT_EQ(SampleOrder(spec).fingerprint(), each_one);  // files with a weight each, as they always were
}

// The last file that a dataset has of a source may be as short as it likes.
TEST(SampleOrder, AFileOfASourceMayHaveNoSampleWhereAnotherHasOne) {
  TempDir dir;
  DataSpec spec =
      spec_of({counting_file(dir, "a.bin", 41), counting_file(dir, "b.bin", 2), counting_file(dir, "c.bin", 9)});
  EXPECT_SAYS(error_of([&] { SampleOrder{spec}; }), "b.bin: 2 tokens give no training sample");
  for (const std::vector<double>& weights : {std::vector<double>{}, std::vector<double>{1, 1}}) {
    spec.weights = weights;
    spec.files_of_source = {2, 1};
    for (const double fraction : {0.0, 0.3}) {
      spec.valid_fraction = fraction;
      const SampleOrder order(spec);
      std::set<size_t> files;
      for (int64_t k = 0; k < 100; ++k) files.insert(order.place_of(k).source);
      EXPECT_EQ(files, (std::set<size_t>{0, 2}));
    }
    EXPECT_EQ(EvalWindows(spec).num_windows(), 3 + 1);
    spec.valid_fraction = 0;
    EXPECT_EQ(EvalWindows(spec).num_windows(), 10 + 1 + 2);
    spec.files_of_source = {1, 2};
    EXPECT_EQ(SampleOrder(spec).samples_per_epoch(), 12);
  }
}

TEST(SampleOrder, AMaskSaysWhichTargetsCount) {
  TempDir dir;
  DataSpec spec = spec_of({counting_file(dir, "a.bin", 9)});
  spec.shuffle = false;
  testing::spill(dir / "mask.bin", std::string("\1\0\0\1\0\0\0\1\1", 9));
  spec.loss_mask = (dir / "mask.bin").string();
  const SampleOrder order(spec);
  EXPECT_EQ(read(order, 0).counted, (std::vector<uint8_t>{1, 0, 0, 1}));
  EXPECT_EQ(order.counted_targets(0), 2);
  EXPECT_EQ(order.counted_targets(1), 1);
}

TEST(SampleOrder, WhatIsHeldOutIsNeverATargetOfTraining) {
  TempDir dir;
  DataSpec spec = spec_of({counting_file(dir, "a.bin", 403)});
  spec.valid_fraction = 0.1;
  const SampleOrder order(spec);
  const EvalWindows held(spec);
  std::set<int32_t> trained, measured;
  for (int64_t k = 0; k < order.samples_per_epoch(); ++k)
    for (int32_t t : read(order, k).targets) trained.insert(t);
  for (int64_t w = 0; w < held.num_windows(); ++w) {
    const Sample s = read(held, w);
    for (size_t j = 0; j < kSeq; ++j)
      if (s.counted[j]) measured.insert(s.targets[j]);
  }
  EXPECT_EQ(order.samples_per_epoch(), 90);
  EXPECT_EQ(trained.size() + measured.size(), 402u);  // every token but the first, once
  for (int32_t t : measured) EXPECT_EQ(trained.count(t), 0u);
}

TEST(SampleOrder, OfTheHeldOutPartIsTheRest) {
  TempDir dir;
  DataSpec spec = spec_of({counting_file(dir, "a.bin", 403), counting_file(dir, "b.bin", 43)});
  for (const std::vector<double>& weights : {std::vector<double>{}, std::vector<double>{1, 1}}) {
    spec.weights = weights;
    for (double fraction : {0.001, 0.1, 0.5, 0.99}) {
      spec.valid_fraction = fraction;
      spec.part = DataSpec::Part::train;
      const SampleOrder train(spec);
      spec.part = DataSpec::Part::valid;
      const SampleOrder valid(spec);
      std::set<std::pair<size_t, int64_t>> of_train, of_valid;
      for (int64_t k = 0; k < 40 * 110; ++k) {
        const auto a = train.place_of(k), b = valid.place_of(k);
        of_train.insert({a.source, a.sample});
        of_valid.insert({b.source, b.sample});
      }
      for (const auto& place : of_valid) EXPECT_EQ(of_train.count(place), 0u);
      EXPECT_EQ(of_train.size() + of_valid.size(), 100u + 10u);
      EXPECT_EQ(train.samples_per_epoch() + valid.samples_per_epoch(), 110);
      EXPECT_NE(train.fingerprint(), valid.fingerprint());
    }
  }
}

TEST(SampleOrder, SettingsThatCannotBeAreRefused) {
  TempDir dir;
  const DataSpec good = spec_of({counting_file(dir, "a.bin", 41), counting_file(dir, "b.bin", 41)});
  const auto refused = [&](auto change) {
    DataSpec spec = good;
    change(spec);
    return error_of([&] { SampleOrder{spec}; });
  };
  EXPECT_SAYS(refused([](DataSpec& s) { s.paths.clear(); }), "no file is named");
  EXPECT_SAYS(refused([](DataSpec& s) { s.seq_length = 0; }), "seq_length is 0");
  EXPECT_SAYS(refused([](DataSpec& s) { s.valid_fraction = 1; }), "valid_fraction is 1");
  EXPECT_SAYS(refused([](DataSpec& s) { s.weights = {1}; }), "1 shares for 2 sources");
  EXPECT_SAYS(refused([](DataSpec& s) { s.loss_mask = "m"; }), "belongs to one token file, but there are 2");
  EXPECT_SAYS(refused([](DataSpec& s) { s.dtype = "float"; }), "\"float\"");
  EXPECT_SAYS(refused([](DataSpec& s) { s.seq_length = 41; }), "41 tokens give no training sample of 41");
  EXPECT_SAYS(refused([](DataSpec& s) { s.seq_length = 40, s.valid_fraction = 0.1; }), "beside those held out");
}

TEST(EvalWindows, AreAllOfTheSourceWithAMask) {
  TempDir dir;
  DataSpec spec = spec_of({counting_file(dir, "a.bin", 7)});
  testing::spill(dir / "mask.bin", std::string("\1\0\1\1\0\1\1", 7));
  spec.loss_mask = (dir / "mask.bin").string();
  const EvalWindows windows(spec);
  ASSERT_EQ(windows.num_windows(), 2);
  EXPECT_EQ(read(windows, 0).counted, (std::vector<uint8_t>{1, 0, 1, 1}));
  EXPECT_EQ(read(windows, 1).counted, (std::vector<uint8_t>{0, 1, 0, 0}));  // 6 targets, then filled up
}

TEST(EvalWindows, OfASourceOfOneTokenAreRefused) {
  TempDir dir;
  EXPECT_SAYS(error_of([&] { EvalWindows{spec_of({counting_file(dir, "a.bin", 1)})}; }), "1 tokens give nothing");
}

TEST(EvalWindows, EveryTokenButTheFirstIsATargetOnce) {
  TempDir dir;
  for (int64_t n : {2, 5, 6, 9, 11}) {
    const EvalWindows windows(spec_of({counting_file(dir, "a.bin", n)}));
    std::vector<int32_t> targets;
    for (int64_t w = 0; w < windows.num_windows(); ++w) {
      const Sample s = read(windows, w);
      for (size_t j = 0; j < kSeq; ++j)
        if (s.counted[j]) targets.push_back(s.targets[j]);
    }
    std::vector<int32_t> all(size_t(n - 1), 0);
    std::iota(all.begin(), all.end(), 1);
    EXPECT_EQ(targets, all);
  }
}

TEST(SampleOrder, TheFingerprintChangesWithTheDataAndItsOrder) {
  TempDir dir;
  DataSpec spec = spec_of({counting_file(dir, "a.bin", 403)});
  const std::string before = SampleOrder(spec).fingerprint();
  EXPECT_EQ(SampleOrder(spec).fingerprint(), before);
  spec.seed = 8;
  EXPECT_NE(SampleOrder(spec).fingerprint(), before);
  spec.seed = 7;
  std::string bytes = testing::slurp(dir / "a.bin");
  bytes[100] = 77;
  testing::spill(dir / "a.bin", bytes);
  EXPECT_NE(SampleOrder(spec).fingerprint(), before);
  testing::spill(dir / "mask.bin", std::string(403, 1));
  spec.loss_mask = (dir / "mask.bin").string();
  const std::string masked = SampleOrder(spec).fingerprint();
  testing::spill(dir / "mask.bin", std::string(402, 1) + std::string(1, 0));
  EXPECT_NE(SampleOrder(spec).fingerprint(), masked);
}

// Behind an earlier phase of a run: of each source, those samples come that would have come next.
TEST(SampleOrder, GoesOnBehindWhatWasReadOfEachSource) {
  const TempDir dir;
  DataSpec spec = spec_of({counting_file(dir, "a.bin", 41), counting_file(dir, "b.bin", 29)});
  spec.weights = {1, 2};
  const SampleOrder whole(spec);
  spec.begun = {5, 9};
  spec.weights = {3, 1};
  const SampleOrder later(spec);
  EXPECT_NE(later.fingerprint(), whole.fingerprint());
  EXPECT_NE(later.order_fingerprint(), whole.order_fingerprint());
  std::vector<std::vector<SampleOrder::Place>> of_whole(2), of_later(2);
  for (int64_t k = 0; k < 60; ++k) {
    const auto a = whole.place_of(k), b = later.place_of(k);
    of_whole[a.source].push_back(a);
    of_later[b.source].push_back(b);
  }
  for (size_t source = 0; source < 2; ++source)
    for (size_t i = 0; i < 10; ++i)
      EXPECT_EQ(of_later[source][i].sample, of_whole[source][i + size_t(spec.begun[source])].sample) << source;
  spec = spec_of(spec.paths);
  const SampleOrder all(spec);
  spec.begun = {7};
  const SampleOrder rest(spec);
  for (int64_t k = 0; k < 30; ++k) EXPECT_EQ(read(rest, k), read(all, k + 7));
}

}  // namespace
}  // namespace weft
