// What a recipe names as data, opened: token files as they are, texts tokenized once.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
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
  double valid_fraction = 0;  // the last samples of each source are held out, at least one; in [0, 1)
  enum class Part : uint8_t { train, valid } part = Part::train;  // of what valid_fraction divides
  // Called while a text is tokenized, with the fraction that is done.
  std::function<void(std::string_view path, double done)> progress = {};
};

// A source with what the recipe says about it. Sample i has inputs ids[i S .. i S + S - 1], S = seq_length, and targets
// one later; there are floor((n - 1) / S).
struct OpenSource {
  std::unique_ptr<TokenSource> tokens;
  std::unique_ptr<LossMask> mask;  // null: all count
  int64_t first_sample = 0;        // of the part
  int64_t num_samples = 0;         // whole ones of the part; may be 0
};

// Opens all paths. What a file is, its name says: `.bin` (or its prefix, or .idx) with its other half beside it is
// Megatron's, `.bin` alone raw ids of spec.dtype, .jsonl, .ndjson and .json JSON lines, any other a text. Throws
// FileError, ConfigError.
std::vector<OpenSource> open_sources(const DataSpec& spec);

// Throws FileError for a source without one whole sample in the part.
void require_samples(const std::vector<OpenSource>& sources, const DataSpec& spec);

}  // namespace weft
