// The order in which a run sees its data: a pure function of the seed and the global number of a sample.
//   S  tokens of a sample (seq_length)     n  tokens of a source
//
// Sample i of a source has inputs ids[i S .. i S + S - 1] and targets ids[i S + 1 .. i S + S]; there are
// floor((n - 1) / S). Global sample k is the same on any layout, and after any restart; nothing is remembered.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/data/token_source.h"

namespace weft {

struct DataSpec {
  std::vector<std::string> paths;    // raw ids, Megatron pairs, text or JSONL
  std::vector<double> weights = {};  // share of each in the samples; empty: as one source, in the order of their sizes
  std::string dtype = "uint16";      // of raw ids
  std::string loss_mask = {};        // of the only source
  std::string text_key = "text", tokenizer = "auto";
  std::string model_folder = {};  // for its tokenizer
  std::string cache_dir = {};     // for the tokens of texts whose folder cannot be written
  int64_t vocab_size = 0, seq_length = 0;
  uint64_t seed = 0;
  bool shuffle = false;
  double valid_fraction = 0;  // the last samples of each source are held out
  enum class Part : uint8_t { train, valid } part = Part::train;
};

// A source with what the recipe says about it.
struct OpenSource {
  std::unique_ptr<TokenSource> tokens;
  std::unique_ptr<LossMask> mask;  // null: all count
  int64_t num_samples = 0;         // for training; those behind are held out
};
// Opens, and tokenizes where needed. Throws FileError, ConfigError: also where a source has not one sample.
std::vector<OpenSource> open_sources(const DataSpec& spec);

// A permutation of 0 .. n - 1 that needs no table: a Feistel network on the next power of four, walked until it lands.
class Permutation {
 public:
  Permutation(uint64_t key, int64_t n);
  int64_t operator()(int64_t i) const;

 private:
  uint64_t key_;
  int64_t n_;
  int half_bits_;
};

// Immutable; any thread may read.
class DataStream {
 public:
  explicit DataStream(const DataSpec& spec);

  // Global sample >= 0: each span has seq_length elements; counted[j] is 1 where targets[j] counts in the loss.
  void read(int64_t global_sample, std::span<int32_t> ids, std::span<int32_t> targets,
            std::span<uint8_t> counted) const;
  int64_t counted_targets(int64_t global_sample) const;

  int64_t samples_per_epoch() const;  // of all sources together, each once
  // Changes when any sample does.
  const std::string& fingerprint() const { return fingerprint_; }

  struct Place {
    size_t source;
    int64_t sample;
  };
  Place place_of(int64_t global_sample) const;  // where a sample lies

 private:
  Place weighted(int64_t global_sample) const;
  int64_t order(size_t source, int64_t index, int64_t n) const;

  std::vector<OpenSource> sources_;
  int64_t seq_length_;
  uint64_t seed_;
  bool shuffle_;
  std::vector<int64_t> ends_;  // without weights: samples of sources 0 .. s
  struct Slot {
    size_t source;
    int64_t before;  // slots of this source before it in the block
  };
  std::vector<Slot> block_;      // with weights: which source each of kBlock consecutive samples is of
  std::vector<int64_t> quotas_;  // slots of each source in a block
  std::string fingerprint_;
};

std::unique_ptr<DataStream> open_data_stream(const DataSpec& spec);

}  // namespace weft
