// The order in which a run sees its data: a pure function of the seed and the global number of a sample
// (docs/formats/sample_order.md).
//   S  tokens of a sample (seq_length)
//
// Global sample k is the same on any layout, and after any restart; nothing is remembered. Without weights, all files
// together are one source, each sample once an epoch; with them, each source, of one file or several, is walked by
// itself, its samples once each before any comes again.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/data/mixture.h"
#include "weft/data/open_sources.h"

namespace weft {

// Immutable; any thread may read.
class SampleOrder {
 public:
  // Throws FileError, ConfigError: also where a source has not one sample.
  explicit SampleOrder(const DataSpec& spec);

  // Global sample >= 0. Throws as OpenSource::read.
  void read(int64_t global_sample, const SampleRows& to) const;
  // How many targets of that sample count.
  int64_t counted_targets(int64_t global_sample) const;

  int64_t samples_per_epoch() const;  // of all sources together, each once
  // Changes when samples do: of sources, their contents, masks, weights, packing, seed and lengths. Of a file above 64
  // MiB, 64 pieces of a MiB are looked at and the size, so that a start does not read a corpus: a change between them
  // is missed.
  const std::string& fingerprint() const { return fingerprint_; }
  // Covers all that place_of depends on: seed, sizes, samples of each file, weights, but not the files' contents.
  const std::string& order_fingerprint() const { return order_; }
  // The part of the fingerprint for one source's contents, tokens and mask.
  const std::string& contents_of(size_t source) const { return contents_[source]; }
  size_t num_sources() const { return sources_.size(); }  // files

  // The source whose samples are seen most often among `drawn` samples: how often, how many it has, its first file.
  struct Walked {
    double times;
    int64_t samples;
    std::string file;
    bool is_all;  // there is no other
  };
  Walked walked_most(double drawn) const;

  struct Place {
    size_t source;  // file
    int64_t sample;
  };
  Place place_of(int64_t global_sample) const;  // where a sample lies
  const OpenSource& source(size_t i) const { return sources_[i]; }

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
  std::string fingerprint_, order_;
  std::vector<std::string> contents_;  // of each source
};

std::unique_ptr<SampleOrder> open_sample_order(const DataSpec& spec);

}  // namespace weft
