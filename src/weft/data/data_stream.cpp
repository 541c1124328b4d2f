#include "weft/data/data_stream.h"

#include <algorithm>
#include <array>

#include "weft/base/error.h"
#include "weft/base/rng.h"
#include "weft/data/permutation.h"

namespace weft {

DataStream::DataStream(const DataSpec& spec)
    : sources_(open_sources(spec)), seq_length_(spec.seq_length), seed_(spec.seed), shuffle_(spec.shuffle) {
  require_samples(sources_, spec);
  const char* part = spec.part == DataSpec::Part::valid ? "valid" : "train";
  fingerprint_ =
      fmt::format("S={} seed={} shuffle={} valid={} part={}", seq_length_, seed_, shuffle_, spec.valid_fraction, part);
  int64_t all = 0;
  for (const OpenSource& s : sources_) {
    ends_.push_back(all += s.num_samples);
    fingerprint_ += " " + s.tokens->fingerprint();
    if (s.mask) fingerprint_ += " " + s.mask->fingerprint();
  }
  if (spec.weights.empty()) return;
  mixture_.emplace(spec.weights);
  for (double w : spec.weights) fingerprint_ += fmt::format(" w={}", w);
}

int64_t DataStream::samples_per_epoch() const { return ends_.back(); }

void DataStream::read(int64_t k, std::span<int32_t> ids, std::span<int32_t> targets, std::span<uint8_t> counted) const {
  const size_t length = size_t(seq_length_);
  WEFT_CHECK(ids.size() == length && targets.size() == length && counted.size() == length,
             "spans of {}, {} and {} for samples of {}", ids.size(), targets.size(), counted.size(), length);
  const Place at = place_of(k);
  const OpenSource& s = sources_[at.source];
  s.tokens->read(at.sample * seq_length_, ids);
  s.tokens->read(at.sample * seq_length_ + 1, targets);
  if (s.mask)
    s.mask->read(at.sample * seq_length_, counted);
  else
    std::fill(counted.begin(), counted.end(), uint8_t(1));
}

int64_t DataStream::counted_targets(int64_t k) const {
  const Place at = place_of(k);
  const OpenSource& s = sources_[at.source];
  if (!s.mask) return seq_length_;
  int64_t n = 0;
  std::array<uint8_t, 4096> piece;
  for (int64_t j = 0; j < seq_length_; j += int64_t(piece.size())) {
    const std::span<uint8_t> part(piece.data(), size_t(std::min<int64_t>(int64_t(piece.size()), seq_length_ - j)));
    s.mask->read(at.sample * seq_length_ + j, part);
    n += std::count(part.begin(), part.end(), uint8_t(1));
  }
  return n;
}

DataStream::Place DataStream::place_of(int64_t k) const {
  WEFT_CHECK(k >= 0, "sample {}", k);
  if (mixture_) {
    const auto [source, index] = (*mixture_)(k);
    const OpenSource& s = sources_[source];
    return {source, s.first_sample + order(source, index, s.num_samples)};
  }
  const int64_t at = order(0, k, ends_.back());
  const size_t source = size_t(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
  return {source, sources_[source].first_sample + at - (source == 0 ? 0 : ends_[source - 1])};
}

// Sample `index` of an endless walk over n samples, each once per epoch.
int64_t DataStream::order(size_t source, int64_t index, int64_t n) const {
  const int64_t epoch = index / n, at = index % n;
  if (!shuffle_) return at;
  return Permutation(rng_key(rng_key(rng_key(seed_, "data order"), uint64_t(source)), uint64_t(epoch)), n)(at);
}

std::unique_ptr<DataStream> open_data_stream(const DataSpec& spec) { return std::make_unique<DataStream>(spec); }

}  // namespace weft
