// What training reads, sample by sample: a pure function of a sample's global number.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "weft/data/open_sources.h"

namespace weft {

class RowOrder;

// A sample's rows of the k largest logits of a teacher at each of its tokens.
struct TopRows {
  std::span<int32_t> ids;   // [seq_length k]  ascending in each row
  std::span<float> logits;  // [seq_length k]
  std::span<float> lse;     // [seq_length]  log of the sum of exp(logit / temperature) over the vocabulary
  int64_t top() const { return lse.empty() ? 0 : int64_t(ids.size() / lse.size()); }
};

// Immutable; any thread may read. A sample is one sequence of seq_length targets.
class TrainingSamples {
 public:
  virtual ~TrainingSamples() = default;
  // Global sample >= 0. Throws FileError for what is wrong in its file.
  virtual void read(int64_t global_sample, const SampleRows& to) const = 0;
  // The sequence that an objective scores beside that sample, of its prompt and another completion. A WEFT_CHECK where
  // samples have none.
  virtual void read_other(int64_t global_sample, const SampleRows& to) const;
  // What is stored of a teacher's logits at that sample's tokens. A WEFT_CHECK where nothing is.
  virtual void read_top(int64_t global_sample, const TopRows& to) const;
  // How many targets of that sample count, and of the tokens after them.
  virtual OpenSource::Counted counted(int64_t global_sample) const = 0;

  // Those that are rows of token ids, as rows; none: they are not.
  virtual const RowOrder* rows() const { return nullptr; }

  // What train.global_batch_size counts: so many of all files together, each once.
  virtual int64_t samples_per_epoch() const = 0;
  // The source whose samples are seen most often among `drawn` samples: how often, how many it has, its first file.
  struct Walked {
    double times;
    int64_t samples;
    std::string file;
    bool is_all;  // there is no other
  };
  virtual Walked walked_most(double drawn) const = 0;

  // Changes when samples do: of sources, their contents, masks, weights, packing, seed and lengths.
  virtual const std::string& fingerprint() const = 0;
  // Covers all that the place of a sample depends on, but not the files' contents.
  virtual const std::string& order_fingerprint() const = 0;
};

}  // namespace weft
