// What a recipe names as data, opened: token files as they are, texts tokenized once.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/packing.h"
#include "weft/data/text_tokens.h"
#include "weft/data/token_source.h"

namespace weft {

struct DataSpec {
  std::vector<std::string> paths;  // raw ids, Megatron pairs, text or JSONL, and what `more` reads
  // How many paths, one after the other, are the files of one source; empty: each is one.
  std::vector<int64_t> files_of_source = {};
  // Share of each source in the samples; empty: all are walked as one, in the order of their sizes.
  std::vector<double> weights = {};
  // How many samples of each source (without weights: of all as one) were read before sample 0, by an earlier phase of
  // the run: its walk goes on behind them. Empty: none.
  std::vector<int64_t> begun = {};
  std::string dtype = "uint16";  // of raw ids
  std::string loss_mask = {};    // of the only source; a Megatron pair may have one beside it: PREFIX.mask
  PackingKind packing = PackingKind::concatenate_and_split;
  // A token sees those before it in its document alone, and positions begin anew with each document; else it sees all
  // before it in the sample.
  bool documents_apart = false;
  std::string text_key = "text", tokenizer = "auto";
  DocumentFiles more = {};
  std::string model_folder = {};  // for its tokenizer
  std::string cache_dir = {};     // for the tokens of texts whose folder cannot be written
  int64_t vocab_size = 0, seq_length = 0;
  uint64_t seed = 0;
  bool shuffle = false;
  double valid_fraction = 0;  // the last samples of each source are held out, at least one; in [0, 1)
  enum class Part : uint8_t { train, valid } part = Part::train;  // of what valid_fraction divides
  bool fingerprint = true;   // false: where nobody compares the data, which so costs less to open
  bool may_tokenize = true;  // false: a text that is not tokenized yet is a FileError
  // Called while a text is tokenized, with the fraction that is done.
  std::function<void(std::string_view path, double done)> progress = {};
};

// One sample, row by row: each span has seq_length elements, and those behind its last token are filled up with id 0.
struct SampleRows {
  std::span<int32_t> ids, targets;
  std::span<uint8_t> counted;    // 1 where targets[j] counts in the loss
  std::span<int32_t> positions;  // what a row may see begins with the last 0 at it or before
  // May be none: 1 where targets[j + 1] counts, and follows targets[j] in its document.
  std::span<uint8_t> further_counted = {};
  // May be none: 0 where targets[j] does not count, else 1 / the targets of its document that count in this sample.
  std::span<double> weights = {};
};

// A source with what the recipe says about it, in samples of seq_length. A token that begins a document is no target
// where documents are packed or kept apart.
struct OpenSource {
  std::unique_ptr<TokenSource> tokens;
  std::unique_ptr<LossMask> mask;    // null: all count
  std::unique_ptr<Packing> packing;  // of tokens
  bool documents_apart = false;
  int64_t first_sample = 0;  // of the part
  int64_t num_samples = 0;   // that the part has for training; may be 0

  // Sample (of the packing) >= 0. Throws FileError where an id is not in the vocabulary, or a byte of the mask is
  // neither 0 nor 1.
  void read(int64_t sample, const SampleRows& to) const;
  // How many targets of that sample count, how many rows of further_counted, and how many documents have such a target
  // in it: those that the packing cuts at, else the sample is one.
  struct Counted {
    int64_t targets = 0, further = 0, documents = 0;
  };
  Counted counted(int64_t sample) const;
  std::string contents() const;  // the fingerprints of tokens and mask

 private:
  void read_counted(const Packing::Segment& segment, std::span<uint8_t> counted) const;
  int64_t counted_in(const Packing::Segment& segment) const;
  bool drops_last(const Packing::Segment& segment) const;
};

// Opens all paths. What a file is, its name says: `.bin` (or its prefix, or .idx) with its other half beside it is
// Megatron's, `.bin` alone raw ids of spec.dtype, .jsonl, .ndjson and .json JSON lines, any other a text. Throws
// FileError, ConfigError.
std::vector<OpenSource> open_sources(const DataSpec& spec);

// That all paths are there, without opening them. Throws FileError as open_sources does.
void require_sources(const std::vector<std::string>& paths);

// That each span has seq_length elements.
void check_lengths(const SampleRows& rows, int64_t seq_length);

// For each source of the specification, the place in `paths` behind its last file.
std::vector<size_t> ends_of_sources(const DataSpec& spec);

// Throws FileError for a source without one whole sample in the part; of its files some may have none.
void require_samples(const std::vector<OpenSource>& sources, const DataSpec& spec);

}  // namespace weft
