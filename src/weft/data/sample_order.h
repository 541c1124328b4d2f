// The order in which a run sees its data: a pure function of the seed and the global number of a sample
// (docs/formats/sample_order.md).
//   S  tokens of a sample (seq_length)
//
// Global sample k is the same on any layout, and after any restart; nothing is remembered. Without weights, all files
// together are one source, each sample once an epoch; with them, each source, of one file or several, is walked by
// itself, its samples once each before any comes again.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/data/training_samples.h"

namespace weft {

// All of some text, once, in windows, for measuring a loss exactly. Consecutive windows of seq_length over each source
// (over its held-out samples where valid_fraction is given), or the samples of its packing. Every token but the first
// of a source (or, where documents are packed or kept apart, of a document) is a target once; what is not full is
// filled up with targets that do not count. Immutable; any thread may read.
class EvalWindows {
 public:
  // Weights, seed and shuffling of `spec` do not matter here. Throws FileError, ConfigError: also where a source has
  // nothing to measure.
  explicit EvalWindows(const DataSpec& spec);

  int64_t num_windows() const { return ends_.empty() ? 0 : ends_.back(); }
  // Throws as SampleOrder::read.
  void read(int64_t window, const SampleRows& to) const;

 private:
  std::vector<OpenSource> sources_;
  std::vector<int64_t> ends_;  // windows of sources 0 .. s
  int64_t seq_length_;
};

std::unique_ptr<EvalWindows> open_eval_windows(const DataSpec& spec);

// Which source each sample of a weighted mixture is from.
//   p  share of a source, all shares together 1

// Deals samples 0, 1, 2, ... to sources, evenly mixed: after any k samples, each source has had p k of them to within
// 1 + log2(sources), and p k in the long run. A pure function in O(log(sources)): a binary tree of splits in two.
class Mixture {
 public:
  // Weights that are finite and at least 0, some above 0; only their ratios count. Throws ConfigError.
  explicit Mixture(const std::vector<double>& weights);

  struct Turn {
    size_t source;
    int64_t index;  // how many samples the source had before
  };
  Turn operator()(int64_t sample) const;
  // How many of samples 0 .. n - 1 each source has.
  std::vector<int64_t> dealt(int64_t n) const;

 private:
  struct Node {  // sources [first, last)
    size_t first, last, middle;
    uint64_t left;  // share of [first, middle) in this node, in 2^-63
  };
  size_t split(const std::vector<double>& weights, size_t first, size_t last);

  // In depth-first order: the left child of node n is n + 1, the right one n + 2 (middle - first), for a tree over m
  // sources has 2 m - 1 nodes.
  std::vector<Node> nodes_;
};

// A permutation of 0 .. n - 1: a Feistel network on the next power of four, walked until it lands below n. O(1) in time
// (four walks at most on average) and memory. Another key, another order.
class Permutation {
 public:
  Permutation(uint64_t key, int64_t n);
  int64_t operator()(int64_t i) const;  // 0 <= i < n

 private:
  uint64_t key_;
  int64_t n_;
  int half_bits_;
};

// Immutable; any thread may read.
class SampleOrder final : public TrainingSamples {
 public:
  // Throws FileError, ConfigError: also where a source has not one sample.
  explicit SampleOrder(const DataSpec& spec);

  // Global sample >= 0. Throws as OpenSource::read.
  void read(int64_t global_sample, const SampleRows& to) const override;
  OpenSource::Counted counted(int64_t global_sample) const override;
  int64_t counted_targets(int64_t global_sample) const { return counted(global_sample).targets; }

  int64_t samples_per_epoch() const override;
  // It sees the size of a file above 64 MiB and 64 pieces of a MiB of it, so that a start does not read a corpus: a
  // change between them is missed.
  const std::string& fingerprint() const override { return fingerprint_; }
  // Changes with the seed, sizes, samples of each file, and weights.
  const std::string& order_fingerprint() const override { return order_; }
  // The part of the fingerprint for one source's contents, tokens and mask.
  const std::string& contents_of(size_t source) const { return contents_[source]; }
  size_t num_sources() const { return sources_.size(); }  // files

  Walked walked_most(double drawn) const override;

  struct Place {
    size_t source;  // file
    int64_t sample;
  };
  Place place_of(int64_t global_sample) const;  // where a sample lies
  const OpenSource& source(size_t i) const { return sources_[i]; }
  // Which of the samples of all files it is, in the order of the files, from 0: below samples_per_epoch().
  int64_t number_of(int64_t global_sample) const;
  // Names the samples by their number, whatever the order in which they come, and whatever of them counts.
  std::string samples_fingerprint() const;

 private:
  int64_t order(size_t group, int64_t index, int64_t n) const;

  std::vector<OpenSource> sources_;
  int64_t seq_length_;
  uint64_t seed_;
  bool shuffle_;
  std::vector<int64_t> ends_;        // samples of files 0 .. s
  std::vector<int64_t> group_ends_;  // of groups 0 .. g: files that are walked as one
  std::optional<Mixture> mixture_;   // of groups, with weights
  std::vector<double> shares_;       // of groups; together 1
  std::vector<int64_t> begun_;       // samples of groups that come before
  std::string fingerprint_, order_, packing_;
  std::vector<std::string> contents_;  // of each source
};

std::unique_ptr<SampleOrder> open_sample_order(const DataSpec& spec);

}  // namespace weft
